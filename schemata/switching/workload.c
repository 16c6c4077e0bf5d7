// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// ring N SECONDS   N processes on one CPU pass a byte around over pipes
// yield N SECONDS  N processes on one CPU yield to one another
//
// They use the first CPU that they may use, and end by themselves.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MANY 64

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void use_one_cpu(void)
{
	cpu_set_t all, one;
	int cpu = 0;

	sched_getaffinity(0, sizeof(all), &all);
	while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

int main(int argc, char **argv)
{
	int ring = argc == 4 && !strcmp(argv[1], "ring"), n = argc == 4 ? atoi(argv[2]) : 0,
	    pipes[MANY][2];
	double until = now() + (argc == 4 ? atof(argv[3]) : 0);
	char byte = 0;

	if (n < 1 || n > MANY || (!ring && strcmp(argv[1], "yield")))
		return fprintf(stderr, "workload: ring|yield 1..%d SECONDS\n", MANY), 2;
	use_one_cpu();
	for (int i = 0; ring && i < n; i++)
		if (pipe(pipes[i]))
			return perror("pipe"), 1;
	for (int i = 0; i < n; i++) {
		if (fork())
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (ring && i == 0 && write(pipes[0][1], &byte, 1) != 1)
			_exit(1);
		// The byte says that the time is over to those who read the clock too early, so
		// that none waits for it.
		while (!byte) {
			if (!ring)
				sched_yield();
			else if (read(pipes[i][0], &byte, 1) != 1)
				_exit(1);
			byte |= now() > until;
			if (ring && write(pipes[(i + 1) % n][1], &byte, 1) != 1)
				_exit(1);
		}
		_exit(0);
	}
	while (wait(NULL) > 0)
		;
	return 0;
}
