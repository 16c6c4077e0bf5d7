// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// pingpong N [processes|threads] [CPU]: two partners send a byte back and forth over pipes, exactly
// N rounds. Pinned to one CPU, each round is two switches. Also prints the time of a round.
#include "oracle.h"
#include <pthread.h>

static long rounds;
static int cpu;
static int there[2], back[2];
static unsigned long long *took;

static void move(int from, int to, int first)
{
	char byte = 0;

	for (long i = 0; i < rounds; i++) {
		if (first && write(to, &byte, 1) != 1)
			die("write");
		if (read(from, &byte, 1) != 1)
			die("read");
		if (!first && write(to, &byte, 1) != 1)
			die("write");
	}
}

static void *ping(void *unused)
{
	unsigned long long start;

	(void)unused;
	if (cpu >= 0)
		run_on(cpu);
	start = clock_ns(CLOCK_MONOTONIC);
	move(back[0], there[1], 1);
	*took = clock_ns(CLOCK_MONOTONIC) - start;
	report("ping", rounds);
	return NULL;
}

static void *pong(void *unused)
{
	(void)unused;
	if (cpu >= 0)
		run_on(cpu);
	move(there[0], back[1], 0);
	report("pong", rounds);
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 2 && !strcmp(argv[2], "threads"), ok = 1;
	char extra[128];

	rounds = argument(argc, argv, 1, 1000);
	cpu = argument(argc, argv, 3, -1);
	reports_init();
	took = mmap(NULL, sizeof(*took), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (took == MAP_FAILED || pipe(there) || pipe(back))
		die("pipe");
	if (threads) {
		pthread_t a, b;

		if (pthread_create(&a, NULL, ping, NULL) || pthread_create(&b, NULL, pong, NULL))
			die("pthread_create");
		pthread_join(a, NULL);
		pthread_join(b, NULL);
	} else {
		for (int i = 0; i < 2; i++) {
			if (fork() == 0) {
				(i ? pong : ping)(NULL);
				_exit(0);
			}
		}
		ok = wait_all();
	}
	snprintf(extra, sizeof(extra), "\"rounds\": %ld, \"round_ns\": %.1f", rounds,
		 (double)*took / rounds);
	print_reports("pingpong", extra);
	return !ok;
}
