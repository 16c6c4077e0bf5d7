// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// lone_hog MS HZ US: one thread computes for MS milliseconds on CPU 0. A daemon, named beacon,
// wakes there HZ times a second and computes for US microseconds. Both are real-time threads, so
// that few other threads run in between. The count of "waited" is how long, according to the
// kernel, the beacon waited for the CPU, in ns.
#include "oracle.h"
#include <sys/prctl.h>

static void set_priority(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	if (sched_setscheduler(0, SCHED_FIFO, &param))
		die("sched_setscheduler");
}

static void become(const char *name, int priority)
{
	prctl(PR_SET_NAME, name);
	// First, because on the hog's CPU a thread without it gets no time.
	set_priority(priority);
	run_on(0);
}

static long long spin_until(unsigned long long end)
{
	long long turns = 0;

	while (clock_ns(CLOCK_MONOTONIC) < end)
		turns++;
	return turns;
}

// The kernel's count of the time in which this thread was runnable and did not run.
static long long waited_ns(void)
{
	FILE *f = fopen("/proc/thread-self/schedstat", "r");
	long long ns;

	if (!f || fscanf(f, "%*u %lld", &ns) != 1)
		die("/proc/thread-self/schedstat");
	fclose(f);
	return ns;
}

static void beacon(unsigned long long end, long hz, long us)
{
	struct timespec pause = { .tv_sec = 1 / hz, .tv_nsec = 1000000000 / hz % 1000000000 };
	long long wakes = 0, before;

	become("beacon", 20);
	before = waited_ns();
	while (clock_ns(CLOCK_MONOTONIC) < end) {
		nanosleep(&pause, NULL);
		wakes++;
		spin_until(clock_ns(CLOCK_MONOTONIC) + us * 1000);
	}
	report("waited", waited_ns() - before);
	report("beacon", wakes);
	_exit(0);
}

int main(int argc, char **argv)
{
	unsigned long long end =
		clock_ns(CLOCK_MONOTONIC) + argument(argc, argv, 1, 3000) * 1000000ull;
	pid_t hog;

	reports_init();
	// Not on the hog's CPU, where this thread would wait for it.
	run_on(sysconf(_SC_NPROCESSORS_ONLN) - 1);
	// So that its children start without waiting.
	set_priority(5);
	hog = fork();
	if (hog == 0) {
		become("hog", 10);
		report("hog", spin_until(end));
		_exit(0);
	}
	if (hog > 0 && fork() == 0)
		beacon(end, argument(argc, argv, 2, 5), argument(argc, argv, 3, 200));
	if (!wait_all())
		return 1;
	print_reports("lone_hog", "");
	return 0;
}
