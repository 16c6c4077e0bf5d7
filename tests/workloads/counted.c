// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// counted PAGES SLEEPS CALLS: between prctl(1000) and prctl(1001), touches so many pages of new
// memory, sleeps so many times, and calls getppid() so many times; writes to `watched` as often as
// that. Prints what the kernel has counted of it in between.
#include "oracle.h"
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* The tests find it by its name: this program is not position-independent. */
volatile unsigned long watched;

__attribute__((noinline)) void step(long n)
{
	watched = n;
}

int main(int argc, char **argv)
{
	long pages = argc > 1 ? atol(argv[1]) : 100, sleeps = argc > 2 ? atol(argv[2]) : 10,
	     calls = argc > 3 ? atol(argv[3]) : 10;
	struct timespec moment = { .tv_nsec = 100000 };
	struct rusage before, after;
	char *memory = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	madvise(memory, pages * 4096, MADV_NOHUGEPAGE);
	/* Once before, so that the functions themselves cause no faults. */
	getrusage(RUSAGE_THREAD, &after);
	nanosleep(&moment, NULL);
	prctl(999, 0, 0, 0, 0);
	getrusage(RUSAGE_THREAD, &before);
	prctl(1000, 0, 0, 0, 0);
	for (long n = 0; n < pages; n++)
		memory[n * 4096] = 1;
	for (long n = 0; n < sleeps; n++)
		nanosleep(&moment, NULL);
	for (long n = 0; n < calls; n++) {
		syscall(SYS_getppid);
		step(n);
	}
	prctl(1001, 0, 0, 0, 0);
	getrusage(RUSAGE_THREAD, &after);
	printf("{\"faults\": %ld, \"switches\": %ld}\n",
	       after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt,
	       after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw);
	return 0;
}
