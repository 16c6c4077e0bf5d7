// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Common parts of the workloads: the kernel's own counters of a thread, and how they are printed.
//
// A workload prints one JSON object. Its member "threads" has one element for each thread that
// reported: what the kernel had counted for it, and the time of the report, so that it can be
// compared with the events up to then. Main never reports: it began before its workload did,
// perhaps before it was recorded.
#ifndef ORACLE_H
#define ORACLE_H

#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_REPORTS 4096

struct report {
	char role[16];
	int tid, tgid;
	unsigned long long time_ns;	// CLOCK_MONOTONIC
	unsigned long long cpu_ns;	// CLOCK_THREAD_CPUTIME_ID, what it ran until time_ns
	unsigned long long schedstat_ns; // as of the last tick or switch
	unsigned long long schedstat_runs;
	long nvcsw, nivcsw;
	long long count;		// what the workload counted itself
};

// Shared with the processes that the workload forks.
static struct {
	int used;
	struct report list[MAX_REPORTS];
} *reports;

static inline void die(const char *what)
{
	perror(what);
	exit(1);
}

static inline unsigned long long clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static inline void reports_init(void)
{
	reports = mmap(NULL, sizeof(*reports), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (reports == MAP_FAILED)
		die("mmap");
}

static inline void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

// Runs in the thread that it reports, as the last action of that thread.
static inline void report(const char *role, long long count)
{
	struct report *r = &reports->list[__atomic_fetch_add(&reports->used, 1, __ATOMIC_RELAXED)];
	struct rusage before, after;
	char path[64];
	FILE *f;

	if (r >= reports->list + MAX_REPORTS)
		exit(1);
	snprintf(r->role, sizeof(r->role), "%s", role);
	r->tid = syscall(SYS_gettid);
	r->tgid = getpid();
	r->count = count;
	snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", r->tid);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%llu %*u %llu", &r->schedstat_ns, &r->schedstat_runs) != 2)
		die(path);
	fclose(f);
	// After a switch between the two readings the counts would be of another moment than
	// time_ns.
	do {
		getrusage(RUSAGE_THREAD, &before);
		r->time_ns = clock_ns(CLOCK_MONOTONIC);
		r->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		getrusage(RUSAGE_THREAD, &after);
	} while (before.ru_nvcsw != after.ru_nvcsw || before.ru_nivcsw != after.ru_nivcsw);
	r->nvcsw = after.ru_nvcsw;
	r->nivcsw = after.ru_nivcsw;
}

static inline void print_reports(const char *workload, const char *extra)
{
	int used = reports->used;

	printf("{\"workload\": \"%s\", \"pid\": %d, %s%s\"threads\": [", workload, getpid(), extra,
	       *extra ? ", " : "");
	for (int i = 0; i < used; i++) {
		struct report *r = &reports->list[i];

		printf("%s\n  {\"role\": \"%s\", \"tid\": %d, \"tgid\": %d, \"time_ns\": %llu, "
		       "\"cpu_ns\": %llu, "
		       "\"schedstat_ns\": %llu, \"schedstat_runs\": %llu, \"nvcsw\": %ld, "
		       "\"nivcsw\": %ld, "
		       "\"count\": %lld}",
		       i ? "," : "", r->role, r->tid, r->tgid, r->time_ns, r->cpu_ns,
		       r->schedstat_ns, r->schedstat_runs, r->nvcsw, r->nivcsw, r->count);
	}
	printf("\n]}\n");
}

static inline long argument(int argc, char **argv, int at, long otherwise)
{
	return argc > at ? atol(argv[at]) : otherwise;
}

// Waits for all children; true if each of them succeeded.
static inline int wait_all(void)
{
	int status, ok = 1;

	while (wait(&status) > 0)
		ok &= status == 0;
	return ok;
}

#endif
