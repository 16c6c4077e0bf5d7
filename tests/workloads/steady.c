// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// steady N RATE [CPU]: hits the tracepoint task_rename N times on CPU, by changes of its own name,
// evenly, RATE of them in a second.
#include "oracle.h"
#include <sys/prctl.h>

int main(int argc, char **argv)
{
	static const char names[2][16] = { "steady-even", "steady-odd" };
	long n = argument(argc, argv, 1, 1000), rate = argument(argc, argv, 2, 1000);
	unsigned long long begin;

	run_on(argument(argc, argv, 3, 0));
	begin = clock_ns(CLOCK_MONOTONIC);
	for (long i = 0; i < n; i++) {
		unsigned long long due = begin + i * 1000000000ull / rate;
		struct timespec t = { due / 1000000000, due % 1000000000 };

		// Many hits at once, if they are more than there are timer interrupts.
		if (clock_ns(CLOCK_MONOTONIC) < due)
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		prctl(PR_SET_NAME, names[i & 1]);
	}
	printf("{\"hits\": %ld}\n", n);
	return 0;
}
