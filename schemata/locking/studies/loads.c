// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The servers of the KLogger paper's section 8, and their clients, on this machine's loopback.
 *
 * Usage: loads rr PAIRS REQUEST RESPONSE SECONDS
 *        loads web CLIENTS FILES FOLDER SECONDS
 *
 *   rr   each pair has a TCP connection: REQUEST bytes one way, RESPONSE bytes back, and again
 *   web  a server that forks; each request runs "cat -n FOLDER/NUMBER.c" with the connection as its
 *        output, as a CGI filter would. As many acceptors as clients; each client asks for one of
 *        FILES files after the other
 *
 * Prints "done NUMBER": round trips, or requests that were answered.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_MAX 65536

static struct timespec began;
static double seconds;
static long *done;	/* shared by all processes */
static char buffer[MESSAGE_MAX];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int is_over(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec - began.tv_sec + (now.tv_nsec - began.tv_nsec) / 1e9 >= seconds;
}

static int listen_on(struct sockaddr_in *at)
{
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t size = sizeof(*at);

	*at = (struct sockaddr_in){.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (listener < 0 || bind(listener, (struct sockaddr *)at, size) || listen(listener, 128) ||
	    getsockname(listener, (struct sockaddr *)at, &size))
		fail("listen");
	return listener;
}

static int connect_to(const struct sockaddr_in *at)
{
	int one = 1, to = socket(AF_INET, SOCK_STREAM, 0);

	if (to < 0 || connect(to, (const struct sockaddr *)at, sizeof(*at)))
		return -1;
	setsockopt(to, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return to;
}

/* False if the other side is gone. */
static int transfer(int with, size_t bytes, ssize_t (*move)(int, void *, size_t, int))
{
	while (bytes > 0) {
		ssize_t moved = move(with, buffer, bytes, MSG_NOSIGNAL);

		if (moved <= 0)
			return 0;
		bytes -= moved;
	}
	return 1;
}

static ssize_t give(int to, void *from, size_t bytes, int flags)
{
	return send(to, from, bytes, flags);
}

/* A child ends with its parent, whatever ends that. */
static pid_t child(const char *name)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, name);
	}
	return pid;
}

static void answer(int from, size_t request, size_t response)
{
	int one = 1;

	setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	while (transfer(from, request, recv) && transfer(from, response, give))
		;
	_exit(0);
}

static void ask(int to, size_t request, size_t response)
{
	while (!is_over() && transfer(to, request, give) && transfer(to, response, recv))
		__atomic_fetch_add(done, 1, __ATOMIC_RELAXED);
	_exit(0);
}

/* The connection is made before either process is, so that each holds its own end only. */
static void round_robin(int pairs, size_t request, size_t response)
{
	struct sockaddr_in at;
	int listener = listen_on(&at);

	if (request < 1 || response < 1 || request > MESSAGE_MAX || response > MESSAGE_MAX)
		fail("size");
	for (int i = 0; i < pairs; i++) {
		int near = connect_to(&at), far = accept(listener, NULL, NULL);

		if (near < 0 || far < 0)
			fail("connect");
		if (child("server") == 0) {
			close(near);
			answer(far, request, response);
		}
		close(far);
		if (child("client") == 0)
			ask(near, request, response);
		close(near);
	}
	while (wait(NULL) > 0)
		;
}

static void serve(int listener, const char *folder)
{
	for (;;) {
		int from = accept4(listener, NULL, NULL, SOCK_CLOEXEC), number = 0;
		char file[4096];

		if (from < 0)
			continue;
		if (recv(from, &number, sizeof(number), MSG_WAITALL) == sizeof(number)) {
			snprintf(file, sizeof(file), "%s/%d.c", folder, number);
			if (child("filter") == 0) {
				dup2(from, 1);
				execlp("cat", "cat", "-n", file, NULL);
				_exit(127);
			}
			while (wait(NULL) < 0)
				;
		}
		close(from);
	}
}

static void browse(const struct sockaddr_in *at, int number, int files)
{
	for (; !is_over(); number++) {
		int to = connect_to(at), wanted = number % files + 1;
		long bytes = 0;
		ssize_t got;

		if (to < 0)
			continue;
		if (send(to, &wanted, sizeof(wanted), MSG_NOSIGNAL) == sizeof(wanted))
			while ((got = recv(to, buffer, sizeof(buffer), 0)) > 0)
				bytes += got;
		close(to);
		if (bytes > 0)
			__atomic_fetch_add(done, 1, __ATOMIC_RELAXED);
	}
	_exit(0);
}

static void web(int clients, int files, const char *folder)
{
	struct sockaddr_in at;
	int listener = listen_on(&at);
	pid_t servers[clients], browsers[clients];

	for (int i = 0; i < clients; i++) {
		servers[i] = child("acceptor");
		if (servers[i] == 0)
			serve(listener, folder);
		browsers[i] = child("browser");
		if (browsers[i] == 0)
			browse(&at, i * 7, files);
	}
	for (int i = 0; i < clients; i++)
		waitpid(browsers[i], NULL, 0);
	for (int i = 0; i < clients; i++) {
		kill(servers[i], SIGKILL);
		waitpid(servers[i], NULL, 0);
	}
}

int main(int argc, char **argv)
{
	int parallel = argc == 6 ? atoi(argv[2]) : 0;

	if (parallel < 1 || parallel > 1024 || atoi(argv[3]) < 1) {
		fprintf(stderr, "usage: loads rr PAIRS REQUEST RESPONSE SECONDS\n"
				"       loads web CLIENTS FILES FOLDER SECONDS\n");
		return 2;
	}
	done = mmap(NULL, sizeof(*done), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (done == MAP_FAILED)
		fail("mmap");
	seconds = atof(argv[5]);
	clock_gettime(CLOCK_MONOTONIC, &began);
	if (!strcmp(argv[1], "web"))
		web(parallel, atoi(argv[3]), argv[4]);
	else
		round_robin(parallel, atoi(argv[3]), atoi(argv[4]));
	printf("done %ld\n", *done);
	return 0;
}
