// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// loop CPU PATH: hits places in blocks, as it is told. Each line of its input is `KIND BLOCKS
// HITS`; it answers with one line: nanoseconds for each hit, of each block, by the clock.
//   unasked   getppid()
//   openat    openat() of PATH, and close()
//   function  place_of_bench(), a function of its own that returns the sum of its arguments
//   profile   spins for so many periods of 999 Hz, in nested calls; of that, only the time counts
//             in which something else ran
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline, used)) long place_of_bench(long number, long twice)
{
	__asm__ volatile("" : "+r"(number));
	return number + twice;
}

static long long now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1000000000ll + at.tv_nsec;
}

static void open_one(const char *path)
{
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY, 0);

	if (fd >= 0)
		syscall(SYS_close, fd);
}

static volatile long sum;

static void block(const char *kind, long hits, const char *path)
{
	for (long i = 0; i < hits; i++) {
		if (!strcmp(kind, "unasked"))
			syscall(SYS_getppid);
		else if (!strcmp(kind, "openat"))
			open_one(path);
		else
			sum += place_of_bench(i, 2 * i);
	}
}

/* The time that was taken from a loop which does nothing but read the clock. */
static long long taken(long long duration)
{
	long long begin = now(), last = begin, gaps = 0;

	while (last - begin < duration) {
		long long time = now();

		if (time - last > 500)
			gaps += time - last;
		last = time;
	}
	return gaps;
}

__attribute__((noinline)) static long long nested(int depth, long long duration)
{
	long long gaps = depth ? nested(depth - 1, duration) : taken(duration);

	/* No call at the end, which would replace this one. */
	sum++;
	return gaps;
}

static long long ns_of(const char *kind, long hits, const char *path)
{
	long long begin = now();

	if (!strcmp(kind, "profile"))
		return nested(15, hits * (1000000000ll / 999));
	block(kind, hits, path);
	return now() - begin;
}

int main(int argc, char **argv)
{
	char kind[16];
	long blocks, hits;
	cpu_set_t one;

	if (argc != 3)
		return 2;
	CPU_ZERO(&one);
	CPU_SET(atoi(argv[1]), &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		return 1;
	while (scanf("%15s %ld %ld", kind, &blocks, &hits) == 3) {
		for (long i = 0; i < blocks; i++) {
			printf("%.1f ", (double)ns_of(kind, hits, argv[2]) / hits);
		}
		printf("\n");
		fflush(stdout);
	}
	return 0;
}
