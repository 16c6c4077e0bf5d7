// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two schemata, and events of one of them in two files.
#include "count.klogger.h"
#include "other.klogger.h"

void second(int value);

int main(void)
{
	klogger(COUNT, 0, 1, ~1ull);
	klogger(OTHER, 2);
	second(3);
	return 0;
}
