// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Reads files through descriptors of tables that processes share and threads do not, and prints of
 * each file how many bytes. Each number is that of different files in different tables.
 *
 * Usage: shared_tables FOLDER
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 100, THREE = 40, RAN, THREAD, RANGE, LEFT, LEADER };

static char memory[3][1 << 16];
static char bytes[SIZE];
static const char *self;

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

/* Makes the file, and gives it the number. */
static void give(const char *name, int number)
{
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);

	must(fd >= 0 && ftruncate(fd, SIZE) == 0, name);
	must(dup2(fd, number) == number && close(fd) == 0, name);
}

static void get(int number, int size)
{
	must(pread(number, bytes, size, 0) == size, "pread");
}

/* A process that shares the table of this one, and has ended. */
static void share(int (*does)(void *), int which)
{
	int status;
	/* With CLONE_VFORK this one waits, also where they do not share their memory. */
	pid_t pid = clone(does, memory[which] + sizeof(memory[which]),
			  CLONE_FILES | CLONE_VFORK | SIGCHLD, NULL);

	must(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "clone");
}

static void thread(void *(*does)(void *))
{
	pthread_t made;

	must(!pthread_create(&made, NULL, does, NULL) && !pthread_join(made, NULL), "thread");
}

static int third(void *unused)
{
	(void)unused;
	give("three", THREE);
	return 0;
}

static int second(void *unused)
{
	(void)unused;
	share(third, 1);
	get(THREE, 7);
	return 0;
}

static int runs(void *unused)
{
	(void)unused;
	give("ran-before", RAN);
	execl(self, self, "runs", "after exec", NULL);
	return 1;
}

static int leaves(void *unused)
{
	(void)unused;
	must(unshare(CLONE_FILES) == 0 && unshare(CLONE_FILES) == 0, "unshare");
	give("left-child", LEFT);
	get(LEFT, 37);
	return 0;
}

static void *of_its_own(void *unused)
{
	get(THREAD, 19);
	return unused;
}

static void *unshares(void *unused)
{
	must(unshare(CLONE_FILES) == 0, "unshare");
	give("thread", THREAD);
	/* It shares the table of the thread that makes it, not that of its process. */
	thread(of_its_own);
	return unused;
}

static void *closes_range(void *unused)
{
	must(syscall(SYS_close_range, 1000, 1001, 1 << 1 /* CLOSE_RANGE_UNSHARE */) == 0,
	     "close_range");
	give("range", RANGE);
	get(RANGE, 29);
	return unused;
}

static void *not_the_leader(void *unused)
{
	must(unshare(CLONE_FILES) == 0, "unshare");
	give("leader-thread", LEADER);
	execl(self, self, "leads", "after exec", NULL);
	return unused;
}

static void after_exec(const char *what)
{
	if (strcmp(what, "leads") == 0) {
		get(LEADER, 43);
		return;
	}
	get(RAN, 11);
	give("ran-after", RAN);
	get(RAN, 13);
}

int main(int argc, char **argv)
{
	int status;

	if (argc == 3) {
		after_exec(argv[1]);
		return 0;
	}
	if (argc != 2 || chdir(argv[1])) {
		fprintf(stderr, "usage: shared_tables FOLDER\n");
		return 2;
	}
	self = "/proc/self/exe";

	share(second, 0);
	get(THREE, 5);

	share(runs, 0);
	get(RAN, 17);

	give("thread-kept", THREAD);
	thread(unshares);
	get(THREAD, 23);

	give("range-kept", RANGE);
	thread(closes_range);
	get(RANGE, 31);

	give("left-kept", LEFT);
	share(leaves, 2);
	get(LEFT, 41);

	give("leader-kept", LEADER);
	if (fork() == 0) {
		thread(not_the_leader);
		_exit(1);
	}
	must(wait(&status) > 0 && status == 0, "exec of a thread");
	get(LEADER, 47);

	printf("three 12\nran-before 28\nran-after 13\nthread 19\nthread-kept 23\nrange 29\n"
	       "range-kept 31\nleft-child 37\nleft-kept 41\nleader-thread 43\nleader-kept 47\n");
	return 0;
}
