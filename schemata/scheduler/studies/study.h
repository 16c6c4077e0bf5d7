// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the programs of these studies share. Each reports what it did, and what the kernel counted
// for it, as lines of JSON.
#ifndef STUDY_H
#define STUDY_H

#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ll
#define SECOND (1000 * MS)

static inline void die(const char *what)
{
	perror(what);
	exit(1);
}

static inline long long clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

static inline long long now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline void sleep_until(long long ns)
{
	struct timespec t = { ns / SECOND, ns % SECOND };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

// Work that takes so much CPU time, however long that is on the wall.
static inline void work(long long ns)
{
	for (long long end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
	     clock_ns(CLOCK_THREAD_CPUTIME_ID) < end;)
		;
}

// cpu < 0 leaves the choice to the kernel.
static inline void run_on(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

// A child that has a name of its own, and does not outlive its parent.
static inline int child(const char *name)
{
	int parent = getpid(), pid = fork();

	if (pid < 0)
		die("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, name);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

// True if all children ended well.
static inline int wait_all(void)
{
	int status, ok = 1;

	while (wait(&status) > 0)
		ok &= status == 0;
	return ok;
}

static inline void say(const char *line)
{
	// One write, so that lines of several processes do not mix.
	if (write(1, line, strlen(line)) < 0)
		exit(1);
}

// who is RUSAGE_THREAD or RUSAGE_SELF. A switch between the readings would make them those of
// different moments.
static inline void report_of(const char *role, long long count, int who)
{
	struct rusage before, after;
	long long time, cpu;
	char line[256];

	do {
		getrusage(who, &before);
		time = now();
		cpu = clock_ns(who == RUSAGE_SELF ? CLOCK_PROCESS_CPUTIME_ID
						  : CLOCK_THREAD_CPUTIME_ID);
		getrusage(who, &after);
	} while (before.ru_nvcsw != after.ru_nvcsw || before.ru_nivcsw != after.ru_nivcsw);
	snprintf(line, sizeof(line),
		 "{\"role\": \"%s\", \"tid\": %ld, \"tgid\": %d, \"count\": %lld, \"time_ns\": "
		 "%lld, "
		 "\"cpu_ns\": %lld, \"nvcsw\": %ld, \"nivcsw\": %ld}\n",
		 role, syscall(SYS_gettid), getpid(), count, time, cpu, after.ru_nvcsw,
		 after.ru_nivcsw);
	say(line);
}

static inline void report(const char *role, long long count)
{
	report_of(role, count, RUSAGE_THREAD);
}

// How long all CPUs together have been idle.
static inline void report_machine(void)
{
	unsigned long long idle = 0, iowait = 0;
	FILE *f = fopen("/proc/stat", "r");
	char line[128];

	if (!f || fscanf(f, "cpu %*u %*u %*u %llu %llu", &idle, &iowait) != 2)
		die("/proc/stat");
	fclose(f);
	snprintf(line, sizeof(line),
		 "{\"role\": \"machine\", \"time_ns\": %lld, \"idle_ns\": %lld}\n", now(),
		 (long long)((idle + iowait) * (SECOND / sysconf(_SC_CLK_TCK))));
	say(line);
}

#endif
