// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// large EVENTS: logs TEXTS whose second text has 2900 letters, then a short TEXT, in turn.
#include <stdlib.h>
#include <string.h>
#include "types.klogger.h"

int main(int argc, char **argv)
{
	static char letters[2901];
	unsigned events = argc > 1 ? atoi(argv[1]) : 1000, n;

	memset(letters, 'x', sizeof(letters) - 1);
	for (n = 0; n < events; n++) {
		klogger(TEXTS, "first", n & 255, letters, "third");
		klogger(TEXT, n & 255, "short", n);
	}
	return 0;
}
