// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Loads whose lock is known.
 *
 * Usage: workload futex|pipe|mmap|file|held THREADS SECONDS
 *
 *   futex  FUTEX_WAIT on one private address, for a value that it does not have: the spin lock of
 *          one futex bucket. A FUTEX_WAKE would not do: the kernel sees that no thread waits, and
 *          does not take the lock
 *   pipe   one byte into one pipe, and out of it again: the pipe's mutex
 *   mmap   map, touch, unmap in one address space: the mmap lock
 *   file   large writes to one file: the inode's lock
 *   held   one thread holds the mmap lock long, by mapping and populating much; the others map a
 *          page now and then
 *
 * Prints, as one line, how often each thread went round: "rounds 123 456 ...".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 256
#define HELD_BYTES (48ul << 20)
#define WRITE_BYTES (1 << 20)

struct worker {
	pthread_t thread;
	int number;
	long rounds;
};

static struct worker workers[THREADS_MAX];
static void (*round_of)(struct worker *worker);
static double seconds;
static struct timespec began;
static int word;
static int ends[2];
static int file;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int is_over(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec - began.tv_sec + (now.tv_nsec - began.tv_nsec) / 1e9 >= seconds;
}

static void round_futex(struct worker *worker)
{
	(void)worker;
	for (int i = 0; i < 100; i++)
		syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
}

/*
 * A byte for each thread stands in the pipe at the start, so that no write blocks and few reads do.
 */
static void round_pipe(struct worker *worker)
{
	char byte;

	(void)worker;
	for (int i = 0; i < 20; i++)
		if (read(ends[0], &byte, 1) != 1 || write(ends[1], &byte, 1) != 1)
			fail("pipe");
}

static char *map(size_t bytes, int flags)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags,
			-1, 0);

	if (at == MAP_FAILED)
		fail("mmap");
	return at;
}

static void round_mmap(struct worker *worker)
{
	(void)worker;
	for (int i = 0; i < 20; i++) {
		char *at = map(4 * 4096, 0);

		for (int page = 0; page < 4; page++)
			at[page * 4096] = 1;
		munmap(at, 4 * 4096);
	}
}

static void round_file(struct worker *worker)
{
	static char zeros[WRITE_BYTES];

	(void)worker;
	if (pwrite(file, zeros, sizeof(zeros), 0) != sizeof(zeros))
		fail("write");
}

/*
 * The kernel holds the lock for reading while it populates; threads that map wait until it
 * has ended.
 */
static void round_held(struct worker *worker)
{
	if (worker->number == 0) {
		char *at = map(HELD_BYTES, 0);

		madvise(at, HELD_BYTES, MADV_NOHUGEPAGE);
		madvise(at, HELD_BYTES, MADV_POPULATE_WRITE);
		munmap(at, HELD_BYTES);
	} else {
		munmap(map(4096, 0), 4096);
		usleep(1000);
	}
}

/* In turn over the CPUs: threads that share one do not fight. */
static void bind_to_cpu(int number)
{
	cpu_set_t allowed, mine;
	int nth, cpu = -1;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return;
	for (nth = number % CPU_COUNT(&allowed); nth >= 0; nth--)
		while (!CPU_ISSET(++cpu, &allowed))
			;
	CPU_ZERO(&mine);
	CPU_SET(cpu, &mine);
	sched_setaffinity(0, sizeof(mine), &mine);
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	char name[16];

	snprintf(name, sizeof(name),
		 round_of == round_held && worker->number == 0 ? "holder" : "worker%d",
		 worker->number);
	prctl(PR_SET_NAME, name);
	bind_to_cpu(worker->number);
	while (!is_over()) {
		round_of(worker);
		worker->rounds++;
	}
	return NULL;
}

static void prepare(const char *load, int threads)
{
	if (!strcmp(load, "futex")) {
		round_of = round_futex;
	} else if (!strcmp(load, "pipe")) {
		round_of = round_pipe;
		if (pipe(ends))
			fail("pipe");
		for (int i = 0; i < threads; i++)
			if (write(ends[1], "x", 1) != 1)
				fail("pipe");
	} else if (!strcmp(load, "mmap")) {
		round_of = round_mmap;
	} else if (!strcmp(load, "file")) {
		char name[] = "locking-XXXXXX";

		round_of = round_file;
		file = mkstemp(name);
		if (file < 0)
			fail(name);
		unlink(name);
	} else if (!strcmp(load, "held")) {
		round_of = round_held;
	} else {
		fprintf(stderr, "workload: no load '%s'\n", load);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	int threads = argc == 4 ? atoi(argv[2]) : 0;

	if (threads < 1 || threads > THREADS_MAX) {
		fprintf(stderr, "usage: workload futex|pipe|mmap|file|held THREADS SECONDS\n");
		return 2;
	}
	seconds = atof(argv[3]);
	clock_gettime(CLOCK_MONOTONIC, &began);
	prepare(argv[1], threads);
	for (int i = 0; i < threads; i++) {
		workers[i].number = i;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			fail("pthread_create");
	}
	printf("rounds");
	for (int i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		printf(" %ld", workers[i].rounds);
	}
	printf("\n");
	return 0;
}
