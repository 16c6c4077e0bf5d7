// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * file_extents FOLDER [CHUNK [none | moved]]: files that are written in turns, cut, punched,
 * preallocated (not with `none`), written again and deleted, in chunks of so many bytes (49152).
 * With `moved`, ranges are cut out of some, and put in. After each close it asks for the file's
 * map, and prints it: a line "map INODE EXTENTS", and for each extent
 * "LOGICAL PHYSICAL LENGTH FLAGS". What a file system cannot do is left out, and named at the end.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 7
#define ROUNDS 13
#define MOST 2000

static char *buffer;
static long chunk = 49152;
static char left_out[256];

static void die(const char *what)
{
	fprintf(stderr, "file_extents: %s: %s\n", what, strerror(errno));
	exit(2);
}

static const char *name(int number)
{
	static char text[4][16];
	static int turn;

	turn = (turn + 1) & 3;
	snprintf(text[turn], sizeof(text[turn]), "f%d", number);
	return text[turn];
}

static int opened(int number, int flags)
{
	int fd = open(name(number), flags, 0644);

	if (fd < 0)
		die(name(number));
	return fd;
}

static void put(int fd, long at, long bytes)
{
	while (bytes > 0) {
		long part = bytes < chunk ? bytes : chunk;

		if (pwrite(fd, buffer, part, at) != part)
			die("write");
		at += part;
		bytes -= part;
	}
}

/* Block by block: FAT has nothing better. */
static void map_by_block(int fd, const struct stat *is)
{
	long size, blocks;
	int block, found;

	if (ioctl(fd, FIGETBSZ, &block) < 0)
		die("FIGETBSZ");
	size = block;
	blocks = (is->st_size + size - 1) / size;
	printf("map %lu %ld\n", is->st_ino, blocks);
	for (long n = 0; n < blocks; n++) {
		found = n;
		if (ioctl(fd, FIBMAP, &found) < 0)
			die("FIBMAP");
		printf("%ld %ld %ld 0\n", n * size, found * size, size);
	}
}

static void map(int number)
{
	struct fiemap *map = calloc(1, sizeof(*map) + MOST * sizeof(map->fm_extents[0]));
	int fd = opened(number, O_RDONLY);
	struct stat is;

	if (!map || fstat(fd, &is) < 0)
		die("stat");
	map->fm_length = ~0ul >> 1;
	map->fm_flags = FIEMAP_FLAG_SYNC;
	map->fm_extent_count = MOST;
	if (ioctl(fd, FS_IOC_FIEMAP, map) < 0) {
		if (errno != EOPNOTSUPP && errno != ENOTTY)
			die("FIEMAP");
		/* In vain, once more: a log has the time from which on the map is the same. */
		if (fsync(fd) < 0)
			die("fsync");
		ioctl(fd, FS_IOC_FIEMAP, map);
		map_by_block(fd, &is);
	} else {
		printf("map %lu %u\n", is.st_ino, map->fm_mapped_extents);
		for (unsigned int n = 0; n < map->fm_mapped_extents; n++) {
			struct fiemap_extent *e = &map->fm_extents[n];

			printf("%llu %llu %llu %x\n", e->fe_logical, e->fe_physical, e->fe_length,
			       e->fe_flags);
		}
	}
	close(fd);
	free(map);
}

static void closed(int number, int fd)
{
	if (close(fd) < 0)
		die("close");
	map(number);
}

/* Each writes its next piece when the one before has been written to the disk. */
static void in_turns(int first)
{
	int fds[FILES];

	for (int n = 0; n < FILES; n++)
		fds[n] = opened(first + n, O_RDWR | O_CREAT | O_EXCL);
	for (int round = 0; round < ROUNDS; round++)
		for (int n = 0; n < FILES; n++) {
			put(fds[n], round * (chunk + n * 4096), chunk + n * 4096);
			/* Of some at each turn, others are left to the flusher or to the close. */
			if (n % 2 == 0 && fdatasync(fds[n]) < 0)
				die("fdatasync");
		}
	for (int n = 0; n < FILES; n++)
		closed(first + n, fds[n]);
}

static void change(const char *what, int number, int mode, long at, long bytes)
{
	int fd = opened(number, O_RDWR);

	if (fallocate(fd, mode, at, bytes) < 0) {
		if (errno != EOPNOTSUPP)
			die(what);
		if (!strstr(left_out, what)) {
			strcat(left_out, " ");
			strcat(left_out, what);
		}
	}
	closed(number, fd);
}

static void cut(int number, long bytes)
{
	int fd = opened(number, O_RDWR);

	if (ftruncate(fd, bytes) < 0)
		die("truncate");
	closed(number, fd);
}

static void again(int number, long at, long bytes)
{
	int fd = opened(number, O_RDWR);

	put(fd, at, bytes);
	closed(number, fd);
}

static void directly(int number, long at, long bytes)
{
	int fd = open(name(number), O_RDWR | O_CREAT | O_DIRECT, 0644);

	if (fd < 0) {
		strcat(left_out, " direct");
		return;
	}
	put(fd, at, bytes);
	closed(number, fd);
}

/* Whole blocks: in the middle of pieces, in holes, where there are no borders, and at the end. */
static void move(void)
{
	change("collapse", 5, FALLOC_FL_COLLAPSE_RANGE, 4096 * 3, 4096 * 11);
	change("insert", 5, FALLOC_FL_INSERT_RANGE, 4096 * 5, 4096 * 9);
	again(5, 4096 * 2, chunk);
	change("collapse", 3, FALLOC_FL_COLLAPSE_RANGE, 4096 * 8, 4096 * 5);
	change("insert", 3, FALLOC_FL_INSERT_RANGE, 0, 4096 * 3);
	cut(3, 4096 * 50);
	change("collapse", 20, FALLOC_FL_COLLAPSE_RANGE, 4096 * 29, 4096 * 75);
	change("punch", 20, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096 * 20, 4096 * 2);
	change("insert", 20, FALLOC_FL_INSERT_RANGE, 4096 * 21, 4096);
	directly(20, 4096 * 12, chunk);
}

int main(int count, char **words)
{
	int fd;

	if (count < 2 || chdir(words[1]) < 0)
		die("usage: file_extents FOLDER [CHUNK]");
	if (count > 2)
		chunk = atol(words[2]) & ~4095l;
	if (posix_memalign((void **)&buffer, 4096, chunk))
		die("memory");
	memset(buffer, 'x', chunk);
	in_turns(0);
	cut(0, 300007);
	cut(1, 1);
	cut(2, 0);
	again(2, 0, 200003);
	/* A file with a hole, then a cut in the middle of a hole. */
	again(1, 500009, 100003);
	cut(1, 400009);
	change("punch", 3, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 40007, 100003);
	change("punch", 4, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 65536);
	change("punch", 4, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 131072, 4096 * 17);
	again(3, 61441, 30011);
	again(5, 100003, 50021);
	again(5, 8192, 4096);
	directly(6, 4096 * 11, chunk);
	directly(6, 4096 * 301, chunk);
	if (count < 4 || strcmp(words[3], "none")) {
		fd = opened(20, O_RDWR | O_CREAT);
		if (close(fd) < 0)
			die("close");
		change("preallocate", 20, 0, 0, 1 << 20);
		again(20, 4096 * 31, 40009);
		again(20, 4096 * 101, chunk);
		directly(20, 4096 * 201, chunk);
		change("punch", 20, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096 * 99,
		       4096 * 5);
		change("zero", 4, FALLOC_FL_ZERO_RANGE, 4096 * 40, 4096 * 13);
	}
	if (count > 3 && !strcmp(words[3], "moved"))
		move();
	for (int n = 0; n < FILES; n += 3)
		if (unlink(name(n)) < 0)
			die("unlink");
	sync();
	in_turns(100);
	printf("left out:%s\n", left_out);
	return 0;
}
