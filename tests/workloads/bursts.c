// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// bursts N US FILE: on each CPU a process that hits the tracepoint task_prctl_unknown (Linux 6.14)
// N times, pauses so many microseconds, and so on until FILE exists. The hits of a process are
// numbered; it reports how many there were.
#include "oracle.h"
#include <sys/prctl.h>

#define UNKNOWN_OPTION 0x4b4c4f47

static void bursts(long n, long us, const char *file, int cpu)
{
	long number = 0;

	run_on(cpu);
	while (access(file, F_OK)) {
		for (long i = 0; i < n; i++)
			prctl(UNKNOWN_OPTION, number++, 0, 0, 0);
		usleep(us);
	}
	report("bursts", number);
}

int main(int argc, char **argv)
{
	long n = argument(argc, argv, 1, 997), us = argument(argc, argv, 2, 1000);
	int cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (argc != 4) {
		fprintf(stderr, "bursts: N US FILE\n");
		return 1;
	}
	reports_init();
	for (int i = 0; i < cpus; i++) {
		if (fork() == 0) {
			bursts(n, us, argv[3], i);
			_exit(0);
		}
	}
	if (!wait_all())
		return 1;
	print_reports("bursts", "");
	return 0;
}
