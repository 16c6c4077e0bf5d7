// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// ring OBJECT BYTES FILE: attaches ring.bpf.c with a ring of so many bytes and writes its events to
// FILE, until SIGINT. Says "ready" when it is attached, and at its end how many events there are in
// the file, and how many found no space.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#define POLL_MS 100
#define FILE_BUFFER (1 << 20)

static volatile sig_atomic_t over;
static unsigned long long logged;

static void stop(int signal)
{
	(void)signal;
	over = 1;
}

static int write_event(void *file, void *data, size_t size)
{
	logged++;
	return fwrite(data, size, 1, file) == 1 ? 0 : -EIO;
}

static void die(const char *what)
{
	fprintf(stderr, "ring: %s: %s\n", what, strerror(errno));
	exit(2);
}

static unsigned long long count_dropped(struct bpf_object *object)
{
	int cpus = libbpf_num_possible_cpus(), cpu,
	    fd = bpf_object__find_map_fd_by_name(object, "dropped");
	unsigned long long *counts = calloc((size_t)cpus, sizeof(*counts)), sum = 0;
	unsigned zero = 0;

	if (!counts || bpf_map_lookup_elem(fd, &zero, counts))
		die("the counts of what found no space");
	for (cpu = 0; cpu < cpus; cpu++)
		sum += counts[cpu];
	free(counts);
	return sum;
}

static struct bpf_object *load(const char *path, unsigned bytes)
{
	struct bpf_object *object = bpf_object__open_file(path, NULL);

	if (!object)
		die(path);
	if (bpf_map__set_max_entries(bpf_object__find_map_by_name(object, "ring"), bytes) ||
	    bpf_object__load(object))
		die("load");
	return object;
}

int main(int argc, char **argv)
{
	struct bpf_object *object;
	struct ring_buffer *ring;
	struct bpf_link *link;
	FILE *file;

	if (argc != 4)
		return 2;
	object = load(argv[1], (unsigned)strtoul(argv[2], NULL, 10));
	file = fopen(argv[3], "wb");
	if (!file || setvbuf(file, NULL, _IOFBF, FILE_BUFFER))
		die(argv[3]);
	ring = ring_buffer__new(bpf_object__find_map_fd_by_name(object, "ring"), write_event, file,
				NULL);
	link = bpf_program__attach(bpf_object__next_program(object, NULL));
	if (!ring || !link)
		die("attach");
	signal(SIGINT, stop);
	printf("ready\n");
	fflush(stdout);
	while (!over) {
		int got = ring_buffer__poll(ring, POLL_MS);

		// What waits for no wake-up is fetched too.
		if ((got < 0 && got != -EINTR) || ring_buffer__consume(ring) < 0)
			die("poll");
	}
	bpf_link__destroy(link);
	if (ring_buffer__consume(ring) < 0 || fclose(file))
		die(argv[3]);
	printf("{\"logged\": %llu, \"dropped\": %llu}\n", logged, count_dropped(object));
	return 0;
}
