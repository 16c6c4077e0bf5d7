// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// lives WHAT N: what may happen to a program, with events before and after. WHAT is a name in the
// table below. COUNT's thread tells who logs: 0 the program, 1 its child, 2 the child's child. The
// exit code is 7.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "count.klogger.h"

static char **arguments;

static void count(unsigned who, unsigned n)
{
	klogger(COUNT, who, n, ~((unsigned long long)who << 32 | n));
}

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void end_child(pid_t pid)
{
	int status;

	must(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7,
	     "child");
}

/* A child of a child, each with an event before and after. */
static void do_fork(int n)
{
	int i;

	for (i = 0; i < n; i++) {
		pid_t pid = fork();

		must(pid >= 0, "fork");
		if (!pid) {
			count(1, i);
			pid = fork();
			count(pid ? 1 : 2, i);
			if (pid)
				end_child(pid);
			exit(7);
		}
		end_child(pid);
		count(0, i + 1);
	}
}

/* Without libc, so its fork handlers are not called. */
static void do_clone(int n)
{
	int i;

	for (i = 0; i < n; i++) {
		pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0ul);

		must(pid >= 0, "clone");
		if (!pid) {
			count(1, i);
			syscall(SYS_exit_group, 7);
		}
		end_child(pid);
		count(0, i + 1);
	}
}

static void do_vfork(int n)
{
	int i;

	for (i = 0; i < n; i++) {
		pid_t pid = vfork();

		must(pid >= 0, "vfork");
		if (!pid) {
			execl("/proc/self/exe", arguments[0], "nothing", "1", NULL);
			_exit(1);
		}
		end_child(pid);
		count(0, i + 1);
	}
}

static volatile int forked;
static int forks;

static void fork_in_handler(int number)
{
	int error = errno;
	pid_t pid;

	(void)number;
	if (forked < 0 || forked == forks)
		return;
	pid = fork();
	if (!pid) {
		forked = -1;
		return;
	}
	forked++;
	end_child(pid);
	errno = error;
}

/*
 * A fork in a signal handler, at any moment of an event: the child continues in the middle of it.
 */
static void do_handler(int n)
{
	struct sigaction action = { .sa_handler = fork_in_handler, .sa_flags = SA_RESTART };
	struct itimerval when = { { 0, 1000 }, { 0, 1000 } }, never = { { 0, 0 }, { 0, 0 } };
	unsigned i;

	forks = n;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &when, NULL);
	for (i = 1; forked >= 0 && forked < forks; i++) {
		count(0, i);
		if (i % 200 == 0)
			usleep(200);
	}
	if (forked < 0) {
		for (i = 0; i < 10; i++)
			count(1, i);
		exit(7);
	}
	setitimer(ITIMER_REAL, &never, NULL);
}

static void do_exec(int n)
{
	char left[16];

	snprintf(left, sizeof(left), "%d", n - 1);
	if (n > 0)
		execl("/proc/self/exe", arguments[0], "exec", left, NULL);
}

static void do_setuid(int n)
{
	(void)n;
	must(!setgid(65534) && !setuid(65534), "setuid");
}

static void do_chroot(int n)
{
	(void)n;
	must(!chroot("/proc/self/fdinfo") && !chdir("/"), "chroot");
}

static void do_close(int n)
{
	(void)n;
	must(!close_range(3, ~0u, 0), "close_range");
}

static void *log_once(void *n)
{
	count(0, 1 + (unsigned)(size_t)n);
	return NULL;
}

/* Short threads, four at a time. */
static void do_threads(int n)
{
	pthread_t threads[4];
	int i;

	for (i = 0; i < n; i++) {
		if (i >= 4)
			pthread_join(threads[i % 4], NULL);
		must(!pthread_create(&threads[i % 4], NULL, log_once, (void *)(size_t)i),
		     "pthread_create");
	}
	for (i = n < 4 ? 0 : n - 4; i < n; i++)
		pthread_join(threads[i % 4], NULL);
}

static void at_exit(void)
{
	count(0, 1002);
}

static __attribute__((constructor(103))) void before_main(void)
{
	if (getenv("EARLY"))
		count(0, 1001);
}

static __attribute__((destructor(103))) void after_main(void)
{
	if (getenv("EARLY"))
		count(0, 1003);
}

static void do_exit(int n)
{
	(void)n;
	atexit(at_exit);
}

static void do_kill(int n)
{
	(void)n;
	kill(getpid(), SIGKILL);
}

static void do_abort(int n)
{
	struct rlimit none = { 0, 0 };

	(void)n;
	setrlimit(RLIMIT_CORE, &none);
	abort();
}

/* All memory is locked (mlockall), but unused slots must not be allocated. */
static void do_lock(int n)
{
	(void)n;
	must(!mlockall(MCL_CURRENT | MCL_FUTURE), "mlockall");
}

static void do_sleep(int n)
{
	int i;

	for (i = 0; i < n; i++) {
		usleep(1000);
		count(0, i + 1);
	}
}

static void do_nothing(int n)
{
	(void)n;
}

static const struct { const char *name; void (*run)(int n);
} lives[] = {
	{"fork", do_fork},       {"clone", do_clone}, {"vfork", do_vfork},
	{"handler", do_handler}, {"exec", do_exec},   {"setuid", do_setuid},
	{"chroot", do_chroot},   {"close", do_close}, {"threads", do_threads},
	{"exit", do_exit},       {"kill", do_kill},   {"abort", do_abort},
	{"lock", do_lock},       {"sleep", do_sleep}, {"nothing", do_nothing},
};

int main(int argc, char **argv)
{
	int n = argc > 2 ? atoi(argv[2]) : 1;
	size_t i;

	arguments = argv;
	/* Without an event before it, only later events show whether the program still logs. */
	if (!getenv("QUIET"))
		count(0, 0);
	for (i = 0; i < sizeof(lives) / sizeof(*lives); i++)
		if (argc > 1 && !strcmp(argv[1], lives[i].name))
			lives[i].run(n);
	count(0, 1000000);
	return 7;
}
