// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the programs of the study `threads` share. They are compiled with several C libraries, so
// they use POSIX, and system calls by number. Each reports what it did as lines of JSON, with times
// of CLOCK_MONOTONIC, which is the clock of the log.
#ifndef THREADS_H
#define THREADS_H

#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
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

#define SECOND 1000000000ll
#define STACK (64 * 1024)
// Seconds after which something that must happen is taken to have failed.
#define PATIENCE 60
// Not all C libraries bring the kernel's <linux/futex.h>.
#define FUTEX_WAIT_PRIVATE 128
#define FUTEX_WAKE_PRIVATE 129

static inline void die(const char *what)
{
	perror(what);
	exit(1);
}

static inline void must(int error, const char *what)
{
	errno = error;
	if (error)
		die(what);
}

static inline long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

static inline int own_tid(void)
{
	return syscall(SYS_gettid);
}

static inline void pause_ns(long ns)
{
	nanosleep(&(struct timespec){ 0, ns }, NULL);
}

// Gives up when it takes too long. `begun` is when the wait began.
static inline void wait_a_little(long long begun, const char *what)
{
	if (now() - begun > PATIENCE * SECOND) {
		fprintf(stderr, "%s has not happened for %d s\n", what, PATIENCE);
		exit(1);
	}
	pause_ns(200000);
}

// A gate that threads wait at without the help of the C library.
static inline void pass(int *gate)
{
	while (!__atomic_load_n(gate, __ATOMIC_ACQUIRE))
		syscall(SYS_futex, gate, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static inline void open_gate(int *gate)
{
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, gate, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static inline void stacks_of(pthread_attr_t *attr)
{
	must(pthread_attr_init(attr), "pthread_attr_init");
	must(pthread_attr_setstacksize(attr, STACK), "pthread_attr_setstacksize");
}

// Waits until another thread of this process sleeps.
static inline void until_asleep(int tid)
{
	long long begun = now();
	char path[64], line[128];

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	for (;; wait_a_little(begun, "that a thread sleeps")) {
		FILE *file = fopen(path, "r");
		char *state = file && fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;

		if (file)
			fclose(file);
		if (state && state[2] == 'S')
			return;
	}
}

// A number of a file of /proc, as in "Threads:   3"; -1 if there is none.
static inline long number_in(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	size_t length = strlen(name);
	long number = -1;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, length) && line[length] == ':')
			number = atol(line + length + 1);
	if (file)
		fclose(file);
	return number;
}

// Runs a part in a process of its own, so that none sees what another has left behind.
static inline void apart(void (*part)(void))
{
	int status, pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		part();
		exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status) {
		fprintf(stderr, "a part has failed, with status 0x%x\n", status);
		exit(1);
	}
}

#endif
