// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// lives (LEVEL ROUNDS)...: makes LEVEL threads that live at the same time and lets them end, ROUNDS
// times, each level in a process of its own. Reports the times of each thread by the program's own
// clock, the memory that the process has with and without them, and a creation that failed.
#include "threads.h"

struct life {
	long long called, returned, runs, done;
	int tid;
};

static int level, rounds, gate, alive;
static struct life *lives;

static void *live(void *at)
{
	struct life *life = at;

	life->runs = now();
	life->tid = own_tid();
	__atomic_fetch_add(&alive, 1, __ATOMIC_RELEASE);
	pass(&gate);
	life->done = now();
	return NULL;
}

// The kernel adds up VmRSS from time to time only; Rss is counted when it is asked for.
static void report_memory(const char *role, int threads)
{
	static const char *const names[][2] = {
		{ "/proc/self/status", "Threads" }, { "/proc/self/status", "VmRSS" },
		{ "/proc/self/smaps_rollup", "Rss" }, { "/proc/self/status", "VmSize" },
		{ "/proc/self/status", "VmPTE" }, { "/proc/meminfo", "KernelStack" },
	};

	printf("{\"role\": \"%s\", \"level\": %d, \"pid\": %d, \"threads\": %d", role, level,
	       getpid(), threads);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		printf(", \"%s\": %ld", names[i][1], number_in(names[i][0], names[i][1]));
	printf("}\n");
}

// Returns how many could be made.
static int make(struct life *these, pthread_t *threads, const pthread_attr_t *attr)
{
	for (int i = 0; i < level; i++) {
		int error;

		these[i].called = now();
		error = pthread_create(&threads[i], attr, live, &these[i]);
		these[i].returned = now();
		if (error) {
			printf("{\"role\": \"failed\", \"level\": %d, \"made\": %d, "
			       "\"errno\": %d, \"error\": \"%s\"}\n",
			       level, i, error, strerror(error));
			return i;
		}
	}
	return level;
}

static int one_round(int round, pthread_t *threads, const pthread_attr_t *attr)
{
	struct life *these = lives + round * level;
	long long begun = now();
	int made;

	gate = alive = 0;
	made = make(these, threads, attr);
	while (__atomic_load_n(&alive, __ATOMIC_ACQUIRE) < made)
		wait_a_little(begun, "that all threads run");
	if (round == 0)
		report_memory("with", made);
	open_gate(&gate);
	for (int i = 0; i < made; i++)
		must(pthread_join(threads[i], NULL), "pthread_join");
	return made;
}

static void at_level(void)
{
	size_t size = sizeof(struct life) * level * rounds;
	pthread_t *threads = malloc(sizeof(*threads) * level);
	pthread_attr_t attr;

	lives = malloc(size);
	if (!lives || !threads)
		die("malloc");
	// Touched before memory is measured.
	memset(lives, 0, size);
	memset(threads, 0, sizeof(*threads) * level);
	stacks_of(&attr);
	report_memory("without", 0);
	for (int round = 0; round < rounds; round++) {
		int made = one_round(round, threads, &attr);

		printf("{\"role\": \"lives\", \"level\": %d, \"pid\": %d, \"round\": %d, "
		       "\"made\": %d, \"rows\": [", level, getpid(), round, made);
		for (struct life *l = lives + round * level; made > 0; l++, made--)
			printf("[%d,%lld,%lld,%lld,%lld]%s", l->tid, l->called, l->returned,
			       l->runs, l->done, made > 1 ? "," : "");
		printf("]}\n");
	}
}

int main(int argc, char **argv)
{
	if (argc < 3 || argc % 2 == 0)
		return fprintf(stderr, "lives (LEVEL ROUNDS)...\n"), 2;
	for (int i = 1; i < argc; i += 2) {
		level = atoi(argv[i]);
		rounds = atoi(argv[i + 1]);
		if (level < 1 || rounds < 1 || level > 1000000 / rounds)
			return fprintf(stderr, "lives: LEVEL * ROUNDS is 1 to 1000000\n"), 2;
		apart(at_level);
	}
	return 0;
}
