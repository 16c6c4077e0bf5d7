// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How many timer interrupts a CPU has had, and when that was read: what the programs of the studies
// of interrupts and of noise hold against the log. Define _GNU_SOURCE before anything is included.
#ifndef TIMER_INTERRUPTS_H
#define TIMER_INTERRUPTS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

// Timer interrupts of a CPU until now, by /proc/interrupts; -1 if it does not count them.
static long long timer_interrupts(int of)
{
	FILE *file = fopen("/proc/interrupts", "r");
	char *line = NULL, *at, name[24];
	size_t size = 0;
	long long found = -1;
	int column = -1, n = 0;

	if (!file)
		return -1;
	// The head names the CPUs that are online.
	snprintf(name, sizeof(name), "CPU%d", of);
	if (getline(&line, &size, file) > 0)
		for (at = strtok(line, " \n"); at; at = strtok(NULL, " \n"), n++)
			if (!strcmp(at, name))
				column = n;
	while (column >= 0 && found < 0 && getline(&line, &size, file) > 0) {
		at = strtok(line, " \n");
		if (!at || strcmp(at, "LOC:"))
			continue;
		for (n = 0; at && n <= column; n++)
			at = strtok(NULL, " \n");
		found = at ? atoll(at) : -1;
	}
	free(line);
	fclose(file);
	return found;
}

// Reads their number, and returns when; again if another thread had the CPU meanwhile.
static uint64_t counted_at(int of, long long *count)
{
	uint64_t when;
	int tries = 0;

	do {
		when = now();
		*count = timer_interrupts(of);
	} while (now() - when > 1000000 && ++tries < 100);
	return when;
}

#endif
