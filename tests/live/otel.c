/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Threads that work on requests and publish their ids: otel VARIANT GO [HOW WORD]. Each request
 * makes one system call with its number, and another one after it. It begins when the file GO is
 * there. HOW is `load` for a library that has the variable, `after` for a child and then another
 * program that do the same after the first one, with files of their own to wait for.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPTION 0x4f54454c	/* that no kernel has */
#define THREADS 3
#define REQUESTS 101
#define WARM 0x7fff

struct record {
	uint8_t trace[16];
	uint8_t span[8];
	uint8_t valid;
	uint8_t flags;
	uint16_t size;
};

#ifdef HERE
__attribute__((visibility("default"))) __thread struct record *otel_thread_ctx_v1;
static void own(struct record *record)
{
	__atomic_store_n(&otel_thread_ctx_v1, record, __ATOMIC_RELAXED);
}
static void (*publish)(struct record *record) = own;
#else
void otel_publish(struct record *record);
#ifdef LINKED
static void (*publish)(struct record *record) = otel_publish;
#else
static void (*publish)(struct record *record);
#endif
#endif

static unsigned long variant;

static void call(unsigned long thread, unsigned long request, unsigned long inside)
{
	prctl(OPTION, variant << 48 | thread << 32 | request << 1 | inside, 0, 0, 0);
}

static void fill(struct record *record, unsigned long thread, unsigned long request)
{
	unsigned long n;

	for (n = 0; n < 16; n++)
		record->trace[n] = variant * (n + 3) + thread * 13 + request * 7 * n;
	for (n = 0; n < 8; n++)
		record->span[n] = request * (n + 1) + thread + 1;
	record->valid = 1;
}

static void *work(void *number)
{
	unsigned long thread = (unsigned long)number, request;
	struct record record = {};

	for (request = 1; request <= REQUESTS; request++) {
		fill(&record, thread, request);
		if (request % 5 == 0)
			record.valid = 2;
		/* 16 is no address of anything. */
		publish(request % 7 == 3 ? (struct record *)16 : &record);
		call(thread, request, 1);
		publish(NULL);
		call(thread, request, 0);
	}
	return NULL;
}

static void wait_for(const char *go)
{
	static const char ready[] = "ready\n";
	struct record record = {};
	int told = 0;

	fill(&record, 0, WARM);
	while (access(go, F_OK)) {
		publish(&record);
		call(0, WARM, 1);
		publish(NULL);
		if (!told++ && write(1, ready, sizeof(ready) - 1) < 0)
			return;
		usleep(2000);
	}
}

static void run(const char *go)
{
	pthread_t threads[THREADS];
	unsigned long n;

	wait_for(go);
	for (n = 0; n < THREADS; n++)
		pthread_create(&threads[n], NULL, work, (void *)n);
	for (n = 0; n < THREADS; n++)
		pthread_join(threads[n], NULL);
}

int main(int argc, char **argv)
{
	const char *how = argc > 3 ? argv[3] : "";

	variant = strtoul(argv[1], NULL, 10);
	if (!strcmp(how, "load")) {
		void *library = dlopen(argv[4], RTLD_NOW);

		publish = (void (*)(struct record *))dlsym(library, "otel_publish");
	}
	run(argv[2]);
	if (!strcmp(how, "after")) {
		char next[16], go[4096];

		variant++;
		snprintf(go, sizeof(go), "%s%lu", argv[2], variant);
		if (!fork()) {
			run(go);
			snprintf(next, sizeof(next), "%lu", variant + 1);
			return execl(argv[4], argv[4], next, argv[2], NULL);
		}
		wait(NULL);
	}
	return 0;
}
