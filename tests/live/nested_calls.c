/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Five functions without frame pointers that call each other and compute, each in its own part of
 * a stack: nested_calls SECONDS. With large parts the outer ones are 10 kB above the innermost one.
 * Prints the CPU time of the thread in ns.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define KEEP __attribute__((noinline, noclone))
#define AFTER __asm__ volatile("" ::: "memory")

static volatile unsigned long sink;

KEEP void computes(int times)
{
	unsigned long value = times;
	int n;

	for (n = 0; n < times; n++) {
		value = value * 6364136223846793005 + 1442695040888963407;
		__asm__ volatile("" : "+r"(value));
	}
	sink = value;
}

/* What earlier calls have left stays in the middle of the room. */
#define CALLS(name, callee, bytes, rounds)		\
	KEEP void name(int times)			\
	{						\
		volatile char room[bytes];		\
		int n;					\
							\
		room[0] = times;			\
		for (n = 0; n < (rounds); n++) {	\
			callee(times);			\
			AFTER;				\
		}					\
		room[bytes - 1] = room[0];		\
	}

CALLS(fifth, computes, 40, 13)
CALLS(fourth, fifth, ROOM, 7)
CALLS(third, fourth, 104, 5)
CALLS(second, third, ROOM, 3)
CALLS(first, second, 24, 2)

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

int main(int argc, char **argv)
{
	long long until = argc > 1 ? atof(argv[1]) * 1e9 : 0;

	while (now() < until)
		first(1009);
	printf("%lld\n", now());
	return 0;
}
