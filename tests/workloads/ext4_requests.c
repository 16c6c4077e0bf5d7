// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * ext4_requests FILE: makes a file of 16 MiB, and reads it 23 times by 128 direct requests of 4 KiB
 * that are submitted together. Prints how many were done, with how many bytes each.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUNDS 23
#define REQUESTS 128
#define BLOCK 4096
#define BYTES (16l << 20)

static void check(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "ext4_requests: %s: %s\n", what, strerror(errno));
	exit(1);
}

int main(int argc, char **argv)
{
	static struct iocb requests[REQUESTS], *list[REQUESTS];
	static struct io_event events[REQUESTS];
	char *memory = aligned_alloc(BLOCK, 1 << 20);
	long i, round, done, whole = 0;
	aio_context_t context = 0;
	int file;

	check(argc == 2 && memory != NULL, "FILE");
	memset(memory, 1, 1 << 20);
	file = open(argv[1], O_CREAT | O_RDWR | O_DIRECT, 0644);
	check(file >= 0, argv[1]);
	for (i = 0; i < BYTES; i += 1 << 20)
		check(pwrite(file, memory, 1 << 20, i) == 1 << 20, "a write");
	check(!fsync(file), "fsync");
	check(!syscall(SYS_io_setup, REQUESTS, &context), "io_setup");
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < REQUESTS; i++) {
			memset(&requests[i], 0, sizeof(requests[i]));
			requests[i].aio_fildes = file;
			requests[i].aio_lio_opcode = IOCB_CMD_PREAD;
			requests[i].aio_buf = (unsigned long)(memory + i * BLOCK);
			requests[i].aio_nbytes = BLOCK;
			requests[i].aio_offset = i * 8 * BLOCK;
			list[i] = &requests[i];
		}
		for (done = 0; done < REQUESTS;) {
			long some = syscall(SYS_io_submit, context, REQUESTS - done, list + done);

			check(some > 0, "io_submit");
			done += some;
		}
		for (done = 0; done < REQUESTS;) {
			long some = syscall(SYS_io_getevents, context, 1, REQUESTS, events, NULL);

			check(some > 0, "io_getevents");
			for (i = 0; i < some; i++)
				whole += events[i].res == BLOCK;
			done += some;
		}
	}
	printf("{\"requests\": %d, \"whole\": %ld}\n", ROUNDS * REQUESTS, whole);
	return 0;
}
