/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Three threads: relay TIMES. The first one asks the second one over a pipe, which asks the third
 * one, which answers when it has seen that both wait. So each wait of the first one is ended by the
 * second one, whose own was ended by the third one.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

/* To the thread with this number, and back from it. */
static int to[3][2], back[3][2];
static volatile int tids[3];

static void gives(int pipe[2])
{
	if (write(pipe[1], "x", 1) != 1)
		_exit(1);
}

static void takes(int pipe[2])
{
	char byte;

	if (read(pipe[0], &byte, 1) != 1)
		_exit(1);
}

/* Whether the thread sleeps in read(). */
static int is_waiting(int tid)
{
	char path[64];
	long number = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	file = fopen(path, "r");
	if (file) {
		if (fscanf(file, "%ld", &number) != 1)
			number = -1;
		fclose(file);
	}
	return number == 0;
}

static void begins(int number, const char *name)
{
	prctl(PR_SET_NAME, name);
	tids[number] = gettid();
}

static void *second(void *times)
{
	begins(1, "relay-2");
	for (long n = 0; n < (long)times; n++) {
		takes(to[1]);
		gives(to[2]);
		takes(back[2]);
		gives(back[1]);
	}
	return NULL;
}

static void *third(void *times)
{
	begins(2, "relay-3");
	for (long n = 0; n < (long)times; n++) {
		takes(to[2]);
		while (!is_waiting(tids[0]) || !is_waiting(tids[1]))
			usleep(1000);
		gives(back[2]);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long times = argc > 1 ? atol(argv[1]) : 0;
	pthread_t threads[2];

	begins(0, "relay-1");
	for (int n = 1; n < 3; n++)
		if (pipe(to[n]) || pipe(back[n]))
			return 1;
	if (pthread_create(&threads[0], NULL, second, (void *)times) ||
	    pthread_create(&threads[1], NULL, third, (void *)times))
		return 1;
	for (long n = 0; n < times; n++) {
		gives(to[1]);
		takes(back[1]);
	}
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return 0;
}
