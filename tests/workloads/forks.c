// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// forks N: exactly N processes, one after the other; each becomes another program (this one, with
// no work to do).
#include "oracle.h"

int main(int argc, char **argv)
{
	long n = argument(argc, argv, 1, 23);
	int ok = 1;

	if (argc > 1 && !strcmp(argv[1], "leaf"))
		return 0;
	printf("{\"workload\": \"forks\", \"pid\": %d, \"children\": [", getpid());
	fflush(stdout);
	for (long i = 0; i < n; i++) {
		int child = fork();

		if (child == 0) {
			execl("/proc/self/exe", "leaf", "leaf", NULL);
			_exit(1);
		}
		ok &= child > 0 && wait_all();
		printf("%s%d", i ? ", " : "", child);
	}
	printf("]}\n");
	return !ok;
}
