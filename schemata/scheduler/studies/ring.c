// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// ring N processes|threads KIB SECONDS CPU: N on one CPU pass a token round over pipes; who has it
// adds up so many KiB first. Reports how often the token was passed on, between two times, and what
// passing costs alone: one thread, one pipe.
#include "study.h"
#include <pthread.h>

#define MANY 128

static int pipes[MANY][2], n;
static size_t words;
static long long until;
static volatile long sum;

static void touch(long *memory)
{
	for (size_t i = 0; i < words; i++)
		sum += memory[i]++;
}

static long *new_memory(void)
{
	long *memory = calloc(words ? words : 1, sizeof(long));

	if (!memory)
		die("calloc");
	touch(memory);
	return memory;
}

static void *take_part(void *of)
{
	int me = of - (void *)0;
	long *memory = new_memory();
	long long passed = 0, begin = now();
	char token = 0, line[160];

	// The first one says when it is over, by a token that all pass on once.
	if (me == 0 && write(pipes[1 % n][1], &token, 1) != 1)
		die("write");
	while (read(pipes[me][0], &token, 1) == 1) {
		int over = token;

		touch(memory);
		passed++;
		if (me == 0)
			token = now() > until;
		if (me == 0 && over)
			break;
		if (write(pipes[(me + 1) % n][1], &token, 1) != 1)
			die("write");
		if (me != 0 && over)
			break;
	}
	if (me == 0) {
		snprintf(line, sizeof(line),
			 "{\"role\": \"ring\", \"rounds\": %lld, \"begin_ns\": %lld, \"end_ns\": "
			 "%lld}\n",
			 passed, begin, now());
		say(line);
	}
	report("member", passed);
	return NULL;
}

// What a pass costs without a switch, in CPU time.
static void alone(void)
{
	long *memory = new_memory();
	long long begin = clock_ns(CLOCK_THREAD_CPUTIME_ID), end = now() + 100 * MS, times = 0;
	char token = 0, line[128];
	int own[2];

	if (pipe(own))
		die("pipe");
	for (; now() < end; times++) {
		if (write(own[1], &token, 1) != 1 || read(own[0], &token, 1) != 1)
			die("pipe");
		touch(memory);
	}
	snprintf(line, sizeof(line), "{\"role\": \"alone\", \"ns\": %.1f}\n",
		 (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / times);
	say(line);
}

int main(int argc, char **argv)
{
	pthread_t threads[MANY];

	n = argc == 6 ? atoi(argv[1]) : 0;
	if (n < 2 || n > MANY)
		return fprintf(stderr, "ring: N processes|threads KIB SECONDS CPU\n"), 2;
	words = atol(argv[3]) * 1024 / sizeof(long);
	run_on(atoi(argv[5]));
	alone();
	for (int i = 0; i < n; i++)
		if (pipe(pipes[i]))
			die("pipe");
	until = now() + (long long)(atof(argv[4]) * SECOND);
	if (!strcmp(argv[2], "threads")) {
		for (long i = 0; i < n; i++)
			if (pthread_create(&threads[i], NULL, take_part, (void *)i))
				die("pthread_create");
		for (int i = 0; i < n; i++)
			pthread_join(threads[i], NULL);
		return 0;
	}
	for (long i = 0; i < n; i++)
		if (child("ring") == 0)
			return take_part((void *)i), 0;
	return !wait_all();
}
