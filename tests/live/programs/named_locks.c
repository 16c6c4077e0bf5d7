// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Waits a planted number of times for each of several locks: named_locks LIBRARY SHARED [pause]
 * Prints a name and the address of each lock. With `pause`, it waits for input before.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

unsigned int global_lock = 1;
static unsigned int static_lock;
static struct { int other[16]; unsigned int lock; } table;

/* The word is not 7, so that the call returns at once, with EAGAIN. */
static void wait_for(unsigned int *lock, int times, int op, const char *name)
{
    printf("%s %p\n", name, (void *)lock);
    for (int n = 0; n < times; n++)
        syscall(SYS_futex, lock, op, 7, NULL, NULL, 0);
}

int main(int count, char **words)
{
    unsigned int *(*data)(void), *(*bss)(void), *heap = calloc(1, sizeof(*heap)), *shared;
    void *library = count > 2 ? dlopen(words[1], RTLD_NOW) : NULL;
    int file = library ? open(words[2], O_RDWR) : -1;
    char *at;

    if (file < 0)
        return 1;
    data = (unsigned int *(*)(void))dlsym(library, "data");
    bss = (unsigned int *(*)(void))dlsym(library, "bss");
    shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    /* All is mapped. */
    if (count > 3) {
        puts("mapped");
        fflush(stdout);
        getchar();
    }
    wait_for(&global_lock, 3, FUTEX_WAIT_PRIVATE, "global_lock");
    wait_for(&static_lock, 5, FUTEX_WAIT_PRIVATE, "static_lock");
    wait_for(&table.lock, 7, FUTEX_WAIT_PRIVATE, "table+0x40");
    wait_for(data(), 11, FUTEX_WAIT_PRIVATE, "library_data");
    wait_for(bss(), 13, FUTEX_WAIT_PRIVATE, "library_bss");
    wait_for(heap, 17, FUTEX_WAIT_PRIVATE, "-");
    wait_for(shared + 1040, 19, FUTEX_WAIT, "shared.queue+0x1040");
    /* Memory where the library was: the same addresses are other locks. */
    at = (char *)((unsigned long)data() & -4096ul);
    at = mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (at == MAP_FAILED)
        return 1;
    wait_for((unsigned int *)at, 23, FUTEX_WAIT_PRIVATE, "-");
    return 0;
}
