/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * outer() calls middle() calls innermost(), which reads a byte while no page of these two is in
 * memory, as after fork() or when the kernel needed its memory: their next instructions fault them
 * in. With an argument it then sleeps so many times, each time without these pages.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul
#define KEEP __attribute__((noinline, noclone))
#define ON_ITS_OWN_PAGE __attribute__((noinline, noclone, aligned(4096)))
#define AFTER __asm__ volatile("" ::: "memory")

/* The C library is not called: its stub may be on a page beside middle(). */
static inline __attribute__((always_inline)) long call(long number, long a, long b, long c)
{
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
}

void middle(int end);
void outer(int end);
static int times;

static inline __attribute__((always_inline)) void drop(void (*function)(int))
{
	unsigned long page = (unsigned long)function & ~(PAGE - 1);

	if (call(SYS_madvise, page, PAGE, MADV_DONTNEED))
		_exit(1);
}

ON_ITS_OWN_PAGE void innermost(int end)
{
	struct timespec moment = {.tv_nsec = 1000000};
	char byte;

	drop(middle);
	drop(outer);
	if (call(SYS_read, end, (long)&byte, 1) != 1)
		_exit(1);
	for (int n = 0; n < times; n++)
		call(SYS_nanosleep, (long)&moment, 0, 0);
	AFTER;
}

ON_ITS_OWN_PAGE void middle(int end)
{
	innermost(end);
	AFTER;
}

ON_ITS_OWN_PAGE void outer(int end)
{
	middle(end);
	AFTER;
}

int main(int argc, char **argv)
{
	int ends[2];

	times = argc > 1 ? atoi(argv[1]) : 0;
	if (pipe(ends) || write(ends[1], "x", 1) != 1)
		return 1;
	outer(ends[0]);
	return 0;
}
