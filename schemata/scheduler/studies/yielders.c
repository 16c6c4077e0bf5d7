// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// yielders N SECONDS CPU: N processes call sched_yield all the time, on one CPU, or on all if CPU
// is -1.
#include "study.h"

int main(int argc, char **argv)
{
	int n = argc == 4 ? atoi(argv[1]) : 0;
	long long until = now() + (long long)((argc == 4 ? atof(argv[2]) : 0) * SECOND), yields = 0;

	if (n < 1)
		return fprintf(stderr, "yielders: N SECONDS CPU\n"), 2;
	run_on(atoi(argv[3]));
	for (int i = 0; i < n; i++) {
		if (child("yielder"))
			continue;
		for (; now() < until; yields++)
			sched_yield();
		report("yielder", yields);
		_exit(0);
	}
	return !wait_all();
}
