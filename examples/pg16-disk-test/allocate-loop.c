/* Holds SIZE MiB of memory, touched again every second: allocate-loop SIZE. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    size_t size = argc > 1 ? strtoul(argv[1], NULL, 10) << 20 : 0;
    char *memory = size ? malloc(size) : NULL;
    if (!memory) {
        fprintf(stderr, "usage: allocate-loop MEBIBYTES (there must be as much)\n");
        return 1;
    }
    for (unsigned char value = 0;; value++) {
        memset(memory, value, size);
        sleep(1);
    }
}
