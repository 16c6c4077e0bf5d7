// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The programs of the workload beside this file, in one. Its name when run says which one it is;
// SECONDS is how long.
//
//   spin SECONDS      computes, and never waits
//   player SECONDS    shows 25 frames a second, each of them 6 ms of work
//   daemon SECONDS    wakes 5 times a second for some microseconds
//   netcopy SECONDS   one process sends to another over a loopback connection
//   pingpong SECONDS  two processes send a byte to and fro over pipes
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ll

static long long until;

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 * MS + t.tv_nsec;
}

static void work(long long ns)
{
	for (long long end = now() + ns; now() < end;)
		;
}

static void periodic(long long period, long long ns)
{
	for (long long next = now(); next < until; next += period) {
		struct timespec t = { next / (1000 * MS), next % (1000 * MS) };

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		work(ns);
	}
}

// A child that does not outlive its parent, however that ends.
static int child(void)
{
	int pid = fork();

	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static int netcopy(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	static char block[16384];

	if (listener < 0 || bind(listener, (void *)&address, length) || listen(listener, 1) ||
	    getsockname(listener, (void *)&address, &length))
		return 1;
	if (child() == 0) {
		int in = accept(listener, NULL, NULL);

		while (read(in, block, sizeof(block)) > 0)
			;
		_exit(0);
	}
	int out = socket(AF_INET, SOCK_STREAM, 0);

	if (out < 0 || connect(out, (void *)&address, length))
		return 1;
	// As fast as a line of some 30 MB/s would bring it.
	while (now() < until) {
		if (write(out, block, sizeof(block)) < 0)
			return 1;
		usleep(500);
	}
	return 0;
}

static int pingpong(void)
{
	int there[2], back[2];
	char byte = 0;

	if (pipe(there) || pipe(back))
		return 1;
	if (child() == 0) {
		close(there[1]);
		while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
			;
		_exit(0);
	}
	while (now() < until)
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];

	until = now() + (argc > 1 ? atof(argv[1]) : 1) * 1000 * MS;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!strcmp(name, "spin"))
		work(until - now());
	else if (!strcmp(name, "player"))
		periodic(40 * MS, 6 * MS);
	else if (!strcmp(name, "daemon"))
		periodic(200 * MS, MS / 50);
	else if (!strcmp(name, "netcopy"))
		return netcopy();
	else if (!strcmp(name, "pingpong"))
		return pingpong();
	else
		return fprintf(stderr, "%s: not a program of this workload\n", name), 1;
	return 0;
}
