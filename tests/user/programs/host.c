// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// host LIBRARY TIMES: opens the library, logs, closes it, and logs its own events meanwhile.
#include <dlfcn.h>
#include <stdlib.h>
#include "count.klogger.h"

int main(int argc, char **argv)
{
	int times = argc > 2 ? atoi(argv[2]) : 1, i;

	for (i = 0; i < times; i++) {
		void *library = dlopen(argv[1], RTLD_NOW);
		void (*log)(int) = library ? (void (*)(int))dlsym(library, "library_log") : NULL;

		if (!log)
			return 1;
		klogger(COUNT, 0, i, ~(unsigned long long)i);
		log(i);
		dlclose(library);
	}
	return 0;
}
