/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A known chain of calls to the function that renames the thread: chain WAY NAME [LIBRARY]. The
 * system call is made by a function of its own, because those of libc have no frame pointers.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))
#define AFTER __asm__ volatile("" ::: "memory")

KEEP void innermost(const char *name)
{
	long done;

	/* It has a frame: compilers leave out that of a function which calls none. */
	__asm__ volatile("" : : "r"(__builtin_frame_address(0)));
	__asm__ volatile("syscall" : "=a"(done)
			 : "0"(SYS_prctl), "D"(15), "S"(name) : "rcx", "r11", "memory");
	AFTER;
}
static inline __attribute__((always_inline)) void inlined(const char *name)
{
	innermost(name);
	AFTER;
}
KEEP void middle(const char *name) { inlined(name); AFTER; }
KEEP void outer(const char *name) { middle(name); AFTER; }

/* push %rbp; mov %rsp,%rbp; call *%rsi; pop %rbp; ret */
static const unsigned char code[] = {
	0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3 };

KEEP void made(const char *name)
{
	void (*function)(const char *, void (*)(const char *));
	unsigned char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char path[64];
	FILE *map;

	memcpy(memory + 64, code, sizeof(code));
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	map = fopen(path, "w");
	fprintf(map, "%lx %zx made by a program\n", (long)memory + 64, sizeof(code));
	fclose(map);
	function = (void *)(memory + 64);
	function(name, innermost);
	AFTER;
}

KEEP void late(const char *name, const char *path)
{
	void (*function)(const char *, void (*)(const char *)) =
		dlsym(dlopen(path, RTLD_NOW), "in_library");
	function(name, innermost);
	AFTER;
}

KEEP void deep(const char *name, int n)
{
	if (n)
		deep(name, n - 1);
	else
		innermost(name);
	AFTER;
}

int main(int argc, char **argv)
{
	if (argc > 3 && !strcmp(argv[1], "late"))
		late(argv[2], argv[3]);
	else if (!strcmp(argv[1], "made"))
		made(argv[2]);
	else if (!strcmp(argv[1], "deep"))
		deep(argv[2], 300);
	else if (!strcmp(argv[1], "forked")) {
		if (!fork()) {
			outer(argv[2]);
			_exit(0);
		}
		wait(NULL);
	} else
		outer(argv[2]);
	return 0;
}
