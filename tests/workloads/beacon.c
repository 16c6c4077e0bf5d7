// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// beacon MS PERIOD_MS CPU: a hog and a daemon on one CPU; the daemon wakes every PERIOD_MS, and
// works for 13 µs. Both have real-time priority, the daemon the higher one, so that few other
// threads take the CPU from the hog.
#include "oracle.h"
#include <pthread.h>
#include <sys/prctl.h>

#define MS 1000000ull

static unsigned long long until, period;
static int cpu;

static void be(const char *name, int priority)
{
	struct sched_param param = { .sched_priority = priority };

	prctl(PR_SET_NAME, name);
	run_on(cpu);
	if (sched_setscheduler(0, SCHED_FIFO, &param))
		die("SCHED_FIFO");
}

static void *hog(void *unused)
{
	long long turns = 0;

	(void)unused;
	be("hog", 1);
	while (clock_ns(CLOCK_MONOTONIC) < until)
		turns++;
	report("hog", turns);
	return NULL;
}

static void *beacon(void *unused)
{
	unsigned long long next = clock_ns(CLOCK_MONOTONIC) + period;
	long long wakes = 0;

	(void)unused;
	be("beacon", 2);
	// The hog stops last, so that the daemon interrupts it to the end.
	for (; next < until - 50 * MS; next += period, wakes++) {
		struct timespec t = { next / 1000000000, next % 1000000000 };
		unsigned long long end;

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		for (end = clock_ns(CLOCK_MONOTONIC) + 13000; clock_ns(CLOCK_MONOTONIC) < end;)
			;
	}
	report("beacon", wakes);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];

	until = clock_ns(CLOCK_MONOTONIC) + argument(argc, argv, 1, 2000) * MS;
	period = argument(argc, argv, 2, 200) * MS;
	cpu = argument(argc, argv, 3, 0);
	reports_init();
	if (pthread_create(&threads[1], NULL, beacon, NULL) ||
	    pthread_create(&threads[0], NULL, hog, NULL))
		die("pthread_create");
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	print_reports("beacon", "");
	return 0;
}
