// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Arms without a tracer: the loop itself, the clock, the least that a log could be, and the
// kernel's marker.
#define _GNU_SOURCE
#include "cost.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define SIZE (1u << 20)

static __thread char buffer[SIZE + 32];
static __thread unsigned position;

static inline void keep(unsigned long long value)
{
	__asm__ volatile("" : : "r"(value));
}

/* A time and two ints, in a buffer that begins again. */
static inline void store(int a, int b)
{
	struct record {
		unsigned long long time;
		int a, b;
	} *record = (struct record *)&buffer[position & (SIZE - 1)];
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	record->time = (unsigned long long)ts.tv_sec * 1000000000u + (unsigned long long)ts.tv_nsec;
	record->a = a;
	record->b = b;
	position += sizeof(*record);
}

static int marker = -1;

static inline void mark(int a, int b)
{
	char text[32];
	int length = snprintf(text, sizeof(text), "%d %d", a, b);

	if (marker < 0)
		marker = open(getenv("TRACE_MARKER"), O_WRONLY | O_CLOEXEC);
	if (write(marker, text, (size_t)length) != length)
		abort();
}

LOOP(empty, )
LOOP(rdtsc, keep(__rdtsc()))
LOOP(clock_store, store((int)i, 7))
LOOP(trace_marker, mark((int)i, 7))

const struct arm arms[] = {{"empty", empty},
			   {"rdtsc", rdtsc},
			   {"clock_store", clock_store},
			   {"trace_marker", trace_marker},
			   {0, 0}};
