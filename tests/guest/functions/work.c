// SPDX-License-Identifier: GPL-2.0-only
/* Known numbers of calls: see test_functions.py. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map_and_unmap(void)
{
	size_t size = 0x1234000;
	void *memory = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return memory != MAP_FAILED && !munmap(memory, size);
}

int main(int argc, char **argv)
{
	const char *file = "/run/klogger-functions";
	int fd, readable;
	struct stat about;

	if (argc != 5)
		return 2;
	fd = open(file, O_RDWR | O_CREAT, 0600);
	readable = open(file, O_RDONLY);
	if (fd < 0 || readable < 0 || fstat(fd, &about))
		return 1;
	for (int i = 0; i < atoi(argv[1]); i++)
		if (fallocate(fd, 0, 0, 4096 + i))
			return 1;
	for (int i = 0; i < atoi(argv[2]); i++)
		if (!fallocate(readable, 0, 0, 1 + i))
			return 1;
	for (int i = 0; i < atoi(argv[3]); i++)
		if (!map_and_unmap())
			return 1;
	for (int i = 0; i < atoi(argv[4]); i++)
		if (ftruncate(fd, i))
			return 1;
	printf("inode %lu\n", (unsigned long)about.st_ino);
	unlink(file);
	return 0;
}
