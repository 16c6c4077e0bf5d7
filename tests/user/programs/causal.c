// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// causal PAIRS CPU_OF_WRITER CPU_OF_READER: a process writes to an eventfd and waits for the answer
// at another; a second process reads and answers. Prints the ids of both processes. Not pipes,
// because their mutexes cause additional wake-ups.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "causal.klogger.h"

static void stay_on(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		exit(1);
}

static void answer(unsigned pairs, int from, int to)
{
	eventfd_t word;
	unsigned n;

	for (n = 0; n < pairs; n++) {
		if (eventfd_read(from, &word))
			exit(1);
		klogger(AFTER, n);
		if (eventfd_write(to, 1))
			exit(1);
	}
}

int main(int argc, char **argv)
{
	unsigned pairs = argc > 3 ? (unsigned)atoi(argv[1]) : 1, n;
	int there = eventfd(0, 0), back = eventfd(0, 0);
	eventfd_t word;
	pid_t reader;

	if (argc < 4 || there < 0 || back < 0)
		return 1;
	reader = fork();
	if (!reader) {
		stay_on(atoi(argv[3]));
		answer(pairs, there, back);
		return 0;
	}
	stay_on(atoi(argv[2]));
	for (n = 0; n < pairs; n++) {
		klogger(BEFORE, n);
		if (eventfd_write(there, 1))
			return 1;
		klogger(WRITTEN, n);
		if (eventfd_read(back, &word))
			return 1;
	}
	waitpid(reader, NULL, 0);
	printf("{\"writer\": %d, \"reader\": %d}\n", getpid(), reader);
	return 0;
}
