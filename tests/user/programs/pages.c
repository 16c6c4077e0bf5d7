// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * LD_PRELOAD: simulates a kernel with larger pages for the header's own calls. $PAGE is their size.
 * Addresses that are not at the beginning of such a page are refused, and new mappings begin at
 * one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static unsigned long page_size(void)
{
	static unsigned long size;

	if (!size)
		size = strtoul(getenv("PAGE"), NULL, 10);
	return size;
}

unsigned long getauxval(unsigned long type)
{
	unsigned long (*real)(unsigned long) =
		(unsigned long (*)(unsigned long))dlsym(RTLD_NEXT, "getauxval");

	return type == AT_PAGESZ ? page_size() : real(type);
}

static long refuse(void)
{
	errno = EINVAL;
	return -1;
}

long syscall(long number, ...)
{
	long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	unsigned long a[6], page = page_size(), at;
	va_list list;
	int i;

	va_start(list, number);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(list, unsigned long);
	va_end(list);
	if ((number == SYS_mprotect || number == SYS_madvise) && a[0] % page)
		return refuse();
	if (number == SYS_mmap && (a[5] % page || (a[3] & MAP_FIXED && a[0] % page)))
		return refuse();
	if (number == SYS_mmap && !(a[3] & MAP_FIXED)) {
		at = (unsigned long)mmap(NULL, a[1] + page, PROT_NONE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		a[0] = (at + page - 1) & ~(page - 1);
		a[3] |= MAP_FIXED;
	}
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
