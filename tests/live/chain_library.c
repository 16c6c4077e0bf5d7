/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What chain loads while it runs. */
__attribute__((noinline)) void in_library(const char *name, void (*call)(const char *))
{
	call(name);
	__asm__ volatile("" ::: "memory");
}
