// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// edges leaderless: main ends by pthread_exit; another thread logs COUNT 0..39, for two seconds.
// edges forks: waits for a byte, then forks 5 children, each of which logs 20 COUNT and ends. edges
// limited: RLIMIT_FSIZE is lowered, then a child is forked, which logs and ends with 7; so does the
// parent. edges vfork: a child of vfork logs first, then a second thread and main log 100 COUNT
// each.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "count.klogger.h"

static void log_some(unsigned thread, unsigned events)
{
	unsigned n;

	for (n = 0; n < events; n++)
		klogger(COUNT, thread, n, ~((unsigned long long)thread << 32 | n));
}

static void *slowly(void *unused)
{
	unsigned n;

	(void)unused;
	for (n = 0; n < 40; n++) {
		klogger(COUNT, 1, n, ~(1ull << 32 | n));
		usleep(50000);
	}
	exit(0);
}

static void *at_once(void *unused)
{
	(void)unused;
	log_some(2, 100);
	return NULL;
}

static int forks(void)
{
	unsigned i;
	char byte;

	log_some(0, 1);
	if (read(0, &byte, 1) != 1)
		return 1;
	for (i = 1; i <= 5; i++) {
		if (!fork()) {
			log_some(i, 20);
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		;
	return 0;
}

static int limited(void)
{
	struct rlimit limit = { 1 << 20, 1 << 20 };
	int status;

	setrlimit(RLIMIT_FSIZE, &limit);
	if (!fork()) {
		log_some(1, 1);
		_exit(7);
	}
	wait(&status);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int vforks(void)
{
	pthread_t thread;

	if (!vfork()) {
		log_some(1, 1);
		_exit(0);
	}
	sleep(2);
	pthread_create(&thread, NULL, at_once, NULL);
	pthread_join(thread, NULL);
	log_some(3, 100);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	pthread_t thread;

	if (!strcmp(what, "forks"))
		return forks();
	if (!strcmp(what, "limited"))
		return limited();
	if (!strcmp(what, "vfork"))
		return vforks();
	pthread_create(&thread, NULL, slowly, NULL);
	pthread_exit(NULL);
}
