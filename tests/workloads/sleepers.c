// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// sleepers N TIMES US: N processes sleep TIMES times for US microseconds each, and do nothing else.
#include "oracle.h"

int main(int argc, char **argv)
{
	long n = argument(argc, argv, 1, 4), times = argument(argc, argv, 2, 50),
	     us = argument(argc, argv, 3, 1000);

	reports_init();
	for (long i = 0; i < n; i++) {
		if (fork() == 0) {
			for (long k = 0; k < times; k++)
				usleep(us);
			report("sleeper", times);
			_exit(0);
		}
	}
	if (!wait_all())
		return 1;
	print_reports("sleepers", "");
	return 0;
}
