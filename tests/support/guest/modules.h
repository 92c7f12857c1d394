/* Loads the modules that a kernel needs for its devices. Kernels of distributions have them in their initramfs, in /modules, with
 * their order in the files `order` and `later`; kernels with everything built in have neither. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void load_list(const char *list)
{
    char path[256], name[200];
    FILE *file = fopen(list, "r");
    while (file && fgets(name, sizeof name, file)) {
        name[strcspn(name, "\n")] = 0;
        snprintf(path, sizeof path, "/modules/%s", name);
        int module = open(path, O_RDONLY);
        syscall(SYS_finit_module, module, "", 0);
        close(module);
    }
    if (file)
        fclose(file);
}

static void load_modules(void)
{
    load_list("/modules/order");
    load_list("/modules/later");
}
