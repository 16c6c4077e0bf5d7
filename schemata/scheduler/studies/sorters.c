// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// sorters N SECONDS CPU BYTES: N copies on one CPU sort an array of so many bytes, which gets the
// same random values again after each sort. Each reports how many values it compared: the same for
// each sort, and finer than to count sorts.
#include "study.h"
#include <setjmp.h>
#include <sys/time.h>

static sigjmp_buf over;
static volatile long long compared;

static void stop(int number)
{
	siglongjmp(over, number);
}

static int compare(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	compared++;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int n = argc == 5 ? atoi(argv[1]) : 0, cpu = argc == 5 ? atoi(argv[3]) : 0;
	size_t bytes = argc == 5 ? strtoul(argv[4], NULL, 10) : 0, length = bytes / sizeof(int);
	long long until;
	int *values;

	if (n < 1 || !length)
		return fprintf(stderr, "sorters: N SECONDS CPU BYTES\n"), 2;
	run_on(cpu);
	until = now() + 100 * MS + (long long)(atof(argv[2]) * SECOND);
	for (int i = 0; i < n; i++) {
		if (child("sorter"))
			continue;
		if (!(values = malloc(bytes)))
			die("malloc");
		signal(SIGALRM, stop);
		sleep_until(until - (long long)(atof(argv[2]) * SECOND));
		setitimer(ITIMER_REAL, &(struct itimerval){ .it_value.tv_sec = atof(argv[2]),
			  .it_value.tv_usec = (long long)(atof(argv[2]) * 1e6) % 1000000 }, NULL);
		if (!sigsetjmp(over, 0)) {
			for (;;) {
				unsigned int seed = 42;

				for (size_t k = 0; k < length; k++)
					values[k] = seed = seed * 1103515245 + 12345;
				qsort(values, length, sizeof(int), compare);
			}
		}
		report("sorter", compared);
		_exit(0);
	}
	return !wait_all();
}
