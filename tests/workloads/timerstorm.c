// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// timerstorm MS PERIOD_US CPU [kernel]: a timer that expires every PERIOD_US on one CPU, for MS
// milliseconds. A thread with a priority above all others there sets it again after each sleep.
// With `kernel` it is a software counter of the kernel, which sets itself again and leaves a sample
// each time, so that the number of times is known.
#include "oracle.h"
#include <linux/perf_event.h>
#include <sys/ioctl.h>

#define SAMPLES_BYTES (1ul << 20) // more than are needed: they are read only at the end

static long long sleep_often(unsigned long long until, long period_ns)
{
	struct sched_param fifo = { .sched_priority = 50 };
	long long n = 0;

	if (sched_setscheduler(0, SCHED_FIFO, &fifo))
		die("SCHED_FIFO");
	for (; clock_ns(CLOCK_MONOTONIC) < until; n++)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec) { 0, period_ns }, NULL);
	return n;
}

static long long samples_in(const struct perf_event_mmap_page *about)
{
	const char *record = (const char *)about + about->data_offset,
		   *end = record + about->data_head;
	long long n = 0;

	for (; record < end; record += ((const struct perf_event_header *)record)->size)
		n += ((const struct perf_event_header *)record)->type == PERF_RECORD_SAMPLE;
	return n;
}

static long long count_often(int cpu, unsigned long long until, long period_ns)
{
	struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
				       .size = sizeof(attr),
				       .config = PERF_COUNT_SW_CPU_CLOCK};
	struct perf_event_mmap_page *about;
	int fd;

	attr.sample_period = period_ns;
	fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, 0);
	if (fd < 0)
		die("perf_event_open");
	about = mmap(NULL, getpagesize() + SAMPLES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		     0);
	if (about == MAP_FAILED)
		die("mmap");
	while (clock_ns(CLOCK_MONOTONIC) < until)
		; // an idle CPU leaves no samples
	ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	return samples_in(about);
}

int main(int argc, char **argv)
{
	unsigned long long began = clock_ns(CLOCK_MONOTONIC),
			   until = began + argument(argc, argv, 1, 1000) * 1000000;
	long period_ns = argument(argc, argv, 2, 50) * 1000;
	int cpu = argument(argc, argv, 3, 0);
	long long n;
	char extra[128];

	reports_init();
	run_on(cpu);
	syscall(SYS_prctl, 29 /* PR_SET_TIMERSLACK */, 1, 0, 0, 0);
	n = argc > 4 ? count_often(cpu, until, period_ns) : sleep_often(until, period_ns);
	sprintf(extra, "\"began_ns\": %llu, \"ended_ns\": %llu, \"timers\": %lld", began,
		clock_ns(CLOCK_MONOTONIC), n);
	report("storm", n);
	print_reports("timerstorm", extra);
	return 0;
}
