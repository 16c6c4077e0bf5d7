// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two processes that talk over TCP on the loopback device: `workload late TIMES`, `workload lost
// MS`.
#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void must(int good)
{
	if (!good) {
		perror("workload");
		exit(1);
	}
}

/* The acknowledgement of the first byte is delayed, and Nagle's rule keeps the second one back. */
static void late_client(int to, int times)
{
	char byte = 1;

	for (int i = 0; i < times; i++) {
		must(write(to, &byte, 1) == 1);
		must(write(to, &byte, 1) == 1);
		must(read(to, &byte, 1) == 1);
	}
}

static void late_server(int from, int times)
{
	char bytes[2];
	int no = 0;

	for (int i = 0; i < times; i++) {
		must(!setsockopt(from, IPPROTO_TCP, TCP_QUICKACK, &no, sizeof(no)));
		must(recv(from, bytes, 2, MSG_WAITALL) == 2);
		must(write(from, bytes, 1) == 1);
	}
}

static int drops[2];

/* All packets to a socket are dropped for so long. */
static void lost_client(int to)
{
	char byte = 1;

	must(read(drops[0], &byte, 1) == 1);
	must(write(to, &byte, 1) == 1);
	must(read(to, &byte, 1) == 1);
}

static void lost_server(int from, int ms)
{
	struct sock_filter drop = { BPF_RET | BPF_K, 0, 0, 0 };
	struct sock_fprog program = { 1, &drop };
	struct timespec time = { ms / 1000, ms % 1000 * 1000000L };
	char byte = 1;
	int no = 0;

	must(!setsockopt(from, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)));
	must(write(drops[1], &byte, 1) == 1);
	nanosleep(&time, NULL);
	must(!setsockopt(from, SOL_SOCKET, SO_DETACH_FILTER, &no, sizeof(no)));
	must(read(from, &byte, 1) == 1);
	must(write(from, &byte, 1) == 1);
}

int main(int count, char **words)
{
	int listens = socket(AF_INET, SOCK_STREAM, 0), one, is_late, number;
	struct sockaddr_in where = { .sin_family = AF_INET };
	socklen_t length = sizeof(where);

	if (count < 3)
		return 2;
	is_late = !strcmp(words[1], "late");
	number = atoi(words[2]);
	where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	must(!bind(listens, (struct sockaddr *)&where, sizeof(where)));
	must(!listen(listens, 1));
	must(!getsockname(listens, (struct sockaddr *)&where, &length));
	must(!pipe(drops));
	if (!fork()) {
		prctl(PR_SET_NAME, "server");
		one = accept(listens, NULL, NULL);
		is_late ? late_server(one, number) : lost_server(one, number);
		exit(0);
	}
	prctl(PR_SET_NAME, "client");
	one = socket(AF_INET, SOCK_STREAM, 0);
	must(!connect(one, (struct sockaddr *)&where, length));
	is_late ? late_client(one, number) : lost_client(one);
	printf("{\"port\": %d}\n", ntohs(where.sin_port));
	wait(NULL);
	return 0;
}
