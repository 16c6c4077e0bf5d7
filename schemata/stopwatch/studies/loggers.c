// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// loggers BLOCKS KIND...: times actions one by one, in blocks of 1000 of each KIND in turn.
//
//   empty      nothing: what the two readings of the clock take
//   reference  a system call that hits no tracepoint
//   traced     the same one, with an option that no kernel knows: it hits task_prctl_unknown (Linux
//              6.14)
//   klogger    an event of two integers, by klogger's macro
//   memory     the same as text with a time, into a buffer in memory
//   marker     the same as text, written to the file that TRACE_MARKER names
//
// Prints for each block of each kind: mean and deviation in cycles without the largest value, then
// of all.
#define _GNU_SOURCE
#include "pending_user.klogger.h"
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PAIRS 1000
#define KINDS_MAX 8
#define BLOCKS_MAX 1000
#define UNKNOWN_OPTION 0x4b4c4f47
#define MEMORY (1u << 20)

struct block {
	double mean, sd, mean_all, sd_all;
};

static unsigned long long samples[PAIRS];
static struct block blocks[KINDS_MAX][BLOCKS_MAX];
static char memory[MEMORY + 128];
static unsigned at;
static int marker = -1;

static unsigned long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* Ordered: nothing of the action begins before the first, or is under way after the second. */
#ifdef __x86_64__
static inline unsigned long long begin(void)
{
	unsigned long long cycles;

	__builtin_ia32_lfence();
	cycles = __builtin_ia32_rdtsc();
	__builtin_ia32_lfence();
	return cycles;
}

static inline unsigned long long end(void)
{
	unsigned int cpu;
	unsigned long long cycles = __builtin_ia32_rdtscp(&cpu);

	__builtin_ia32_lfence();
	return cycles;
}
#else
#define begin now_ns
#define end now_ns
#endif

static inline void print_to_memory(unsigned cpu, unsigned vec)
{
	unsigned long long ns = now_ns();

	at += snprintf(memory + at, 128, "[%llu.%09llu] cpu %u vec %u\n", ns / 1000000000,
		       ns % 1000000000, cpu, vec);
	if (at > MEMORY)
		at = 0;
}

static inline void write_marker(unsigned cpu, unsigned vec)
{
	char text[64];
	int length = snprintf(text, sizeof(text), "cpu %u vec %u", cpu, vec);

	if (write(marker, text, length) != length)
		perror("trace_marker"), exit(1);
}

/* A loop for each kind, so that no choice is made between the two readings. */
#define TIME(ACTION)                                               \
	for (unsigned i = 0; i < PAIRS; i++) {                     \
		unsigned long long start = begin();                \
                                                                   \
		ACTION;                                            \
		samples[i] = end() - start;                        \
	}

static int time_block(const char *kind)
{
	if (!strcmp(kind, "empty"))
		TIME()
	else if (!strcmp(kind, "reference"))
		TIME(prctl(PR_GET_DUMPABLE, 3, i, 0, 0))
	else if (!strcmp(kind, "traced"))
		TIME(prctl(UNKNOWN_OPTION, 3, i, 0, 0))
	else if (!strcmp(kind, "klogger"))
		TIME(klogger(PENDING_USER, 3, i))
	else if (!strcmp(kind, "memory"))
		TIME(print_to_memory(3, i))
	else if (!strcmp(kind, "marker"))
		TIME(write_marker(3, i))
	else
		return 0;
	return 1;
}

static int ascending(const void *a, const void *b)
{
	unsigned long long x = *(unsigned long long *)a, y = *(unsigned long long *)b;

	return (x > y) - (x < y);
}

static void mean_and_sd(int n, double *mean, double *sd)
{
	double sum = 0, squares = 0;

	for (int i = 0; i < n; i++)
		sum += samples[i];
	*mean = sum / n;
	for (int i = 0; i < n; i++)
		squares += (samples[i] - *mean) * (samples[i] - *mean);
	*sd = sqrt(squares / (n - 1));
}

static struct block summary(void)
{
	struct block found;

	qsort(samples, PAIRS, sizeof(*samples), ascending);
	mean_and_sd(PAIRS, &found.mean_all, &found.sd_all);
	mean_and_sd(PAIRS - PAIRS / 1000, &found.mean, &found.sd);
	return found;
}

/* The last CPU: interrupts prefer the first. */
static void stay_on_one_cpu(void)
{
	cpu_set_t set;
	int last = 0;

	sched_getaffinity(0, sizeof(set), &set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			last = cpu;
	CPU_ZERO(&set);
	CPU_SET(last, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void print(int n, int kinds, char **names, double hz)
{
	printf("{\"hz\": %.0f, \"pairs\": %d, \"blocks\": {", hz, PAIRS);
	for (int k = 0; k < kinds; k++) {
		printf("%s\"%s\": [", k ? ", " : "", names[k]);
		for (int b = 0; b < n; b++)
			printf("%s[%.3f, %.3f, %.3f, %.3f]", b ? ", " : "", blocks[k][b].mean,
			       blocks[k][b].sd, blocks[k][b].mean_all, blocks[k][b].sd_all);
		printf("]");
	}
	printf("}}\n");
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 0, kinds = argc - 2;
	unsigned long long start, start_ns, cycles;

	if (n < 1 || n > BLOCKS_MAX || kinds < 1 || kinds > KINDS_MAX)
		return fprintf(stderr, "usage: loggers BLOCKS KIND...\n"), 1;
	if (getenv("TRACE_MARKER"))
		marker = open(getenv("TRACE_MARKER"), O_WRONLY | O_CLOEXEC);
	stay_on_one_cpu();
	start = begin();
	start_ns = now_ns();
	/* The first round warms up, and does not count. */
	for (int b = -1; b < n; b++) {
		for (int k = 0; k < kinds; k++) {
			if (!time_block(argv[k + 2]))
				return fprintf(stderr, "loggers: no kind '%s'\n", argv[k + 2]), 1;
			if (b >= 0)
				blocks[k][b] = summary();
		}
	}
	cycles = end() - start;
	print(n, kinds, argv + 2, cycles * 1e9 / (now_ns() - start_ns));
	return 0;
}
