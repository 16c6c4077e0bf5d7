// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Opens and closes a file as fast as it can on each CPU, and prints how many times, in all, and in
 * how many seconds.
 *
 * Usage: opens FILE SECONDS
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static long opens_on(int cpu, const char *path, double end)
{
	cpu_set_t one;
	long times = 0;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
	for (; now() < end; times += 100) {
		for (int i = 0; i < 100; i++) {
			int fd = open(path, O_RDONLY);

			if (fd < 0 || close(fd))
				exit(1);
		}
	}
	return times;
}

int main(int argc, char **argv)
{
	int cpus = sysconf(_SC_NPROCESSORS_ONLN), ends[2];
	double from = now(), end;
	long times, all = 0;

	if (argc != 3 || pipe(ends)) {
		fprintf(stderr, "usage: opens FILE SECONDS\n");
		return 2;
	}
	end = from + atof(argv[2]);
	for (int cpu = 0; cpu < cpus; cpu++) {
		if (fork() == 0) {
			times = opens_on(cpu, argv[1], end);
			exit(write(ends[1], &times, sizeof(times)) != sizeof(times));
		}
	}
	close(ends[1]);
	while (read(ends[0], &times, sizeof(times)) == sizeof(times))
		all += times;
	printf("%ld %.3f\n", all, now() - from);
	while (wait(NULL) > 0)
		;
	return 0;
}
