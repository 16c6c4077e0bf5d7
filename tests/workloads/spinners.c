// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// spinners N MS [CPU]: N threads compute for MS milliseconds on one CPU, so that they compete for
// it.
#include "oracle.h"
#include <pthread.h>

static unsigned long long until;
static int cpu;

static void *spin(void *unused)
{
	long long turns = 0;

	(void)unused;
	run_on(cpu);
	while (clock_ns(CLOCK_MONOTONIC) < until)
		turns++;
	report("spinner", turns);
	return NULL;
}

int main(int argc, char **argv)
{
	long n = argument(argc, argv, 1, 3);
	pthread_t threads[64];

	if (n > 64)
		n = 64;
	cpu = argument(argc, argv, 3, 0);
	reports_init();
	until = clock_ns(CLOCK_MONOTONIC) + argument(argc, argv, 2, 500) * 1000000;
	for (long i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, spin, NULL))
			die("pthread_create");
	for (long i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	print_reports("spinners", "");
	return 0;
}
