// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// hostile WHAT SECONDS: children that log, each of which does WHAT to the file that it shares:
// "scribble" random bytes over it, "truncate" it, "unlink" it, or put a "link", a "fifo" or a
// "folder" in its place. Ends with exit code 0.
#define _GNU_SOURCE
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "count.klogger.h"

/*
 * The most important parts for a recorder: the control page, the slots' table, the first slots'
 * control words.
 */
#define TABLE (4096 + (1 << 18) + 8192)
#define SLOTS (TABLE + 65536)

static const char *what;
static char path[512];

static void find_own_file(void)
{
	char pattern[400];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%s/%d.*", getenv("KLOGGER_DIR"), getpid());
	if (glob(pattern, 0, NULL, &found) || strlen(found.gl_pathv[0]) >= sizeof(path))
		_exit(0);
	strcpy(path, found.gl_pathv[0]);
}

static long somewhere(long size)
{
	switch (rand() % 5) {
	case 0: return rand() % 4096;
	case 1: return TABLE + rand() % 256;
	case 2: return SLOTS + rand() % 64;
	case 3: return SLOTS + rand() % (1 << 21);
	default:
		return (long)(((unsigned long)rand() << 16 | (unsigned)rand() % 65536) %
			      (unsigned long)size);
	}
}

static void scribble(void)
{
	int fd = open(path, O_RDWR);
	struct stat st;
	char *map;

	if (fd < 0 || fstat(fd, &st))
		_exit(0);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		_exit(0);
	for (;;) {
		long at = somewhere(st.st_size);

		/* A recorder accepts small numbers more often than large ones. */
		map[at] = (char)(rand() % 3 ? rand() : rand() % 2);
		if (rand() % 64 == 0)
			usleep(50);
	}
}

static void shorten(void)
{
	usleep((useconds_t)(rand() % 50000));
	if (truncate(path, rand() % 3 ? 0 : rand() % (1 << 21)))
		_exit(0);
}

static void replace(void)
{
	usleep((useconds_t)(rand() % 50000));
	unlink(path);
	if (!strcmp(what, "link") && symlink("/etc/passwd", path))
		_exit(0);
	if (!strcmp(what, "fifo"))
		mkfifo(path, 0600);
	if (!strcmp(what, "folder"))
		mkdir(path, 0700);
}

static void *misbehave(void *unused)
{
	(void)unused;
	if (!strcmp(what, "scribble"))
		scribble();
	else if (!strcmp(what, "truncate"))
		shorten();
	else
		replace();
	return NULL;
}

static void leave(int number)
{
	(void)number;
	_exit(0);
}

static void live(unsigned seed)
{
	pthread_t thread;
	unsigned n;

	srand(seed);
	signal(SIGSEGV, leave);
	signal(SIGBUS, leave);
	find_own_file();
	if (pthread_create(&thread, NULL, misbehave, NULL))
		_exit(0);
	for (n = 0;; n++) {
		klogger(COUNT, 99, n, 0);
		if (n % 1000 == 0)
			usleep(100);
	}
}

int main(int argc, char **argv)
{
	time_t end = time(NULL) + (argc > 2 ? atoi(argv[2]) : 1);
	unsigned seed = 1;

	what = argc > 1 ? argv[1] : "scribble";
	for (; time(NULL) < end; seed++) {
		pid_t child = fork();

		if (!child)
			live(seed);
		usleep(200000);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	return 0;
}
