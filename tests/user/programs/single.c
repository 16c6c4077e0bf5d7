// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One event, to look at its machine code. main contains nothing else of klogger.
#include "count.klogger.h"

void one_event(unsigned thread, unsigned n, unsigned long long proof);

void one_event(unsigned thread, unsigned n, unsigned long long proof)
{
	klogger(COUNT, thread, n, proof);
}

int main(int argc, char **argv)
{
	(void)argv;
	one_event(0, argc, ~(unsigned long long)argc);
	return 0;
}
