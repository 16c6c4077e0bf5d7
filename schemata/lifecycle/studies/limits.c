// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// limits USER MEMORY MAPS: makes threads until that fails, each time with a limit of this process
// that nobody else feels:
//   a user of its own who may have USER processes and threads (RLIMIT_NPROC);
//   MEMORY KiB more of address space than it has (RLIMIT_AS);
//   all memory maps used up but MAPS (vm.max_map_count).
// Reports how many there were, and the error.
#include "threads.h"

// More than each limit should admit.
#define MOST 20000
// Nobody's: beyond all that systems give to users and to containers by default. The number of the
// process is added, so that two studies at the same time do not share a user.
#define OWN_USERS 2143000000
// Filling more maps takes too long.
#define MAPS_MAX 300000

static int user, gate;
static long memory, maps;

static void *wait_at_gate(void *unused)
{
	pass(&gate);
	return unused;
}

static long maps_of(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	long lines = 0;
	int c;

	while (file && (c = getc(file)) != EOF)
		lines += c == '\n';
	if (file)
		fclose(file);
	return lines;
}

static void until_it_fails(const char *kind, long limit)
{
	static pthread_t threads[MOST];
	long before = maps_of();
	pthread_attr_t attr;
	int made = 0, error;

	stacks_of(&attr);
	while (made < MOST && !(error = pthread_create(&threads[made], &attr, wait_at_gate, NULL)))
		made++;
	before = maps_of() - before;
	open_gate(&gate);
	for (int i = 0; i < made; i++)
		must(pthread_join(threads[i], NULL), "pthread_join");
	printf("{\"role\": \"limit\", \"kind\": \"%s\", \"limit\": %ld, \"made\": %d, "
	       "\"maps\": %ld, \"errno\": %d, \"error\": \"%s\"}\n",
	       kind, limit, made, before, error, strerror(error));
}

static void limit_to(int which, rlim_t value)
{
	if (setrlimit(which, &(struct rlimit){ value, value }))
		die("setrlimit");
}

static void of_user(void)
{
	int own = OWN_USERS + getpid();

	limit_to(RLIMIT_NPROC, user);
	// Where this user does not exist, as in a container, there is no answer.
	if (setresuid(own, own, own))
		return;
	until_it_fails("user", user);
}

static void of_memory(void)
{
	limit_to(RLIMIT_AS, (number_in("/proc/self/status", "VmSize") + memory) * 1024);
	until_it_fails("memory", memory);
}

// A region in which every other page has another protection has as many maps as pages.
static void of_maps(void)
{
	long page = sysconf(_SC_PAGESIZE), max = 0, pages;
	FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
	char *region;

	if (!file || fscanf(file, "%ld", &max) != 1)
		die("/proc/sys/vm/max_map_count");
	fclose(file);
	pages = max - maps - maps_of();
	if (pages < 1 || max > MAPS_MAX)
		return;
	region = mmap(NULL, pages * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (region == MAP_FAILED)
		die("mmap");
	for (long i = 1; i < pages; i += 2)
		if (mprotect(region + i * page, page, PROT_READ))
			die("mprotect");
	until_it_fails("maps", max - maps_of());
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return fprintf(stderr, "limits USER MEMORY MAPS\n"), 2;
	user = atoi(argv[1]);
	memory = atol(argv[2]);
	maps = atol(argv[3]);
	apart(of_user);
	apart(of_memory);
	apart(of_maps);
	return 0;
}
