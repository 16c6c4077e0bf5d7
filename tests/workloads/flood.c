// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// flood N [CPU [BATCHES]]: changes its own name exactly N times, which is the cheapest tracepoint to hit that does
// little else; on CPU, or with -1 one process on each CPU at once. Prints the time of one change, for each batch.
#include "oracle.h"
#include <sys/prctl.h>

#define MAX_BATCHES 1000

static void flood(long n, int cpu, long batches, double *ns)
{
	static const char names[2][16] = { "flood-even", "flood-odd" };

	run_on(cpu);
	for (long b = 0; b < batches; b++) {
		unsigned long long start = clock_ns(CLOCK_MONOTONIC);
		long size = n * (b + 1) / batches - n * b / batches;

		for (long i = 0; i < size; i++)
			prctl(PR_SET_NAME, names[i & 1]);
		ns[b] = (double)(clock_ns(CLOCK_MONOTONIC) - start) / size;
	}
	report("flood", n);
}

int main(int argc, char **argv)
{
	static char extra[16 * MAX_BATCHES + 16] = "\"batch_ns\": [";
	long n = argument(argc, argv, 1, 100000), cpu = argument(argc, argv, 2, 0), batches = argument(argc, argv, 3, 1);
	int cpus = cpu < 0 ? sysconf(_SC_NPROCESSORS_ONLN) : 1;
	double *ns;

	if (batches > MAX_BATCHES || batches < 1 || n < batches) {
		fprintf(stderr, "flood: batches must be 1 to %d, and N no less\n", MAX_BATCHES);
		return 1;
	}
	reports_init();
	ns = mmap(NULL, sizeof(*ns) * MAX_BATCHES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ns == MAP_FAILED)
		die("mmap");
	for (int i = 0; i < cpus; i++) {
		if (fork() == 0) {
			flood(n, cpu < 0 ? i : cpu, batches, ns);
			_exit(0);
		}
	}
	if (!wait_all())
		return 1;
	for (long b = 0; b < batches; b++)
		sprintf(extra + strlen(extra), "%s%.2f", b ? ", " : "", ns[b]);
	strcat(extra, "]");
	print_reports("flood", extra);
	return 0;
}
