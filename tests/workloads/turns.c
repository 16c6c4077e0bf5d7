// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// turns N US: N times, computes for US microseconds of CPU time, then sleeps for 1 ms. Prints the
// CPU time of main().
#include "oracle.h"

int main(int argc, char **argv)
{
	long rounds = argument(argc, argv, 1, 200), us = argument(argc, argv, 2, 300);
	struct timespec pause = { .tv_nsec = 1000000 };
	unsigned long long begun = clock_ns(CLOCK_PROCESS_CPUTIME_ID), until;

	for (long i = 0; i < rounds; i++) {
		until = clock_ns(CLOCK_PROCESS_CPUTIME_ID) + us * 1000ull;
		while (clock_ns(CLOCK_PROCESS_CPUTIME_ID) < until)
			;
		nanosleep(&pause, NULL);
	}
	printf("{\"rounds\": %ld, \"cpu_ns\": %llu}\n", rounds,
	       clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begun);
	return 0;
}
