// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// causal PAIRS CPU_OF_WRITER CPU_OF_READER: a process writes to a pipe and waits for the answer; another reads and
// answers. Prints the two processes' ids.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
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
	unsigned n;
	char byte;

	for (n = 0; n < pairs; n++) {
		if (read(from, &byte, 1) != 1)
			exit(1);
		klogger(AFTER, n);
		if (write(to, &byte, 1) != 1)
			exit(1);
	}
}

int main(int argc, char **argv)
{
	unsigned pairs = argc > 3 ? (unsigned)atoi(argv[1]) : 1, n;
	int there[2], back[2];
	char byte = 0;
	pid_t reader;

	if (argc < 4 || pipe(there) || pipe(back))
		return 1;
	reader = fork();
	if (!reader) {
		stay_on(atoi(argv[3]));
		answer(pairs, there[0], back[1]);
		return 0;
	}
	stay_on(atoi(argv[2]));
	for (n = 0; n < pairs; n++) {
		klogger(BEFORE, n);
		if (write(there[1], &byte, 1) != 1)
			return 1;
		klogger(WRITTEN, n);
		if (read(back[0], &byte, 1) != 1)
			return 1;
	}
	waitpid(reader, NULL, 0);
	printf("{\"writer\": %d, \"reader\": %d}\n", getpid(), reader);
	return 0;
}
