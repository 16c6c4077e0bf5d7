// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Makes a prime number of rounds of system calls, for tests/live/passed_on.klogger.
//
// Prints the number of complete rounds, and how often it slept.
#include "oracle.h"
#include <sys/prctl.h>

#define ROUNDS 1009
#define SLEEP_EVERY 53

int main(void)
{
	struct timespec short_while = { .tv_nsec = 1000000 };
	int sleeps = 0;

	// The one behind the last is there to end it.
	for (long n = 0; n <= ROUNDS; n++) {
		syscall(SYS_prctl, 1009, n, 0, 0, 0);
		syscall(SYS_getppid);
		syscall(SYS_dup, -1);
		syscall(SYS_close, -1);
		syscall(SYS_prctl, PR_SET_NAME, "pass_on", 0, 0, 0);
		if (n % SLEEP_EVERY == 0) {
			nanosleep(&short_while, NULL);
			sleeps++;
		}
	}
	printf("{\"pid\": %d, \"rounds\": %d, \"sleeps\": %d}\n", getpid(), ROUNDS, sleeps);
	return 0;
}
