// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// klogger_loop CPU BLOCK PAUSE: does what arms.h, which klogger bench writes, has as hit(ARM, N),
// on one CPU, as it is told on stdin; each line has an answer on stdout:
//   rounds N ARM...         N rounds of a block of BLOCK hits of each arm, each round beginning
//                           with another arm, with PAUSE ns between two rounds: the CPU time of a
//                           hit in ns, by arm and round; and how two clocks of the kernel agreed
//                           meanwhile
//   ticks MS                the time-stamp counter against the kernel's clock, for MS milliseconds
//   flood ARM NS PER_MS     hits for NS nanoseconds, PER_MS each millisecond, or with 0 as many as
//                           it can
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arms.h"

#define ARMS_MAX 1100
#define MS 1000000ull

typedef unsigned long long u64;

static unsigned block;
static u64 pause_ns;

static u64 now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
}

static double timed_block(unsigned arm)
{
	u64 start = now(CLOCK_THREAD_CPUTIME_ID);

	hit(arm, block);
	return (double)(now(CLOCK_THREAD_CPUTIME_ID) - start) / block;
}

/* Two clocks at one time: again, if something came in between. */
static void both_clocks(u64 *mono, u64 *raw)
{
	int i;

	for (i = 0; i < 100; i++) {
		*mono = now(CLOCK_MONOTONIC);
		*raw = now(CLOCK_MONOTONIC_RAW);
		if (now(CLOCK_MONOTONIC) - *mono < 5000)
			break;
	}
}

/* The least step of the clock that times the blocks. */
static u64 least_step(void)
{
	u64 least = ~0ull, before = now(CLOCK_THREAD_CPUTIME_ID);
	int i;

	for (i = 0; i < 1000; i++) {
		u64 after = now(CLOCK_THREAD_CPUTIME_ID);

		if (after > before && after - before < least)
			least = after - before;
		before = after;
	}
	return least;
}

static void sleep_until(u64 when)
{
	struct timespec ts = { (time_t)(when / 1000000000u), (long)(when % 1000000000u) };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

static void print_blocks(const double *times, unsigned arms, unsigned rounds)
{
	unsigned a, r;

	printf("\"blocks\": [");
	for (a = 0; a < arms; a++) {
		printf(a ? ", [" : "[");
		for (r = 0; r < rounds; r++)
			printf("%s%.3f", r ? "," : "", times[a * rounds + r]);
		printf("]");
	}
	printf("]");
}

static void do_rounds(unsigned rounds, const unsigned *list, unsigned arms)
{
	double *times = calloc((size_t)rounds * arms, sizeof(*times));
	u64 mono, raw, mono_end, raw_end, before, backwards = 0;
	unsigned r, a;

	if (!times)
		abort();
	both_clocks(&mono, &raw);
	before = mono;
	for (r = 0; r < rounds; r++) {
		u64 after;

		for (a = 0; a < arms; a++) {
			unsigned arm = (r + a) % arms;

			times[arm * rounds + r] = timed_block(list[arm]);
		}
		after = now(CLOCK_MONOTONIC);
		backwards += after < before;
		before = after;
		if (pause_ns)
			sleep_until(after + pause_ns);
	}
	both_clocks(&mono_end, &raw_end);
	printf("{\"mono_ns\": %llu, \"raw_ns\": %llu, \"backwards\": %llu, \"step_ns\": %llu, ",
	       mono_end - mono, raw_end - raw, backwards, least_step());
	print_blocks(times, arms, rounds);
	printf("}\n");
	free(times);
}

static void do_flood(unsigned arm, u64 ns, unsigned per_ms)
{
	u64 start = now(CLOCK_MONOTONIC), hits = 0, ms = 0, end;

	while (now(CLOCK_MONOTONIC) - start < ns) {
		hit(arm, per_ms ? per_ms : block);
		hits += per_ms ? per_ms : block;
		if (per_ms)
			sleep_until(start + ++ms * MS);
	}
	end = now(CLOCK_MONOTONIC);
	printf("{\"hits\": %llu, \"start_ns\": %llu, \"ns\": %llu}\n", hits, start, end - start);
}

static u64 counter(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_ia32_rdtsc();
#else
	return 0;
#endif
}

static void do_ticks(u64 ms)
{
	u64 start = now(CLOCK_MONOTONIC_RAW), ticks = counter();

	sleep_until(now(CLOCK_MONOTONIC) + ms * MS);
	ticks = counter() - ticks;
	printf("{\"ticks\": %llu, \"ns\": %llu}\n", ticks, now(CLOCK_MONOTONIC_RAW) - start);
}

static int run_command(char *line)
{
	unsigned list[ARMS_MAX], arms = 0;
	char *word = strtok(line, " \n"), *argument = strtok(NULL, " \n");

	if (!word || !argument)
		return 2;
	if (!strcmp(word, "flood")) {
		char *time = strtok(NULL, " \n"), *rate = strtok(NULL, " \n");

		if (!time || !rate)
			return 2;
		do_flood((unsigned)atoi(argument), strtoull(time, NULL, 10), (unsigned)atoi(rate));
		return 0;
	}
	if (!strcmp(word, "ticks")) {
		do_ticks(strtoull(argument, NULL, 10));
		return 0;
	}
	while (arms < ARMS_MAX && (word = strtok(NULL, " \n")))
		list[arms++] = (unsigned)atoi(word);
	do_rounds((unsigned)atoi(argument), list, arms);
	return 0;
}

int main(int argc, char **argv)
{
	static char line[16384];
	cpu_set_t cpus;

	if (argc != 4)
		return 2;
	CPU_ZERO(&cpus);
	CPU_SET((size_t)atoi(argv[1]), &cpus);
	block = (unsigned)atoi(argv[2]);
	pause_ns = strtoull(argv[3], NULL, 10);
	if (!block || sched_setaffinity(0, sizeof(cpus), &cpus))
		return 2;
	while (fgets(line, sizeof(line), stdin)) {
		int error = run_command(line);

		if (error)
			return error;
		fflush(stdout);
	}
	return 0;
}
