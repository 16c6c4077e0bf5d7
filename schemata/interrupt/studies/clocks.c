// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// clocks SECONDS CPU CALLS: first asks for the time CALLS times, by the C library and by the system
// call; then computes for SECONDS on one CPU, so that its timer interrupt comes as often as it can.
// Prints what one call took, as JSON.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "timer_interrupts.h"

#define ROUNDS 9

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

// The median of some rounds: others may have the CPU in between.
static double cost(long calls, int kernel)
{
	double took[ROUNDS];
	struct timeval t;

	for (int round = 0; round < ROUNDS; round++) {
		long some = calls * (round + 1) / ROUNDS - calls * round / ROUNDS;
		uint64_t began = now();

		for (long i = 0; i < some; i++) {
			if (kernel)
				syscall(SYS_gettimeofday, &t, NULL);
			else
				gettimeofday(&t, NULL);
		}
		took[round] = some ? (double)(now() - began) / some : 0;
	}
	qsort(took, ROUNDS, sizeof(*took), by_value);
	return took[ROUNDS / 2];
}

int main(int argc, char **argv)
{
	uint64_t began, ended;
	long long before, after;
	double library, kernel;
	cpu_set_t set;
	long calls;

	if (argc != 4) {
		fprintf(stderr, "usage: clocks SECONDS CPU CALLS\n");
		return 2;
	}
	calls = atol(argv[3]);
	CPU_ZERO(&set);
	CPU_SET(atoi(argv[2]), &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		fprintf(stderr, "clocks: CPU %s: %s\n", argv[2], strerror(errno));
		return 1;
	}
	library = cost(calls, 0);
	kernel = cost(calls, 1);
	began = counted_at(atoi(argv[2]), &before);
	while (now() - began < atof(argv[1]) * 1e9)
		for (volatile int i = 0; i < 100000; i++)
			;
	ended = counted_at(atoi(argv[2]), &after);
	printf("{\"calls\": %ld, \"library_ns\": %.2f, \"kernel_ns\": %.2f, \"began\": %llu, "
	       "\"ended\": %llu, \"timer\": %lld}\n",
	       calls, library, kernel, (unsigned long long)began, (unsigned long long)ended,
	       before < 0 ? -1 : after - before);
	return 0;
}
