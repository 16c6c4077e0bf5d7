// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Programs whose time goes where it is said: `why calls CALLS PAGES`, `why lock TIMES`,
// `why poll TIMES`, `why spin MS`, `why compete MS`. Each prints what it knows of itself.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int ends[2], times;
static volatile int done;
static pthread_barrier_t begin;

static void sleep_ms(long ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&time, NULL);
}

static void calls(int count, int pages)
{
	char *memory = mmap(NULL, pages * 4096L, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	madvise(memory, pages * 4096L, MADV_NOHUGEPAGE);
	for (int i = 0; i < count; i++)
		syscall(SYS_getppid);
	for (int i = 0; i < pages; i++)
		memory[i * 4096L] = 1;
	printf("{\"memory\": %lu}\n", (unsigned long)memory);
}

/* Holds the lock while it writes to a pipe, which is full until it is read. */
static void *holds(void *unused)
{
	static char page[65536];

	prctl(PR_SET_NAME, "holder");
	pthread_barrier_wait(&begin);
	for (int i = 0; i < times; i++) {
		pthread_mutex_lock(&lock);
		if (write(ends[1], page, sizeof(page)) < 0)
			exit(1);
		pthread_mutex_unlock(&lock);
		sched_yield();
	}
	done = 1;
	return unused;
}

static void *waits(void *unused)
{
	prctl(PR_SET_NAME, "waiter");
	pthread_barrier_wait(&begin);
	while (!done) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	}
	return unused;
}

static void reads(void)
{
	static char page[65536];

	prctl(PR_SET_NAME, "reader");
	close(ends[1]);
	do {
		sleep_ms(5);
	} while (read(ends[0], page, sizeof(page)) > 0);
	exit(0);
}

static void locks(void)
{
	pthread_t one, other;

	if (pipe(ends))
		exit(1);
	if (!fork())
		reads();
	pthread_barrier_init(&begin, NULL, 2);
	pthread_create(&one, NULL, holds, NULL);
	pthread_create(&other, NULL, waits, NULL);
	pthread_join(one, NULL);
	pthread_join(other, NULL);
	close(ends[1]);
	wait(NULL);
}

/* A call whose time is over before it has left its CPU does not wait. */
static long switches(void)
{
	struct rusage used;

	getrusage(RUSAGE_THREAD, &used);
	return used.ru_nvcsw;
}

static void polls(void)
{
	struct pollfd none;
	long before;

	if (pipe(ends))
		exit(1);
	none = (struct pollfd){ ends[0], POLLIN, 0 };
	before = switches();
	for (int i = 0; i < times; i++)
		poll(&none, 1, 3);
	printf("{\"waits\": %ld}\n", switches() - before);
}

/* So long on a CPU, by the kernel's account of the thread. */
static void spins(long ms)
{
	struct timespec now;

	do {
		for (volatile int i = 0; i < 100000; i++)
			;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	} while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < ms);
	printf("{\"ran\": %ld}\n", now.tv_sec * 1000000000L + now.tv_nsec);
}

/* What the kernel has counted: ns on a CPU and ns in a queue, since the thread was made. */
static void schedstat(unsigned long *ran, unsigned long *queued)
{
	FILE *file = fopen("/proc/thread-self/schedstat", "r");

	if (!file || fscanf(file, "%lu %lu", ran, queued) != 2)
		exit(1);
	fclose(file);
}

/* Two processes want one CPU. */
static void competes(long ms)
{
	unsigned long ran, queued, before;
	struct timespec now;
	cpu_set_t one;
	int child, cpu;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		exit(1);
	schedstat(&ran, &before);
	child = fork();
	before = child ? before : 0;
	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < ms);
	schedstat(&ran, &queued);
	/* The kernel's own word. */
	sched_getaffinity(0, sizeof(one), &one);
	for (cpu = 0; !CPU_ISSET(cpu, &one); cpu++)
		;
	printf("{\"pid\": %d, \"queued\": %lu, \"before\": %lu, \"cpu\": %d}\n", getpid(), queued,
	       before, cpu);
	fflush(stdout);
	if (!child)
		exit(0);
	wait(NULL);
}

int main(int count, char **words)
{
	int number = count > 2 ? atoi(words[2]) : 0;

	times = number;
	if (count < 3)
		return 2;
	if (!strcmp(words[1], "calls"))
		calls(number, atoi(words[3]));
	else if (!strcmp(words[1], "lock"))
		locks();
	else if (!strcmp(words[1], "poll"))
		polls();
	else if (!strcmp(words[1], "compete"))
		competes(number);
	else
		spins(number);
	return 7;
}
