// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Makes planted numbers of operations on files, in the folder that it is given, and prints how many
 * of each it made with which result: a line "CALL ERRNO TIMES" for each. Then "clock FROM TO" for
 * each fsync() and each pwrite64(), in their order, by its own clock (CLOCK_MONOTONIC, ns).
 *
 * Usage: planted_operations FOLDER
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define CLOCKED_MAX 1000

static char buffer[8192], said[20000];
static long long clocked[CLOCKED_MAX][2];
static int clocks;

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static void plant(const char *name, int times, int wanted, long result)
{
	if ((result < 0 ? errno : 0) != wanted) {
		fprintf(stderr, "%s: %s\n", name, strerror(errno));
		exit(1);
	}
	if (times)
		snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s %d %d\n", name,
			 wanted, times);
}

/* `times` calls, all of which have this result: 0, or an error number. */
#define PLANT(name, times, wanted, call)                                                 \
	do {                                                                             \
		for (int i = 0; i < (times); i++)                                        \
			plant(name, i ? 0 : (times), wanted, (call));                    \
	} while (0)

static long clock_of(long (*call)(int fd, int number), int fd, int number)
{
	long long from = now(), to;
	long result = call(fd, number);

	to = now();
	if (clocks == CLOCKED_MAX)
		exit(1);
	clocked[clocks][0] = from;
	clocked[clocks++][1] = to;
	return result;
}

static long sync_it(int fd, int number)
{
	(void)number;
	return fsync(fd);
}

static long write_it(int fd, int number)
{
	return pwrite(fd, buffer, 4096, 4096l * number);
}

static void named(void)
{
	PLANT("openat", 13, ENOENT, openat(AT_FDCWD, "absent", O_RDONLY));
	PLANT("mkdir", 1, 0, mkdir("folder", 0700));
	PLANT("mkdirat", 11, EEXIST, mkdirat(AT_FDCWD, "folder", 0700));
	PLANT("rename", 7, 0, i % 2 ? rename("b", "a") : rename("a", "b"));
	PLANT("renameat2", 5, ENOENT,
	      syscall(SYS_renameat2, AT_FDCWD, "absent", AT_FDCWD, "other", 0));
	PLANT("link", 1, 0, link("b", "linked"));
	PLANT("linkat", 3, EEXIST, linkat(AT_FDCWD, "b", AT_FDCWD, "linked", 0));
	PLANT("symlink", 1, 0, symlink("b", "symbol"));
	PLANT("symlinkat", 5, EEXIST, symlinkat("b", AT_FDCWD, "symbol"));
	PLANT("truncate", 3, 0, truncate("b", 30000 + i));
	PLANT("rmdir", 1, 0, rmdir("folder"));
	PLANT("unlink", 1, 0, unlink("linked"));
	PLANT("unlinkat", 17, ENOENT, unlinkat(AT_FDCWD, "linked", 0));
}

int main(int argc, char **argv)
{
	struct iovec parts[2] = { { buffer, 100 }, { buffer + 100, 11 } };
	loff_t from = 0, to = 0;
	int file, other, pipes[2];

	if (argc != 2 || chdir(argv[1])) {
		fprintf(stderr, "usage: planted_operations FOLDER\n");
		return 2;
	}
	memset(buffer, 'x', sizeof(buffer));
	file = open("a", O_RDWR | O_CREAT | O_TRUNC, 0600);
	other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (file < 0 || other < 0 || pipe(pipes))
		return 1;
	PLANT("write", 101, 0, write(file, buffer, 509));
	PLANT("writev", 37, 0, writev(file, parts, 2));
	PLANT("pwrite64", 53, 0, clock_of(write_it, file, i));
	PLANT("pwritev", 19, 0, pwritev(file, parts, 2, 100 * i));
	PLANT("pwritev2", 23, 0, pwritev2(file, parts, 2, 100 * i, 0));
	PLANT("fsync", 41, 0, clock_of(sync_it, file, i));
	PLANT("fdatasync", 29, 0, fdatasync(file));
	PLANT("pread64", 67, 0, pread(file, buffer, 701, 3 * i));
	PLANT("preadv", 31, 0, preadv(file, parts, 2, i));
	PLANT("preadv2", 43, 0, preadv2(file, parts, 2, i, 0));
	PLANT("sync_file_range", 11, 0, sync_file_range(file, 0, 4096, 2));
	PLANT("fallocate", 7, 0, fallocate(other, 0, 65536l * i, 65536));
	PLANT("ftruncate", 5, 0, ftruncate(other, 100000 - i));
	PLANT("copy_file_range", 3, 0, copy_file_range(file, &from, other, &to, 1009, 0));
	PLANT("sendfile", 13, 0, sendfile(other, file, &from, 307));
	/* Of the pipe's own calls nothing is logged. */
	if (write(pipes[1], buffer, 700) != 700)
		return 1;
	PLANT("splice", 7, 0, splice(pipes[0], NULL, other, &to, 100, 0));
	PLANT("syncfs", 3, 0, syncfs(file));
	PLANT("read", 17, 0, lseek(file, 0, SEEK_SET) +
	      read(file, buffer, 997));
	named();
	close(file);
	close(other);
	fputs(said, stdout);
	for (int i = 0; i < clocks; i++)
		printf("clock %lld %lld\n", clocked[i][0], clocked[i][1]);
	return 0;
}
