// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// signals EVENTS MICROSECONDS: the thread logs COUNT while two timers interrupt it, and each other,
// with handlers that log NESTED. Prints how often each was called.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "count.klogger.h"

static volatile unsigned handled;

static void handle(int number)
{
	unsigned n = __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
	int i;

	(void)number;
	for (i = 0; i < 3; i++)
		klogger(NESTED, i, n, ~((unsigned long long)i << 32 | n));
}

static void start_timer(int number, long ns)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = number };
	struct itimerspec when = { { 0, ns }, { 0, ns } };
	struct sigaction action = { .sa_handler = handle, .sa_flags = SA_RESTART };
	timer_t timer;

	sigaction(number, &action, NULL);
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &when, NULL))
		exit(1);
}

int main(int argc, char **argv)
{
	unsigned events = argc > 1 ? atoi(argv[1]) : 1000, n;
	long us = argc > 2 ? atol(argv[2]) : 100;
	sigset_t all;

	start_timer(SIGUSR1, us * 1000);
	start_timer(SIGUSR2, us * 1300);
	for (n = 0; n < events; n++)
		klogger(COUNT, 0, n, ~(unsigned long long)n);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	printf("{\"calls\": %u, \"handled\": %u}\n", events, handled);
	return 0;
}
