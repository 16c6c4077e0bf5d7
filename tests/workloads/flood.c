// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// flood N [CPU [BATCHES [rename|unknown]]]: hits a tracepoint exactly N times, and does little
// else; on CPU, or with -1 in one process on each CPU at once. rename: task_rename, by a change of
// its own name. unknown: task_prctl_unknown (Linux 6.14), by a prctl that no kernel knows. Prints
// the cost of one hit for each batch: CPU time and wall time.
#include "oracle.h"
#include <sys/prctl.h>

#define MAX_BATCHES 500
#define UNKNOWN_OPTION 0x4b4c4f47

struct batch {
	double cpu_ns, wall_ns;
};

static void hit(long n, int unknown)
{
	static const char names[2][16] = { "flood-even", "flood-odd" };

	for (long i = 0; i < n; i++) {
		if (unknown)
			prctl(UNKNOWN_OPTION, i, 0, 0, 0);
		else
			prctl(PR_SET_NAME, names[i & 1]);
	}
}

static void flood(long n, int cpu, long batches, int unknown, struct batch *list)
{
	run_on(cpu);
	for (long b = 0; b < batches; b++) {
		unsigned long long wall = clock_ns(CLOCK_MONOTONIC),
				   cpu_time = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		long size = n * (b + 1) / batches - n * b / batches;

		hit(size, unknown);
		list[b].cpu_ns = (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_time) / size;
		list[b].wall_ns = (double)(clock_ns(CLOCK_MONOTONIC) - wall) / size;
	}
	report("flood", n);
}

static void print(long batches, struct batch *list)
{
	static char extra[48 * MAX_BATCHES + 64];
	int at = sprintf(extra, "\"batches\": [");

	for (long b = 0; b < batches; b++)
		at += sprintf(extra + at, "%s{\"cpu_ns\": %.2f, \"wall_ns\": %.2f}", b ? ", " : "",
			      list[b].cpu_ns, list[b].wall_ns);
	sprintf(extra + at, "]");
	print_reports("flood", extra);
}

int main(int argc, char **argv)
{
	long n = argument(argc, argv, 1, 100000), cpu = argument(argc, argv, 2, 0),
	     batches = argument(argc, argv, 3, 1);
	int cpus = cpu < 0 ? sysconf(_SC_NPROCESSORS_ONLN) : 1,
	    unknown = argc > 4 && !strcmp(argv[4], "unknown");
	struct batch *list;

	if (batches > MAX_BATCHES || batches < 1 || n < batches) {
		fprintf(stderr, "flood: batches must be 1 to %d, and N no less\n", MAX_BATCHES);
		return 1;
	}
	reports_init();
	list = mmap(NULL, sizeof(*list) * MAX_BATCHES, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (list == MAP_FAILED)
		die("mmap");
	for (int i = 0; i < cpus; i++) {
		if (fork() == 0) {
			flood(n, cpu < 0 ? i : cpu, batches, unknown, list);
			_exit(0);
		}
	}
	if (!wait_all())
		return 1;
	print(batches, list);
	return 0;
}
