// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// contend PROCESSES N CPU: processes that alternate on one CPU, each of which hits two tracepoints
// exactly N times, and does little else: task_prctl_unknown, by a prctl that no kernel knows, with
// the number of the hit, and task_rename; and as often calls a function of its own, contended(),
// with the number and its complement.
#include "oracle.h"
#include <sys/prctl.h>

#define UNKNOWN_OPTION 0x4b4c4f48

__attribute__((noinline, used)) void contended(long number, long inverse)
{
	__asm__ volatile("" ::"r"(number), "r"(inverse));
}

static void contend(long n, int cpu)
{
	char name[24];

	run_on(cpu);
	for (long i = 0; i < n; i++) {
		prctl(UNKNOWN_OPTION, i, 0, 0, 0);
		snprintf(name, sizeof(name), "%ld", i);
		prctl(PR_SET_NAME, name);
		contended(i, ~i);
	}
	report("contend", n);
}

int main(int argc, char **argv)
{
	long processes = argument(argc, argv, 1, 3), n = argument(argc, argv, 2, 10000),
	     cpu = argument(argc, argv, 3, 0);

	reports_init();
	for (long p = 0; p < processes; p++) {
		if (fork() == 0) {
			contend(n, cpu);
			_exit(0);
		}
	}
	if (!wait_all())
		return 1;
	print_reports("contend", "");
	return 0;
}
