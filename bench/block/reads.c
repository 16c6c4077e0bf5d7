// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Reads 4 KiB at random places of a disk, many at once, and does little else: fio takes more
 * instructions for a read than a tracer. Prints how many reads a second that were.
 * usage: reads DISK READS
 */
#include <err.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE 64u
#define SIZE 4096u

struct rings {
	int fd;
	uint32_t *sq_tail, *sq_mask, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
};

static void *mapped(int fd, size_t size, off_t what)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);

	if (at == MAP_FAILED)
		err(1, "mmap of io_uring");
	return at;
}

static void register_with(int fd, unsigned what, void *with)
{
	if (syscall(SYS_io_uring_register, fd, what, with, 1))
		err(1, "io_uring_register");
}

static struct rings made(int disk, void *memory)
{
	struct iovec buffer = {memory, AT_ONCE * SIZE};
	struct io_uring_params p = {0};
	int fd = syscall(SYS_io_uring_setup, AT_ONCE, &p);
	char *sq, *cq;
	uint32_t *array;

	if (fd < 0)
		err(1, "io_uring_setup");
	sq = mapped(fd, p.sq_off.array + p.sq_entries * sizeof(uint32_t), IORING_OFF_SQ_RING);
	cq = mapped(fd, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
		    IORING_OFF_CQ_RING);
	array = (uint32_t *)(sq + p.sq_off.array);
	for (uint32_t n = 0; n < p.sq_entries; n++)
		array[n] = n;
	register_with(fd, IORING_REGISTER_BUFFERS, &buffer);
	register_with(fd, IORING_REGISTER_FILES, &disk);
	return (struct rings){
		.fd = fd,
		.sq_tail = (uint32_t *)(sq + p.sq_off.tail),
		.sq_mask = (uint32_t *)(sq + p.sq_off.ring_mask),
		.cq_head = (uint32_t *)(cq + p.cq_off.head),
		.cq_tail = (uint32_t *)(cq + p.cq_off.tail),
		.cq_mask = (uint32_t *)(cq + p.cq_off.ring_mask),
		.sqes = mapped(fd, p.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES),
		.cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes),
	};
}

/* Reads `count` pieces, and waits for all of them. */
static void read_some(struct rings *r, char *memory, uint32_t count, uint64_t pieces)
{
	static uint64_t random = 88172645463325252u;
	uint32_t tail = *r->sq_tail, head = *r->cq_head;

	for (uint32_t n = 0; n < count; n++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		r->sqes[tail++ & *r->sq_mask] = (struct io_uring_sqe){
			.opcode = IORING_OP_READ_FIXED,
			.flags = IOSQE_FIXED_FILE,
			.addr = (uintptr_t)memory + n * SIZE,
			.len = SIZE,
			.off = random % pieces * SIZE,
		};
	}
	__atomic_store_n(r->sq_tail, tail, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, r->fd, count, count, IORING_ENTER_GETEVENTS, NULL, 0) !=
	    (long)count)
		err(1, "io_uring_enter");
	for (uint32_t end = __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE); head != end; head++)
		if (r->cqes[head & *r->cq_mask].res != SIZE)
			errx(1, "a read returned %d", r->cqes[head & *r->cq_mask].res);
	__atomic_store_n(r->cq_head, head, __ATOMIC_RELEASE);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	uint64_t bytes = 0, reads = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	char *memory = mmap(NULL, AT_ONCE * SIZE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	struct rings rings;
	double began;
	int disk;

	if (!reads)
		errx(2, "usage: reads DISK READS");
	disk = open(argv[1], O_RDONLY | O_DIRECT);
	if (disk < 0 || ioctl(disk, BLKGETSIZE64, &bytes) || bytes < SIZE || memory == MAP_FAILED)
		err(1, "%s", argv[1]);
	rings = made(disk, memory);
	began = now();
	for (uint64_t left = reads; left;) {
		uint32_t count = left < AT_ONCE ? left : AT_ONCE;

		read_some(&rings, memory, count, bytes / SIZE);
		left -= count;
	}
	printf("%.0f\n", reads / (now() - began));
	return 0;
}
