// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * journal SECONDS FOLDER [INFO]: in a folder, for so many seconds, at the same time
 *
 *   write     one thread that writes 64 KiB at a time to a file, through the page cache
 *   fsync     two threads, each of which writes 4 KiB to a file of its own, and calls fsync()
 *   metadata  one thread that creates, renames, chmods and unlinks files in 20 directories
 *
 * Prints of each the number of calls, and how long they took at quantiles. INFO is the journal's
 * own account: its first number, before and after.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST 2000000
#define WRITE 65536
#define FILE_BYTES (32l << 20)
#define SYNC_BYTES (1l << 20)
#define DIRECTORIES 20
#define SYNCERS 2
#define THREADS (2 + SYNCERS)
/* Between two calls, or threads wait for CPUs rather than for the file system. */
#define PAUSE_US 200

struct work {
	pthread_t thread;
	void *(*run)(void *);
	int number;
	long count, *took;
};

static char block[WRITE];
static long until;

static void check(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "journal: %s: %s\n", what, strerror(errno));
	exit(1);
}

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000l + time.tv_nsec;
}

static int goes_on(struct work *work)
{
	return work->count < MOST && now() < until;
}

static void *writes(void *data)
{
	struct work *work = data;
	int file = open("stream", O_CREAT | O_WRONLY, 0644);
	long at = 0, begin;

	check(file >= 0, "stream");
	while (goes_on(work)) {
		begin = now();
		check(pwrite(file, block, WRITE, at) == WRITE, "a write");
		work->took[work->count++] = now() - begin;
		at = (at + WRITE) % FILE_BYTES;
		usleep(PAUSE_US);
	}
	close(file);
	return NULL;
}

static void *syncs(void *data)
{
	struct work *work = data;
	long at = 0, begin;
	char name[32];
	int file;

	snprintf(name, sizeof(name), "synced%d", work->number);
	file = open(name, O_CREAT | O_WRONLY, 0644);
	check(file >= 0, name);
	while (goes_on(work)) {
		check(pwrite(file, block, 4096, at) == 4096, "a write");
		begin = now();
		check(!fsync(file), "fsync");
		work->took[work->count++] = now() - begin;
		at += 4096;
		if (at == SYNC_BYTES) {
			check(!ftruncate(file, 0), "ftruncate");
			at = 0;
		}
	}
	close(file);
	return NULL;
}

static void *changes(void *data)
{
	struct work *work = data;
	char name[64], other[64];
	long begin;
	int i, file;

	for (i = 0; i < DIRECTORIES; i++) {
		snprintf(name, sizeof(name), "directory%d", i);
		check(!mkdir(name, 0755), name);
	}
	for (i = 0; goes_on(work); i++) {
		snprintf(name, sizeof(name), "directory%d/file%d", i % DIRECTORIES, i);
		snprintf(other, sizeof(other), "directory%d/file%d", (i + 7) % DIRECTORIES, i);
		begin = now();
		file = open(name, O_CREAT | O_WRONLY | O_EXCL, 0644);
		check(file >= 0 && !close(file) && !rename(name, other) && !chmod(other, 0600) &&
		      !unlink(other), name);
		work->took[work->count++] = now() - begin;
		usleep(PAUSE_US);
	}
	return NULL;
}

static int by_size(const void *one, const void *other)
{
	long a = *(const long *)one, b = *(const long *)other;

	return a < b ? -1 : a > b;
}

/* At 1 of 1000 first, and then at all thousandths, and the longest. */
static void print(const char *name, long *took, long count)
{
	int i;

	qsort(took, count, sizeof(*took), by_size);
	printf("\"%s\": {\"count\": %ld, \"took\": [", name, count);
	for (i = 0; i <= 1000 && count; i++)
		printf("%s%ld", i ? ", " : "", took[i == 1000 ? count - 1 : count * i / 1000]);
	printf("]}");
}

static long transactions(const char *info)
{
	FILE *file = info ? fopen(info, "r") : NULL;
	long found = -1;

	if (!file)
		return found;
	check(fscanf(file, "%ld", &found) == 1, info);
	fclose(file);
	return found;
}

int main(int argc, char **argv)
{
	struct work work[THREADS] = {
		{ .run = writes }, { .run = changes }, { .run = syncs, .number = 0 },
		{ .run = syncs, .number = 1 },
	};
	const char *info = argc > 3 ? argv[3] : NULL;
	long before, after, total = 0;
	long *all = calloc(SYNCERS, MOST * sizeof(long));
	int i, folder;

	check(argc > 2 && !chdir(argv[2]), "SECONDS FOLDER [INFO]");
	folder = open(".", O_RDONLY);
	check(folder >= 0 && all != NULL, "memory");
	before = transactions(info);
	until = now() + (long)(atof(argv[1]) * 1e9);
	for (i = 0; i < THREADS; i++) {
		work[i].took = calloc(MOST, sizeof(long));
		check(work[i].took && !pthread_create(&work[i].thread, NULL, work[i].run, &work[i]),
		      "a thread");
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(work[i].thread, NULL);
	check(!syncfs(folder), "syncfs");
	after = transactions(info);
	for (i = 2; i < THREADS; i++) {
		memcpy(all + total, work[i].took, work[i].count * sizeof(long));
		total += work[i].count;
	}
	printf("{\"transactions\": [%ld, %ld], ", before, after);
	print("write", work[0].took, work[0].count);
	printf(", ");
	print("metadata", work[1].took, work[1].count);
	printf(", ");
	print("fsync", all, total);
	printf("}\n");
	return 0;
}
