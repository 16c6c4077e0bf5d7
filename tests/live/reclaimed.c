/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * outer() calls middle() calls innermost(), which reads a byte while no page of middle() is in
 * memory, as after fork() or when the kernel needed its memory: its next instruction faults it in.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
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

ON_ITS_OWN_PAGE void innermost(int end)
{
	unsigned long page = (unsigned long)middle & ~(PAGE - 1);
	char byte;

	if (call(SYS_madvise, page, PAGE, MADV_DONTNEED) ||
	    call(SYS_read, end, (long)&byte, 1) != 1)
		_exit(1);
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

int main(void)
{
	int ends[2];

	if (pipe(ends) || write(ends[1], "x", 1) != 1)
		return 1;
	outer(ends[0]);
	return 0;
}
