// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Maps the file that is named, readable and writable, prints the flags of the mapping, and crashes
 * with a core dump of any size.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static void print_flags(void *mapping)
{
	char line[512];
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long start, end;
	int here = 0;

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = start == (unsigned long)mapping;
		if (here && !strncmp(line, "VmFlags:", 8))
			fputs(line, stdout);
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct rlimit any = { RLIM_INFINITY, RLIM_INFINITY };
	int file = argc == 2 ? open(argv[1], O_RDWR) : -1;
	volatile char *mapping = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

	if (mapping == MAP_FAILED || setrlimit(RLIMIT_CORE, &any))
		return 2;
	mapping[0] = mapping[4096];
	print_flags((void *)mapping);
	abort();
}
