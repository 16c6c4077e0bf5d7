// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Opens, writes, reads and closes a file by requests of io_uring, and prints how many it made of
 * each: a line "NAME TIMES BYTES". Ends with code 77 if the kernel does not allow io_uring.
 *
 * Usage: ring_files FOLDER
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ring;
static unsigned int *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
static struct io_uring_sqe *requests;
static struct io_uring_cqe *answers;

static void set_up(void)
{
	struct io_uring_params params = {};
	char *sq, *cq;

	ring = syscall(SYS_io_uring_setup, 8, &params);
	if (ring < 0)
		exit(77);
	sq = mmap(NULL, params.sq_off.array + params.sq_entries * sizeof(int),
		  PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	cq = mmap(NULL, params.cq_off.cqes + params.cq_entries * sizeof(*answers),
		  PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
	requests = mmap(NULL, params.sq_entries * sizeof(*requests), PROT_READ | PROT_WRITE,
			MAP_SHARED, ring, IORING_OFF_SQES);
	sq_tail = (unsigned int *)(sq + params.sq_off.tail);
	sq_mask = (unsigned int *)(sq + params.sq_off.ring_mask);
	sq_array = (unsigned int *)(sq + params.sq_off.array);
	cq_head = (unsigned int *)(cq + params.cq_off.head);
	cq_tail = (unsigned int *)(cq + params.cq_off.tail);
	cq_mask = (unsigned int *)(cq + params.cq_off.ring_mask);
	answers = (struct io_uring_cqe *)(cq + params.cq_off.cqes);
}

/* One request, and its result. */
static int done(int op, int fd, const void *address, unsigned int length, unsigned int flags)
{
	unsigned int tail = *sq_tail, at = tail & *sq_mask;
	int result;

	memset(&requests[at], 0, sizeof(requests[at]));
	requests[at].opcode = op;
	requests[at].fd = fd;
	requests[at].addr = (unsigned long)address;
	requests[at].len = length;
	requests[at].open_flags = flags;
	sq_array[at] = at;
	__atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
		exit(1);
	while (__atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) == *cq_head)
		;
	result = answers[*cq_head & *cq_mask].res;
	__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
	return result;
}

int main(int argc, char **argv)
{
	static char bytes[4096];
	int fd;

	if (argc != 2 || chdir(argv[1])) {
		fprintf(stderr, "usage: ring_files FOLDER\n");
		return 2;
	}
	set_up();
	fd = done(IORING_OP_OPENAT, AT_FDCWD, "ringed", 0600, O_RDWR | O_CREAT);
	if (fd < 0 || done(IORING_OP_OPENAT, AT_FDCWD, "absent", 0, O_RDONLY) != -2)
		return 1;
	for (int i = 0; i < 37; i++)
		if (done(IORING_OP_WRITE, fd, bytes, 101, 0) != 101)
			return 1;
	for (int i = 0; i < 41; i++)
		if (done(IORING_OP_READ, fd, bytes, 53, 0) != 53)
			return 1;
	if (done(IORING_OP_CLOSE, fd, NULL, 0, 0))
		return 1;
	printf("openat 2 0\nwrite 37 %d\nread 41 %d\nclose 1 0\n", 37 * 101, 41 * 53);
	return 0;
}
