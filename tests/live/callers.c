/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Five functions that call each other, and then a library: callers TIMES. In TIMES rounds a thread
 * reads a byte, another one waits for a lock until it is seen to wait, and qsort() calls back a
 * function that reads a byte. With a second argument: qsort() calls back a function with much on
 * the stack, and main() and a thread recurse far before they read a byte.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))
#define AFTER __asm__ volatile("" ::: "memory")

static pthread_mutex_t audit_lock = PTHREAD_MUTEX_INITIALIZER;
static int ends[2];
static volatile int waiter;

static inline __attribute__((always_inline)) void get(void)
{
	char byte;

	if (write(ends[1], "x", 1) != 1 || read(ends[0], &byte, 1) != 1)
		_exit(1);
}

KEEP int compares(const void *a, const void *b)
{
	get();
	AFTER;
	return *(const int *)a - *(const int *)b;
}

KEEP void fifth(int way)
{
	int numbers[2] = {2, 1};

	if (way == 0)
		get();
	else if (way == 1)
		pthread_mutex_lock(&audit_lock);
	else
		qsort(numbers, 2, sizeof(int), compares);
	AFTER;
}

/* Parts of the stack of several sizes, with what others have left in them. */
KEEP void fourth(int way)
{
	volatile char room[40];

	room[1] = way;
	fifth(room[1]);
	AFTER;
	room[2] = room[1];
}
KEEP void third(int way) { fourth(way); AFTER; }
KEEP void second(int way)
{
	volatile char room[104];

	room[1] = way;
	third(room[1]);
	AFTER;
	room[2] = room[1];
}
KEEP void first(int way) { second(way); AFTER; }

static void *waits(void *unused)
{
	waiter = gettid();
	first(1);
	pthread_mutex_unlock(&audit_lock);
	return unused;
}

KEEP int compares_far(const void *a, const void *b)
{
	volatile char room[2048];

	room[1] = *(const int *)a > *(const int *)b;
	get();
	AFTER;
	return room[1];
}

KEEP void deep(int n)
{
	volatile char room[200];

	room[1] = n;
	if (n)
		deep(n - 1);
	else
		get();
	AFTER;
	room[2] = room[1];
}

static void *goes_deep(void *unused)
{
	deep(20);
	AFTER;
	return unused;
}

static int far(int times)
{
	int numbers[2] = {2, 1};
	pthread_t thread;

	for (int n = 0; n < times; n++) {
		qsort(numbers, 2, sizeof(int), compares_far);
		deep(20);
		if (pthread_create(&thread, NULL, goes_deep, NULL))
			return 1;
		pthread_join(thread, NULL);
	}
	return 0;
}

/* Whether the thread is in futex(). */
static int is_waiting(void)
{
	char path[64];
	long number = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", waiter);
	file = waiter ? fopen(path, "r") : NULL;
	if (file) {
		if (fscanf(file, "%ld", &number) != 1)
			number = -1;
		fclose(file);
	}
	return number == 202;
}

int main(int argc, char **argv)
{
	int n, times = argc > 1 ? atoi(argv[1]) : 0;
	pthread_t thread;

	if (pipe(ends))
		return 1;
	if (argc > 2)
		return far(times);
	for (n = 0; n < times; n++) {
		first(0);
		first(2);
		waiter = 0;
		pthread_mutex_lock(&audit_lock);
		if (pthread_create(&thread, NULL, waits, NULL))
			return 1;
		while (!is_waiting())
			usleep(1000);
		pthread_mutex_unlock(&audit_lock);
		pthread_join(thread, NULL);
	}
	return 0;
}
