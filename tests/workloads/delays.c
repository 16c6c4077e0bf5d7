// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// delays N WHAT NS: N times, a delay of NS nanoseconds between a hit of the tracepoint
// task_prctl_unknown (Linux 6.14) and one of itimer_state. WHAT is spin, sleep, or getppid: no
// delay, but a system call that is easy to count. Prints the clock before and after each of the two
// calls: the hits are in between.
#include "oracle.h"
#include <sys/prctl.h>
#include <sys/time.h>

#define UNKNOWN_OPTION 0x4b4c4f47
#define MOST 20000

// The clock before and after the first call, and before and after the second.
static unsigned long long times[MOST][4];

static void delay(const char *what, long ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };
	unsigned long long until = clock_ns(CLOCK_MONOTONIC) + ns;

	if (!strcmp(what, "sleep"))
		clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
	else if (!strcmp(what, "getppid"))
		getppid();
	else
		while (clock_ns(CLOCK_MONOTONIC) < until)
			;
}

int main(int argc, char **argv)
{
	long n = argument(argc, argv, 1, 100), ns = argument(argc, argv, 3, 10000);
	const char *what = argc > 2 ? argv[2] : "spin";
	struct itimerval none = { 0 };

	if (n < 1 || n > MOST)
		return fprintf(stderr, "delays: N must be 1 to %d\n", MOST), 1;
	for (long i = 0; i < n; i++) {
		times[i][0] = clock_ns(CLOCK_MONOTONIC);
		prctl(UNKNOWN_OPTION, i, 0, 0, 0);
		times[i][1] = clock_ns(CLOCK_MONOTONIC);
		delay(what, ns);
		times[i][2] = clock_ns(CLOCK_MONOTONIC);
		setitimer(ITIMER_PROF, &none, NULL);
		times[i][3] = clock_ns(CLOCK_MONOTONIC);
	}
	printf("{\"pid\": %d, \"times\": [", getpid());
	for (long i = 0; i < n; i++)
		printf("%s[%llu, %llu, %llu, %llu]", i ? ",\n" : "", times[i][0], times[i][1],
		       times[i][2], times[i][3]);
	printf("]}\n");
	return 0;
}
