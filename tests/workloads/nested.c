// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// nested MS: floods each CPU with probe hits (changes of its own name) for MS milliseconds, while a
// timer interrupts the flood every 100 us and datagrams over loopback bring soft interrupts, so
// that hits happen within hits.
#include "oracle.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static unsigned long long until;

static void on_tick(int signal)
{
	(void)signal;
}

static void tick_every(long us)
{
	struct itimerspec every = { { 0, us * 1000 }, { 0, us * 1000 } };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
	struct sigaction action = { .sa_handler = on_tick, .sa_flags = SA_RESTART };
	timer_t timer;

	if (sigaction(SIGALRM, &action, NULL) || timer_create(CLOCK_MONOTONIC, &event, &timer) ||
	    timer_settime(timer, 0, &every, NULL))
		die("timer");
}

static void flood(int cpu)
{
	long long n = 0;

	run_on(cpu);
	tick_every(100);
	while (clock_ns(CLOCK_MONOTONIC) < until)
		for (int i = 0; i < 64; i++, n++)
			prctl(PR_SET_NAME, i & 1 ? "nested-odd" : "nested-even");
	report("flood", n);
}

// Sends to itself: sending and receiving both run here; the soft interrupt in between may run
// anywhere.
static void traffic(int cpu)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int in = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0),
	    out = socket(AF_INET, SOCK_DGRAM, 0);
	char packet[64] = { 0 };
	long long n = 0;

	run_on(cpu);
	if (in < 0 || out < 0 || bind(in, (void *)&address, length) ||
	    getsockname(in, (void *)&address, &length))
		die("socket");
	while (clock_ns(CLOCK_MONOTONIC) < until) {
		for (int i = 0; i < 8; i++)
			sendto(out, packet, sizeof(packet), 0, (void *)&address, length);
		while (recv(in, packet, sizeof(packet), 0) > 0)
			n++;
		usleep(200);
	}
	report("traffic", n);
}

int main(int argc, char **argv)
{
	int cpus = sysconf(_SC_NPROCESSORS_ONLN);

	reports_init();
	until = clock_ns(CLOCK_MONOTONIC) + argument(argc, argv, 1, 1000) * 1000000;
	for (int i = 0; i < cpus; i++) {
		for (int kind = 0; kind < 2; kind++) {
			if (fork() == 0) {
				(kind ? traffic : flood)(i);
				_exit(0);
			}
		}
	}
	if (!wait_all())
		return 1;
	print_reports("nested", "");
	return 0;
}
