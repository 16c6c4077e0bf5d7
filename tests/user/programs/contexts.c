/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Logs an event in each of two threads and in a signal handler; prints what they know, as JSON. */
#define _GNU_SOURCE
#include "contexts.klogger.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void who(int n, const char *name)
{
	long tid = syscall(SYS_gettid);

	prctl(PR_SET_NAME, name);
	klogger(WHO, n);
	printf("[%d, %ld, %d, %d, 0, %ld, \"%.15s\"]\n", n, tid, (int)getpid(), (int)getppid(), tid,
	       name);
}

static void handler(int number)
{
	(void)number;
	klogger(WHO, 3);
}

static void *thread(void *name)
{
	who(2, name);
	return NULL;
}

int main(void)
{
	char other[] = "of a thread";
	pthread_t started;

	who(1, "more than 15 characters");
	if (pthread_create(&started, NULL, thread, other) || pthread_join(started, NULL))
		return 1;
	signal(SIGUSR1, handler);
	return raise(SIGUSR1);
}
