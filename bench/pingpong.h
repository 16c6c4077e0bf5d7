/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * arms.h of klogger bench's loop.c: arm 1 is a round of ping-pong over pipes with another process
 * on the same CPU, two switches and two wake-ups; arm 0 is system calls without a tracepoint that
 * take about as long.
 */
#include <sys/prctl.h>
#include <unistd.h>

#define CALLS 20

static int there[2], back[2];

static void send_byte(int fd)
{
	if (write(fd, "", 1) != 1)
		_exit(1);
}

/* At the end of the first process its pipe ends too. */
static void get_byte(int fd)
{
	char byte;

	if (read(fd, &byte, 1) != 1)
		_exit(1);
}

static void start_partner(void)
{
	if (pipe(there) || pipe(back))
		_exit(1);
	if (fork() == 0) {
		/* What the others at our input and output are told must not depend on us. */
		close(0);
		close(1);
		close(there[1]);
		for (;;) {
			get_byte(there[0]);
			send_byte(back[1]);
		}
	}
	close(back[1]);
}

static void hit(unsigned arm, unsigned n)
{
	if (!there[1])
		start_partner();
	for (unsigned i = 0; i < n; i++) {
		if (arm == 0) {
			for (int call = 0; call < CALLS; call++)
				prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
			continue;
		}
		send_byte(there[1]);
		get_byte(back[0]);
	}
}
