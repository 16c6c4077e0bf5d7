// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The programs of Figure 5, each for so many seconds:
//
//   spin SECONDS N CPU fair|rr PERIOD_MS   N loops on one CPU; if PERIOD_MS is not 0, a daemon
//                                          wakes on it so often for 13 µs
//   player SECONDS                         25 frames a second, 6 ms of work each
//   copy SECONDS FOLDER MB                 writes a file and copies it, again and again
//   netcopy SECONDS                        one process sends to another over a loopback connection,
//                                          at some 30 MB/s
//   repeat SECONDS COMMAND...              a command, again and again; the last one is stopped
#include "study.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>

#define BLOCK 65536

static char block[BLOCK];
static long long until;

static void spin(int cpu)
{
	long long turns = 0;

	run_on(cpu);
	while (now() < until)
		turns++;
	report("spin", turns);
}

static void wake_again_and_again(const char *role, int cpu, long long period, long long ns)
{
	long long times = 0;

	run_on(cpu);
	for (long long next = now() + period; next < until; next += period, times++) {
		sleep_until(next);
		work(ns);
	}
	report(role, times);
}

static int copy(const char *folder, int megabytes)
{
	char from[4096], to[4096];
	long long bytes = 0;
	int in, out;
	ssize_t n;

	snprintf(from, sizeof(from), "%s/copy.from", folder);
	snprintf(to, sizeof(to), "%s/copy.to", folder);
	out = open(from, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	for (int i = 0; i < megabytes * 16; i++)
		if (write(out, block, BLOCK) != BLOCK)
			die(from);
	close(out);
	while (now() < until) {
		in = open(from, O_RDONLY);
		out = open(to, O_CREAT | O_TRUNC | O_WRONLY, 0600);
		while ((n = read(in, block, BLOCK)) > 0 && now() < until) {
			if (write(out, block, n) != n)
				die(to);
			bytes += n;
		}
		close(in);
		close(out);
	}
	unlink(from);
	unlink(to);
	report("copy", bytes);
	return 0;
}

static int netcopy(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM, 0), to = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t length = sizeof(address);
	long long bytes = 0;
	ssize_t n;

	if (listener < 0 || to < 0 || bind(listener, (void *)&address, length) ||
	    listen(listener, 1) || getsockname(listener, (void *)&address, &length))
		die("socket");
	if (child("fetch") == 0) {
		close(to);
		for (int from = accept(listener, NULL, NULL); (n = read(from, block, BLOCK)) > 0;)
			bytes += n;
		report("fetch", bytes);
		_exit(0);
	}
	if (connect(to, (void *)&address, length))
		die("connect");
	for (long long next = now(); now() < until; next += MS) {
		sleep_until(next);
		if (write(to, block, 30000) != 30000)
			die("write");
		bytes += 30000;
	}
	close(to);
	report("serve", bytes);
	return !wait_all();
}

static int repeat(char **command)
{
	long long times = 0;
	int pid, ended;

	// What is left of the last command is killed by the runner of the study; here only its
	// first process.
	for (; now() < until; times++) {
		pid = child("repeat");
		if (pid == 0) {
			int null = open("/dev/null", O_WRONLY);

			dup2(null, 1);
			dup2(null, 2);
			execvp(command[0], command);
			_exit(127);
		}
		while ((ended = waitpid(pid, NULL, WNOHANG)) == 0 && now() < until)
			usleep(20000);
		if (!ended) {
			kill(pid, SIGTERM);
			waitpid(pid, NULL, 0);
		}
	}
	report("repeat", times);
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[1] : "";

	until = now() + (argc > 2 ? atof(argv[2]) : 0) * SECOND;
	if (!strcmp(mode, "spin") && argc == 7) {
		int cpu = atoi(argv[4]), period = atoi(argv[6]);
		struct sched_param priority = { .sched_priority = 5 };

		// Inherited: a loop that became one by itself would not let the next one do so.
		if (!strcmp(argv[5], "rr") && sched_setscheduler(0, SCHED_RR, &priority))
			die("SCHED_RR");
		for (int i = 0; i < atoi(argv[3]); i++)
			if (child("spin") == 0)
				return spin(cpu), 0;
		if (period && child("daemon") == 0)
			return wake_again_and_again("daemon", cpu, period * MS, 13000), 0;
		return !wait_all();
	}
	if (!strcmp(mode, "player")) {
		prctl(PR_SET_NAME, "player");
		return wake_again_and_again("player", -1, 40 * MS, 6 * MS), 0;
	}
	if (!strcmp(mode, "copy") && argc == 5)
		return copy(argv[3], atoi(argv[4]));
	if (!strcmp(mode, "netcopy"))
		return netcopy();
	if (!strcmp(mode, "repeat") && argc > 3)
		return repeat(argv + 3);
	return fprintf(stderr, "quanta: see the head of quanta.c\n"), 2;
}
