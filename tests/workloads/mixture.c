// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// mixture MS: interrupts of many kinds on every CPU for MS milliseconds, none of which idles.
// Prints a line when it begins, when it has worked, and when it ends, and waits before and after it
// works, so that the kernel's counters can be read meanwhile.
#include "oracle.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>

static unsigned long long until;
static int ring[64][2];
static long cpus;
static int ended;

static int over(void)
{
	return clock_ns(CLOCK_MONOTONIC) >= until;
}

// Wakes the thread of the next CPU, and waits for that of the one before.
static void *pass(void *where)
{
	long cpu = (long)where;
	char byte = 0;

	run_on(cpu);
	while (!over()) {
		if (write(ring[(cpu + 1) % cpus][1], &byte, 1) != 1 ||
		    read(ring[cpu][0], &byte, 1) != 1)
			break;
		usleep(300);
	}
	// The next one may still be waiting for this one.
	close(ring[(cpu + 1) % cpus][1]);
	return NULL;
}

// The other threads of this process must flush their TLB entry of the page as well.
static void *unmap(void *where)
{
	run_on((long)where);
	while (!over()) {
		char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				  -1, 0);

		if (page == MAP_FAILED)
			die("mmap");
		*page = 1;
		munmap(page, 4096);
		usleep(500);
	}
	return NULL;
}

static void *send_packets(void *where)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int in = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0),
	    out = socket(AF_INET, SOCK_DGRAM, 0);
	char packet[64] = { 0 };

	run_on((long)where);
	if (in < 0 || out < 0 || bind(in, (void *)&address, length) ||
	    getsockname(in, (void *)&address, &length))
		die("socket");
	while (!over()) {
		sendto(out, packet, sizeof(packet), 0, (void *)&address, length);
		while (recv(in, packet, sizeof(packet), 0) > 0)
			;
		usleep(400);
	}
	return NULL;
}

static void write_disk(void)
{
	int fd = open(".", O_TMPFILE | O_RDWR | O_DIRECT, 0600);
	char *part = aligned_alloc(4096, 4096);

	// Not every file system supports this; then other interrupts must suffice.
	if (fd < 0 || !part)
		return;
	memset(part, 1, 4096);
	for (int i = 0; !over(); i = (i + 1) % 256) {
		if (pwrite(fd, part, 4096, i * 4096l) != 4096)
			return;
		usleep(1000);
	}
}

// Some kernels do not report every interrupt of an idle CPU. This thread has the lowest priority.
static void *be_busy(void *where)
{
	run_on((long)where);
	sched_setscheduler(0, SCHED_IDLE, &(struct sched_param) { 0 });
	while (!__atomic_load_n(&ended, __ATOMIC_RELAXED))
		;
	return NULL;
}

static void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	void *(*const work[])(void *) = { pass, unmap, send_packets };
	pthread_t threads[64 * 3], busy[64];

	cpus = sysconf(_SC_NPROCESSORS_ONLN);
	cpus = cpus > 64 ? 64 : cpus;
	signal(SIGPIPE, SIG_IGN);
	for (long i = 0; i < cpus; i++)
		if (pipe(ring[i]))
			die("pipe");
	for (long i = 0; i < cpus; i++)
		if (pthread_create(&busy[i], NULL, be_busy, (void *)i))
			die("pthread_create");
	usleep(20000);
	say("began");
	usleep(50000);
	until = clock_ns(CLOCK_MONOTONIC) + argument(argc, argv, 1, 1000) * 1000000;
	for (long i = 0; i < cpus * 3; i++)
		if (pthread_create(&threads[i], NULL, work[i % 3], (void *)(i / 3)))
			die("pthread_create");
	write_disk();
	for (long i = 0; i < cpus * 3; i++)
		pthread_join(threads[i], NULL);
	say("worked");
	usleep(300000);
	__atomic_store_n(&ended, 1, __ATOMIC_RELAXED);
	for (long i = 0; i < cpus; i++)
		pthread_join(busy[i], NULL);
	say("ended");
	return 0;
}
