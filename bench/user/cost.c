// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// cost ARM EVENTS THREADS MODE: what one ARM costs in a loop. An arm is a file that is compiled
// with this one and defines ARMS. MODE "loop" prints the nanoseconds of CPU time of each of 21
// batches; "pairs" the cycles of single events between two ordered readings of the TSC; "count"
// nothing, and runs the loop once, for callgrind.
#define _GNU_SOURCE
#include "cost.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#define BATCHES 21

static const struct arm *arm;
static unsigned events;
static pthread_barrier_t all_here;

static double cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void *loop(void *results)
{
	double *batch = results;
	int i;

	arm->run(1000);
	pthread_barrier_wait(&all_here);
	for (i = 0; i < BATCHES; i++) {
		double start = cpu_ns();

		arm->run(events);
		batch[i] = (cpu_ns() - start) / events;
	}
	return NULL;
}

static void loops(int threads)
{
	double (*results)[BATCHES] = calloc((size_t)threads, sizeof(*results));
	pthread_t handles[64];
	int i, j;

	pthread_barrier_init(&all_here, NULL, (unsigned)threads);
	for (i = 0; i < threads; i++)
		pthread_create(&handles[i], NULL, loop, results[i]);
	for (i = 0; i < threads; i++)
		pthread_join(handles[i], NULL);
	printf("{\"batches\": [");
	for (i = 0; i < threads; i++)
		for (j = 0; j < BATCHES; j++)
			printf("%s%.3f", i + j ? ", " : "", results[i][j]);
	printf("]}\n");
	free(results);
}

/* As LTTng's authors and KLogger's did it: the TSC before and after each event. */
static void pairs(void)
{
	unsigned *cycles = calloc(events, sizeof(*cycles)), i, processor;

	arm->run(1000);
	for (i = 0; i < events; i++) {
		unsigned long long start;

		_mm_lfence();
		start = __rdtsc();
		_mm_lfence();
		arm->run(1);
		cycles[i] = (unsigned)(__rdtscp(&processor) - start);
	}
	printf("{\"cycles\": [");
	for (i = 0; i < events; i++)
		printf("%s%u", i ? "," : "", cycles[i]);
	printf("]}\n");
	free(cycles);
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	for (arm = arms; arm->name && strcmp(arm->name, argv[1]); arm++)
		;
	if (!arm->name)
		return 2;
	events = (unsigned)atoi(argv[2]);
	if (!strcmp(argv[4], "loop"))
		loops(atoi(argv[3]));
	else if (!strcmp(argv[4], "pairs"))
		pairs();
	else
		arm->run(events);
	return 0;
}
