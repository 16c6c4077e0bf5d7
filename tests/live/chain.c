/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A known chain of calls to the function that renames the thread: chain WAY NAME [LIBRARY]. The
 * system call is made by a function of its own with a frame; by one without; or by libc's, which
 * have none.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
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
/* Its frame pointer is its caller's, and its return address is at the stack pointer. */
KEEP __attribute__((optimize("omit-frame-pointer"))) void leaf(const char *name)
{
	long done;

	__asm__ volatile("syscall" : "=a"(done)
			 : "0"(SYS_prctl), "D"(15), "S"(name) : "rcx", "r11", "memory");
}
KEEP void calls_leaf(const char *name) { leaf(name); AFTER; }

/* Here it is further up, above words that are no addresses of code. */
KEEP void shallow(void) { AFTER; }
KEEP __attribute__((optimize("omit-frame-pointer"))) void wide(const char *name)
{
	volatile long words[4] = {1, -1, (long)name, (long)&words};
	long done;

	shallow();
	words[3] = words[0];
	__asm__ volatile("syscall" : "=a"(done)
			 : "0"(SYS_prctl), "D"(15), "S"(name) : "rcx", "r11", "memory");
	AFTER;
}
KEEP void calls_wide(const char *name) { wide(name); AFTER; }

/* Here it is above another word that is an address after a call. */
KEEP __attribute__((optimize("omit-frame-pointer"))) void decoy(const char *name)
{
	void *volatile words[4] = {
		__builtin_return_address(0), __builtin_return_address(0),
		__builtin_return_address(0), __builtin_return_address(0)};
	long done;

	shallow();
	__asm__ volatile("syscall" : "=a"(done)
			 : "0"(SYS_prctl), "D"(15), "S"(name) : "rcx", "r11", "memory");
	words[0] = words[1];
}
KEEP void calls_decoy(const char *name) { decoy(name); AFTER; }

/* A function without a frame in the middle of the chain: its caller is missing. */
KEEP __attribute__((optimize("omit-frame-pointer"))) void hides(const char *name)
{
	innermost(name);
	AFTER;
}
KEEP void hidden(const char *name) { hides(name); AFTER; }
KEEP void above(const char *name) { hidden(name); AFTER; }

/* libc's write(), which keeps more on its stack if the program has threads. */
KEEP void writes(int file, const char *name)
{
	if (write(file, name, strlen(name)) < 0)
		_exit(1);
	AFTER;
}
KEEP void *renames(void *name)
{
	writes(open("/proc/thread-self/comm", O_WRONLY), name);
	AFTER;
	return NULL;
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
	else if (!strcmp(argv[1], "leaf"))
		calls_leaf(argv[2]);
	else if (!strcmp(argv[1], "wide"))
		calls_wide(argv[2]);
	else if (!strcmp(argv[1], "decoy"))
		calls_decoy(argv[2]);
	else if (!strcmp(argv[1], "hidden"))
		above(argv[2]);
	else if (!strcmp(argv[1], "libc"))
		renames(argv[2]);
	else if (!strcmp(argv[1], "thread")) {
		pthread_t thread;

		pthread_create(&thread, NULL, renames, argv[2]);
		pthread_join(thread, NULL);
	} else if (!strcmp(argv[1], "forked")) {
		if (!fork()) {
			outer(argv[2]);
			_exit(0);
		}
		wait(NULL);
	} else if (!strcmp(argv[1], "clock")) {
		struct timespec begin, now;

		clock_gettime(CLOCK_MONOTONIC, &begin);
		do
			clock_gettime(CLOCK_MONOTONIC, &now);
		while (now.tv_sec - begin.tv_sec < 1);
	} else
		outer(argv[2]);
	/* Until the other end of the pipe is closed. */
	if (argc > 3 && !strcmp(argv[3], "wait"))
		return read(0, &(char){0}, 1) != 0;
	return 0;
}
