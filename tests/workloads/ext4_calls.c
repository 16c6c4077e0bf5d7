// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * ext4_calls DEVICE FOLDER: mounts a file system, which stays mounted, and does in it
 *
 *   101 times fsync() of a new file of 4 KiB, 53 times fdatasync() of one that grows,
 *   17 unlink(), one fallocate() of 37 MiB between other files, 5 holes,
 *   4 threads that append 47 times 64 KiB to one file each by direct I/O, and 31 direct reads.
 *
 * Prints its own clock around each fsync() and fdatasync(), the extents that the kernel says the
 * file of fallocate() has, and the numbers of /proc/fs/jbd2/NAME-8/info at the end.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES 101
#define GROWS 53
#define UNLINKS 17
#define LENGTH (37l << 20)
#define HOLES 5
#define WRITERS 4
#define APPENDS 47
#define READS 31
#define BLOCK 4096
#define DIRECT 65536
#define EXTENTS 512

static char block[BLOCK];

static void check(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "ext4_calls: %s: %s\n", what, strerror(errno));
	exit(1);
}

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000l + time.tv_nsec;
}

static unsigned long inode_of(int file)
{
	struct stat found;

	check(!fstat(file, &found), "fstat");
	return found.st_ino;
}

static void synchronise(int file, int data)
{
	static int called;
	long begin, end;

	begin = now();
	check(!(data ? fdatasync(file) : fsync(file)), "fsync");
	end = now();
	printf("%s[%ld, %ld, %lu, %d]", called++ ? ", " : "", begin, end, inode_of(file), data);
}

static void small_files(void)
{
	char name[32];
	int i, file;

	printf("\"syncs\": [");
	for (i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "file%d", i);
		file = open(name, O_CREAT | O_WRONLY, 0644);
		check(file >= 0 && write(file, block, BLOCK) == BLOCK, name);
		synchronise(file, 0);
		close(file);
	}
	file = open("grows", O_CREAT | O_WRONLY | O_APPEND, 0644);
	for (i = 0; i < GROWS; i++) {
		check(file >= 0 && write(file, block, BLOCK) == BLOCK, "grows");
		synchronise(file, 1);
	}
	close(file);
	for (i = 0; i < UNLINKS; i++) {
		snprintf(name, sizeof(name), "file%d", 2 * i + 1);
		check(!unlink(name), name);
	}
	printf("], ");
}

static void allocated(void)
{
	struct fiemap *map = calloc(1, sizeof(*map) + EXTENTS * sizeof(struct fiemap_extent));
	int file = open("allocated", O_CREAT | O_WRONLY, 0644);
	unsigned int i, unit;
	struct stat found;

	check(map && file >= 0 && !fallocate(file, 0, 0, LENGTH), "fallocate");
	check(!fstat(file, &found), "fstat");
	unit = found.st_blksize;
	map->fm_length = FIEMAP_MAX_OFFSET;
	map->fm_extent_count = EXTENTS;
	check(!ioctl(file, FS_IOC_FIEMAP, map), "FIEMAP");
	printf("\"inode\": %lu, \"extents\": [", inode_of(file));
	for (i = 0; i < map->fm_mapped_extents; i++)
		printf("%s[%llu, %llu, %llu]", i ? ", " : "", map->fm_extents[i].fe_logical / unit,
		       map->fm_extents[i].fe_physical / unit, map->fm_extents[i].fe_length / unit);
	printf("], ");
	for (i = 0; i < HOLES; i++)
		check(!fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i * 8l * BLOCK,
				 BLOCK), "a hole");
	close(file);
	free(map);
}

static void *aligned(void)
{
	void *memory = aligned_alloc(BLOCK, DIRECT);

	check(memory != NULL, "memory");
	memset(memory, 1, DIRECT);
	return memory;
}

static void *append(void *unused)
{
	int i, file = open("direct", O_WRONLY | O_APPEND | O_DIRECT);
	void *memory = aligned();

	check(file >= 0, "direct");
	for (i = 0; i < APPENDS; i++)
		check(write(file, memory, DIRECT) == DIRECT, "a direct write");
	close(file);
	free(memory);
	return unused;
}

static void direct(void)
{
	pthread_t threads[WRITERS];
	void *memory = aligned();
	int i, file = open("direct", O_CREAT | O_RDONLY | O_DIRECT, 0644);

	check(file >= 0, "direct");
	printf("\"direct\": %lu, ", inode_of(file));
	for (i = 0; i < WRITERS; i++)
		check(!pthread_create(&threads[i], NULL, append, NULL), "a thread");
	for (i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < READS; i++)
		check(pread(file, memory, DIRECT, (long)i * DIRECT) == DIRECT, "a direct read");
	close(file);
	free(memory);
}

/* The numbers of the journal's own account, in their order. */
static void account(const char *device)
{
	char path[128], text[2048];
	const char *at = text;
	size_t length;
	FILE *file;
	int found = 0;

	snprintf(path, sizeof(path), "/proc/fs/jbd2/%s-8/info", strrchr(device, '/') + 1);
	file = fopen(path, "r");
	check(file != NULL, path);
	length = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[length] = 0;
	printf("\"info\": [");
	while (*at) {
		if (isdigit((unsigned char)*at)) {
			char *after;

			printf("%s%lu", found++ ? ", " : "", strtoul(at, &after, 10));
			at = after;
		} else {
			at++;
		}
	}
	printf("]");
}

int main(int argc, char **argv)
{
	int folder;

	check(argc == 3, "DEVICE FOLDER");
	check(!mount(argv[1], argv[2], "ext4", 0, ""), "mount");
	check(!chdir(argv[2]), argv[2]);
	printf("{");
	small_files();
	allocated();
	direct();
	folder = open(".", O_RDONLY);
	check(folder >= 0 && !syncfs(folder), "syncfs");
	account(argv[1]);
	printf("}\n");
	return 0;
}
