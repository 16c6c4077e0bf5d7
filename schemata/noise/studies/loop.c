// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// loop SECONDS CPU BYTES NEIGHBOUR RATE: a loop that is calibrated to take 1 ms, again and again,
// on one CPU, under SCHED_FIFO. Each iteration logs an event. Prints what it counted itself, as
// JSON.
//
//   BYTES      0: an iteration only computes; 8: it increments a word of the stack; else it walks
//              an array of so many bytes
//   NEIGHBOUR  none; or what interrupts the CPU about RATE times a second:
//              timer    a timer of the kernel on that CPU, which only counts
//              packets  datagrams from another CPU, delivered by that one
//              ipi      another thread of this process unmaps memory, which that CPU must forget
//                       too
//              disk     direct reads of a file
//
// It gives its CPU up for a moment after each block of iterations, and calibrates anew: a FIFO
// thread that never sleeps starves the kernel's own threads, and the CPU's speed changes in the
// course of time.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "noise.klogger.h"
#include "timer_interrupts.h"

#define NOMINAL_NS 1000000
#define BLOCK 500
#define REST_NS 10000000
#define FIFO_PRIORITY 10

static int cpu, other;
static long rate;
static volatile int stop;
static volatile long long sent;
static char *array;
static size_t array_size;

static void die(const char *what)
{
	fprintf(stderr, "loop: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void rest(uint64_t ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };

	nanosleep(&t, NULL);
}

static void run_on(int where)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(where, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

// Each turn needs the result of the one before; no memory is touched.
static void __attribute__((noinline)) compute(uint64_t turns)
{
	uint64_t x = turns | 1;

	for (uint64_t i = 0; i < turns; i++) {
		x *= x;
		__asm__ volatile("" : "+r"(x));
	}
}

// The paper's loop: an index on the stack is read, incremented and written back.
static void __attribute__((noinline)) count_up(uint64_t turns)
{
	volatile uint64_t i;

	for (i = 0; i < turns; i++)
		;
}

static void __attribute__((noinline)) walk(uint64_t turns)
{
	size_t at = 0;

	for (uint64_t i = 0; i < turns; i++) {
		++*(volatile char *)(array + at);
		at += 64;
		if (at >= array_size)
			at = 0;
	}
}

static void iterate(uint64_t turns)
{
	if (array)
		walk(turns);
	else if (array_size)
		count_up(turns);
	else
		compute(turns);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

// How many turns take the nominal time: the median of some, until it is right within 1 %. Counts if
// it never is.
static uint64_t calibrate(uint64_t turns, long *failed)
{
	for (int tries = 0; tries < 20; tries++) {
		uint64_t took[9], median;

		for (int i = 0; i < 9; i++) {
			uint64_t began = now();

			iterate(turns);
			took[i] = now() - began;
		}
		qsort(took, 9, sizeof(*took), by_value);
		median = took[4] ? took[4] : 1;
		if (median > NOMINAL_NS / 100 * 99 && median < NOMINAL_NS / 100 * 101)
			return turns;
		turns = (double)turns * NOMINAL_NS / median + 1;
	}
	++*failed;
	return turns;
}

// The kernel's own timer of a software counter; its count is not read.
static void start_timer(void)
{
	struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
				       .size = sizeof(attr),
				       .config = PERF_COUNT_SW_CPU_CLOCK};

	attr.sample_period = 1000000000 / rate;
	if (syscall(SYS_perf_event_open, &attr, -1, cpu, -1, 0) < 0)
		die("perf_event_open");
}

static uint64_t pace(uint64_t due)
{
	uint64_t t = now();

	due += 1000000000 / rate;
	if (due > t)
		rest(due - t);
	return due > t ? due : t;
}

// A loopback device of our own, which is gone when the process is: whatever arrives there is for
// the loop's CPU.
static void own_loopback(void)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd, control;
	char mask[32];

	if (unshare(CLONE_NEWNET | CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("klogger", "/sys", "sysfs", 0, NULL))
		die("a network of its own");
	control = socket(AF_INET, SOCK_DGRAM, 0);
	if (control < 0 || ioctl(control, SIOCSIFFLAGS, &request))
		die("lo");
	close(control);
	// Groups of 32 CPUs, the last group first.
	snprintf(mask, sizeof(mask), "%x", 1u << cpu % 32);
	for (int group = cpu / 32; group > 0; group--)
		strcat(mask, ",0");
	fd = open("/sys/class/net/lo/queues/rx-0/rps_cpus", O_WRONLY);
	if (fd < 0 || write(fd, mask, strlen(mask)) < 0)
		die("rps_cpus");
	close(fd);
}

static void *send_packets(void *unused)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);
	char packet[1024] = { 0 };

	(void)unused;
	run_on(other);
	if (in < 0 || out < 0 || bind(in, (void *)&address, length) ||
	    getsockname(in, (void *)&address, &length))
		die("socket");
	for (uint64_t due = now(); !stop; due = pace(due), sent++) {
		sendto(out, packet, sizeof(packet), 0, (void *)&address, length);
		while (recv(in, packet, sizeof(packet), MSG_DONTWAIT) > 0)
			;
	}
	return NULL;
}

static void *unmap(void *unused)
{
	(void)unused;
	run_on(other);
	for (uint64_t due = now(); !stop; due = pace(due), sent++) {
		char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				  -1, 0);

		if (page == MAP_FAILED)
			die("mmap");
		*page = 1;
		munmap(page, 4096);
	}
	return NULL;
}

static void *read_disk(void *unused)
{
	const size_t size = 16 << 20, part = 64 << 10;
	char *buffer;
	int fd = open(".", O_TMPFILE | O_RDWR | O_DIRECT, 0600);

	(void)unused;
	run_on(other);
	if (posix_memalign((void **)&buffer, 4096, part))
		die("memory");
	memset(buffer, 1, part);
	if (fd < 0)
		die("a file for direct reads");
	for (size_t at = 0; at < size; at += part)
		if (pwrite(fd, buffer, part, at) != (ssize_t)part)
			die("a file for direct reads");
	for (uint64_t due = now(); !stop; due = pace(due), sent++)
		if (pread(fd, buffer, part, sent * part % size) != (ssize_t)part)
			die("direct read");
	return NULL;
}

// In a thread of its own; true if there is one to be waited for.
static int start_neighbour(const char *name, pthread_t *thread)
{
	void *(*work)(void *) = NULL;

	if (!strcmp(name, "timer"))
		start_timer();
	else if (!strcmp(name, "packets"))
		work = send_packets;
	else if (!strcmp(name, "ipi"))
		work = unmap;
	else if (!strcmp(name, "disk"))
		work = read_disk;
	else if (strcmp(name, "none")) {
		fprintf(stderr, "loop: no neighbour '%s'\n", name);
		exit(2);
	}
	if (work == send_packets)
		own_loopback();
	if (work && (errno = pthread_create(thread, NULL, work, NULL)))
		die("pthread_create");
	return work != NULL;
}

static void be_measured(void)
{
	struct sched_param fifo = { .sched_priority = FIFO_PRIORITY };

	run_on(cpu);
	if (sched_setscheduler(0, SCHED_FIFO, &fifo))
		die("SCHED_FIFO");
}

int main(int argc, char **argv)
{
	uint64_t turns = 1000000, began, ended, in_blocks = 0;
	struct rusage usage;
	pthread_t neighbour;
	long long before, after;
	long iterations = 0, blocks = 0, uncalibrated = 0;
	double seconds;
	int threads, tid = gettid();

	if (argc != 6) {
		fprintf(stderr, "usage: loop SECONDS CPU BYTES none|timer|packets|ipi|disk RATE\n");
		return 2;
	}
	seconds = atof(argv[1]);
	cpu = atoi(argv[2]);
	other = cpu ? cpu - 1 : sysconf(_SC_NPROCESSORS_ONLN) - 1;
	array_size = strtoul(argv[3], NULL, 10);
	rate = atol(argv[5]) > 0 ? atol(argv[5]) : 1;
	if (array_size > 8 && !(array = calloc(1, array_size)))
		die("memory");
	threads = start_neighbour(argv[4], &neighbour);
	be_measured();
	began = counted_at(cpu, &before);
	do {
		uint64_t block;

		turns = calibrate(turns, &uncalibrated);
		block = now();
		klogger(LOOP_BEGIN, turns, NOMINAL_NS, array_size, tid, cpu);
		for (int i = 1; i <= BLOCK && now() - began < seconds * 1e9; i++, iterations++) {
			iterate(turns);
			klogger(LOOP, i, tid);
		}
		in_blocks += now() - block;
		blocks++;
		rest(REST_NS);
	} while (now() - began < seconds * 1e9);
	ended = counted_at(cpu, &after);
	getrusage(RUSAGE_THREAD, &usage);
	stop = 1;
	if (threads)
		pthread_join(neighbour, NULL);
	printf("{\"cpu\": %d, \"iterations\": %ld, \"blocks\": %ld, \"uncalibrated\": %ld, "
	       "\"began\": %llu, \"ended\": %llu, \"in_blocks\": %llu, "
	       "\"sent\": %lld, \"timer\": %lld, \"nvcsw\": %ld, \"nivcsw\": %ld}\n",
	       cpu, iterations, blocks, uncalibrated, (unsigned long long)began,
	       (unsigned long long)ended, (unsigned long long)in_blocks, sent,
	       before < 0 ? -1 : after - before, usage.ru_nvcsw, usage.ru_nivcsw);
	return 0;
}
