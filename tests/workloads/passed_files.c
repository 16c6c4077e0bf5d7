// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Writes to one file through descriptors that it has copied, inherited, and kept over exec, and
 * prints how many bytes that were. A second file is read by a child only, a third by nobody.
 *
 * Usage: passed_files FOLDER
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char text[64];
static int copy;

static void put(int fd, int bytes)
{
	if (write(fd, text, bytes) != bytes)
		exit(1);
}

static void *in_a_thread(void *unused)
{
	put(copy, 29);
	return unused;
}

/* Runs in a child, which ends then. */
static void child(int fd, const char *self)
{
	char number[16];

	put(fd, 17);
	if (fork() == 0) {
		put(fd, 19);
		_exit(0);
	}
	wait(NULL);
	/* The child of the child has fd 40 from its parent, and keeps it over exec. */
	if (dup2(fd, 40) != 40)
		exit(1);
	close(fd);
	snprintf(number, sizeof(number), "%d", 40);
	execl(self, self, "after exec", number, NULL);
	exit(1);
}

int main(int argc, char **argv)
{
	char byte;
	int fd, second, ends[2], copies[5];
	pthread_t thread;

	if (argc == 3) {
		put(atoi(argv[2]), 23);
		return 0;
	}
	if (argc != 2 || chdir(argv[1])) {
		fprintf(stderr, "usage: passed_files FOLDER\n");
		return 2;
	}
	fd = open("file", O_RDWR | O_CREAT, 0600);
	copies[0] = dup(fd);
	copies[1] = syscall(SYS_dup2, fd, 50);
	copies[2] = dup3(fd, 51, O_CLOEXEC);
	copies[3] = fcntl(fd, F_DUPFD, 60);
	copies[4] = fcntl(copies[3], F_DUPFD_CLOEXEC, 70);
	close(fd);
	put(copies[0], 3);
	put(copies[1], 5);
	put(copies[2], 7);
	put(copies[3], 11);
	put(copies[4], 13);

	copy = copies[4];
	if (pthread_create(&thread, NULL, in_a_thread, NULL) || pthread_join(thread, NULL))
		return 1;
	if (fork() == 0)
		child(copies[1], "/proc/self/exe");
	wait(NULL);

	/* The number of the copy, but another file. */
	close(copies[0]);
	if (pipe(ends) || dup2(ends[1], copies[0]) != copies[0])
		return 1;
	put(copies[0], 31);

	/* Read by a child only. */
	second = open("file", O_RDONLY);
	if (fork() == 0)
		_exit(read(second, &byte, 1) != 1);
	wait(NULL);
	close(second);
	/* By nobody. */
	close(open(".", O_RDONLY | O_DIRECTORY));

	printf("%d\n", 3 + 5 + 7 + 11 + 13 + 17 + 19 + 23 + 29);
	return 0;
}
