// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// shares SECONDS: spends CPU time in two functions, in turns of different lengths; prints where
// they are, and how long each took, by the thread's own clock.
#include "oracle.h"

static volatile unsigned long sum;

__attribute__((noinline, aligned(64))) static void heavy(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sum += i;
}

__attribute__((noinline, aligned(64))) static void light(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sum ^= i;
}

/* In this order in memory. */
__attribute__((noinline, aligned(64), used)) static void after(void)
{
	sum++;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	unsigned long long begin = clock_ns(CLOCK_THREAD_CPUTIME_ID), now = begin, in_heavy = 0,
			   in_light = 0;
	unsigned long random = 1;

	while (now - begin < seconds * 1e9) {
		unsigned long long middle, end;

		/* So that no timer keeps step with the turns. */
		random = random * 6364136223846793005ul + 1442695040888963407ul;
		heavy(600000 + (random >> 45));
		middle = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		light(200000 + (random >> 46));
		end = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		in_heavy += middle - now;
		in_light += end - middle;
		now = end;
	}
	printf("{\"heavy\": %lu, \"light\": %lu, \"after\": %lu, \"heavy_ns\": %llu, "
	       "\"light_ns\": %llu}\n",
	       (unsigned long)heavy, (unsigned long)light, (unsigned long)after, in_heavy,
	       in_light);
	return 0;
}
