/* Uses memory between MIN and MAX MiB, up and down again and again, by 256 MiB a second: allocate-loop MIN MAX. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STEP = 1 << 20, PAUSE_US = 1000000 / 256, STEPS_PER_LINE = 64 };

static size_t mebibytes(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    return *end || end == text || value > 1 << 20 ? 0 : value << 20;
}

int main(int argc, char **argv)
{
    size_t least = argc == 3 ? mebibytes(argv[1]) : 0, most = argc == 3 ? mebibytes(argv[2]) : 0;
    if (!least || least >= most) {
        fprintf(stderr, "usage: allocate-loop MIN MAX (MiB, MIN below MAX)\n");
        return 1;
    }
    char *memory = mmap(NULL, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("allocate-loop: mmap");
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    memset(memory, 1, least);
    size_t used = least;
    for (unsigned step = 1, grows = 1;; step++, usleep(PAUSE_US)) {
        if (grows) {
            memset(memory + used, 1, STEP);
            used += STEP;
        } else {
            used -= STEP;
            madvise(memory + used, STEP, MADV_DONTNEED);
        }
        if (used >= most || used <= least) {
            grows = used <= least;
            printf("allocate-loop: %zu MiB, the %s\n", used >> 20, grows ? "least" : "most");
        } else if (step % STEPS_PER_LINE == 0) {
            printf("allocate-loop: %zu MiB\n", used >> 20);
        }
    }
}
