// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// single CPU BLOCK PAUSE: does what arms.h has as hit(ARM, 1), on one CPU, as it is told on stdin
// (see klogger bench's loop.c, whose arguments it takes); each line has an answer on stdout:
//   cycles N COLD ARM...    N times one hit of each arm, in any order, between two ordered readings
//                           of the time-stamp counter: the cycles of each. Before them come those
//                           of readings with nothing between them. If COLD is not 0, so many KiB
//                           are written before each hit, so that the caches hold nothing else
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#include "arms.h"

#define ARMS_MAX 64
#define LINE 64

typedef unsigned long long u64;

static void evict(volatile char *memory, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += LINE)
		memory[i]++;
}

static inline u64 begin(void)
{
	u64 now;

	_mm_lfence();
	now = __rdtsc();
	_mm_lfence();
	return now;
}

static inline u64 end(void)
{
	unsigned cpu;
	u64 now = __rdtscp(&cpu);

	_mm_lfence();
	return now;
}

static u64 one(unsigned arm)
{
	u64 start = begin();

	hit(arm, 1);
	return end() - start;
}

static u64 nothing(void)
{
	u64 start = begin();

	return end() - start;
}

static void print_all(const u64 *cycles, unsigned arms, unsigned n)
{
	printf("{\"cycles\": [");
	for (unsigned a = 0; a < arms; a++) {
		printf(a ? ", [" : "[");
		for (unsigned i = 0; i < n; i++)
			printf("%s%llu", i ? "," : "", cycles[a * n + i]);
		printf("]");
	}
	printf("]}\n");
}

/* In an order that changes, so that none always comes after the same other one. */
static void shuffle(unsigned *order, unsigned n)
{
	static unsigned long long state = 88172645463325252ull;

	for (unsigned i = n - 1; i > 0; i--) {
		unsigned j, kept = order[i];

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		j = (unsigned)(state % (i + 1));
		order[i] = order[j];
		order[j] = kept;
	}
}

static void do_cycles(unsigned n, size_t cold, const unsigned *list, unsigned arms)
{
	u64 *cycles = calloc((size_t)n * (arms + 1), sizeof(*cycles));
	char *memory = cold ? malloc(cold) : NULL;
	unsigned order[ARMS_MAX];

	if (!cycles || (cold && !memory))
		abort();
	if (memory)
		memset(memory, 1, cold);
	for (unsigned a = 0; a < arms; a++)
		order[a] = a;
	for (unsigned i = 0; i < n; i++) {
		cycles[i] = nothing();
		shuffle(order, arms);
		for (unsigned a = 0; a < arms; a++) {
			evict(memory, cold);
			cycles[(order[a] + 1) * n + i] = one(list[order[a]]);
		}
	}
	print_all(cycles, arms + 1, n);
	free(memory);
	free(cycles);
}

static int run_command(char *line)
{
	unsigned list[ARMS_MAX], arms = 0;
	char *word = strtok(line, " \n"), *count = strtok(NULL, " \n"), *cold = strtok(NULL, " \n");

	if (!word || !count || !cold || strcmp(word, "cycles"))
		return 2;
	while (arms < ARMS_MAX && (word = strtok(NULL, " \n")))
		list[arms++] = (unsigned)atoi(word);
	do_cycles((unsigned)atoi(count), strtoull(cold, NULL, 10) << 10, list, arms);
	return 0;
}

int main(int argc, char **argv)
{
	static char line[4096];
	cpu_set_t cpus;

	if (argc != 4)
		return 2;
	CPU_ZERO(&cpus);
	CPU_SET((size_t)atoi(argv[1]), &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		return 2;
	while (fgets(line, sizeof(line), stdin)) {
		int error = run_command(line);

		if (error)
			return error;
		fflush(stdout);
	}
	return 0;
}
