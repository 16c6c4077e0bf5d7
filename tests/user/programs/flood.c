// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// flood THREADS EVENTS [PAUSE]: each thread logs COUNT; after each PAUSE events it sleeps for a
// millisecond. No thread ends before all have logged, so that none reuses the slot of another.
// Prints the number of calls of each thread: {"threads": [{"thread": 0, "tid": 1, "calls": 2},
// ...]}.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "count.klogger.h"

static unsigned events, pause_after;
static int tids[4096];
static pthread_barrier_t all_done;

static void *run(void *argument)
{
	unsigned thread = (unsigned)(size_t)argument, n;

	tids[thread] = gettid();
	for (n = 0; n < events; n++) {
		klogger(COUNT, thread, n, ~((unsigned long long)thread << 32 | n));
		if (pause_after && n % pause_after == pause_after - 1)
			usleep(1000);
	}
	pthread_barrier_wait(&all_done);
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned threads = argc > 1 ? atoi(argv[1]) : 1, i;
	pthread_t handles[4096];

	events = argc > 2 ? atoi(argv[2]) : 1000;
	pause_after = argc > 3 ? atoi(argv[3]) : 0;
	pthread_barrier_init(&all_done, NULL, threads);
	for (i = 0; i < threads; i++)
		if (pthread_create(&handles[i], NULL, run, (void *)(size_t)i))
			return 1;
	for (i = 0; i < threads; i++)
		pthread_join(handles[i], NULL);
	printf("{\"pid\": %d, \"threads\": [", getpid());
	for (i = 0; i < threads; i++)
		printf("%s{\"thread\": %u, \"tid\": %d, \"calls\": %u}", i ? ", " : "", i, tids[i],
		       events);
	printf("]}\n");
	return 0;
}
