// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// mutexes PAIRS SECONDS TRIPS: uses mutexes and a condition variable, each way in a process of its
// own, and reports what was done by the program's own count:
//   one thread locks and unlocks a mutex PAIRS times;
//   2, 4 and 8 threads share a mutex for SECONDS each;
//   two threads on one CPU pass a turn to and fro TRIPS times;
//   a thread ends that holds a robust mutex which another waits for;
//   two processes share a mutex.
#include "threads.h"

#define THREADS_MAX 8
// In the middle of one hold of so many the holder sleeps, so that the others must wait.
#define SLEEPS_EACH 61
#define SHARED_PAIRS 10007

static int pairs, trips;
static double seconds;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int threads, gate, over, turn;
// Written with the mutex held only, and not atomically: fewer if the mutex does not exclude.
static volatile long held;
static long done[THREADS_MAX];

static void work(long ns)
{
	for (long long end = now() + ns; now() < end;)
		;
}

static void report_lock(long count, long long took)
{
	printf("{\"role\": \"lock\", \"threads\": %d, \"pid\": %d, \"lock\": %lu, \"size\": %zu, "
	       "\"pairs\": %ld, \"held\": %ld, \"took_ns\": %lld}\n",
	       threads, getpid(), (unsigned long)&mutex, sizeof(mutex), count, held, took);
}

static void alone(void)
{
	long long begun = now();

	threads = 1;
	for (int i = 0; i < pairs; i++) {
		must(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
		held++;
		must(pthread_mutex_unlock(&mutex), "pthread_mutex_unlock");
	}
	report_lock(pairs, now() - begun);
}

static void *share(void *at)
{
	long *mine = at;

	pass(&gate);
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		must(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
		held++;
		work(500);
		if (++*mine % SLEEPS_EACH == 1)
			pause_ns(20000);
		must(pthread_mutex_unlock(&mutex), "pthread_mutex_unlock");
		work(1000);
	}
	return NULL;
}

static void together(void)
{
	long long begun = now();
	pthread_t made[THREADS_MAX];
	pthread_attr_t attr;
	long count = 0;

	stacks_of(&attr);
	for (int i = 0; i < threads; i++)
		must(pthread_create(&made[i], &attr, share, &done[i]), "pthread_create");
	open_gate(&gate);
	// Each has had its turn, however busy the machine is.
	for (int i = 0; i < threads; i++)
		while (__atomic_load_n(&done[i], __ATOMIC_RELAXED) < 2 ||
		       now() - begun < (long long)(seconds * SECOND))
			wait_a_little(begun, "that all threads have locked the mutex");
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < threads; i++) {
		must(pthread_join(made[i], NULL), "pthread_join");
		count += done[i];
	}
	report_lock(count, now() - begun);
}

// On one CPU, and without being preempted by the one that it wakes.
static void on_one_cpu(void)
{
	cpu_set_t all, one;

	CPU_ZERO(&all);
	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof(all), &all))
		die("sched_getaffinity");
	for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &one);
	// By number: some C libraries bring functions that do nothing.
	if (sched_setaffinity(0, sizeof(one), &one) ||
	    syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &(struct sched_param){ 0 }))
		die("sched_setaffinity");
}

static void *take_turns(void *mine)
{
	int my_turn = (long)mine;
	struct rusage before, after;
	long long from, to;

	pass(&gate);
	getrusage(RUSAGE_THREAD, &before);
	from = now();
	for (int i = 0; i < trips; i++) {
		must(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
		while (turn != my_turn)
			must(pthread_cond_wait(&turned, &mutex), "pthread_cond_wait");
		turn = !my_turn;
		must(pthread_mutex_unlock(&mutex), "pthread_mutex_unlock");
		must(pthread_cond_signal(&turned), "pthread_cond_signal");
	}
	to = now();
	getrusage(RUSAGE_THREAD, &after);
	printf("{\"role\": \"turns\", \"pid\": %d, \"tid\": %d, \"trips\": %d, \"from_ns\": %lld, "
	       "\"to_ns\": %lld, \"nvcsw\": %ld}\n",
	       getpid(), own_tid(), trips, from, to, after.ru_nvcsw - before.ru_nvcsw);
	return NULL;
}

static void ping_pong(void)
{
	pthread_t made[2];

	on_one_cpu();
	for (long i = 0; i < 2; i++)
		must(pthread_create(&made[i], NULL, take_turns, (void *)i), "pthread_create");
	open_gate(&gate);
	for (int i = 0; i < 2; i++)
		must(pthread_join(made[i], NULL), "pthread_join");
}

static int waiter_tid;

static void *die_with_it(void *unused)
{
	long long begun = now();

	must(pthread_mutex_lock(&mutex), "pthread_mutex_lock");
	open_gate(&gate);
	while (!__atomic_load_n(&waiter_tid, __ATOMIC_ACQUIRE))
		wait_a_little(begun, "that there is a waiter");
	until_asleep(waiter_tid);
	waiter_tid = own_tid();
	return unused;
}

static void robust(void)
{
	pthread_mutexattr_t attr;
	int error, again, owner;
	pthread_t made;

	must(pthread_mutexattr_init(&attr), "pthread_mutexattr_init");
	must(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST), "setrobust");
	must(pthread_mutex_init(&mutex, &attr), "pthread_mutex_init");
	must(pthread_create(&made, NULL, die_with_it, NULL), "pthread_create");
	pass(&gate);
	__atomic_store_n(&waiter_tid, own_tid(), __ATOMIC_RELEASE);
	error = pthread_mutex_lock(&mutex);
	must(pthread_join(made, NULL), "pthread_join");
	owner = waiter_tid;
	must(pthread_mutex_consistent(&mutex), "pthread_mutex_consistent");
	must(pthread_mutex_unlock(&mutex), "pthread_mutex_unlock");
	again = pthread_mutex_lock(&mutex);
	printf("{\"role\": \"robust\", \"pid\": %d, \"owner\": %d, \"lock\": %lu, \"size\": %zu, "
	       "\"owner_died\": %s, \"again\": %d}\n",
	       getpid(), owner, (unsigned long)&mutex, sizeof(mutex),
	       error == EOWNERDEAD ? "true" : "false", again);
}

static void across_processes(void)
{
	struct { pthread_mutex_t mutex; volatile long held; } *both;
	pthread_mutexattr_t attr;
	int status, pid;

	both = mmap(NULL, sizeof(*both), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (both == MAP_FAILED)
		die("mmap");
	must(pthread_mutexattr_init(&attr), "pthread_mutexattr_init");
	must(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED), "setpshared");
	must(pthread_mutex_init(&both->mutex, &attr), "pthread_mutex_init");
	if ((pid = fork()) < 0)
		die("fork");
	for (int i = 0; i < SHARED_PAIRS; i++) {
		must(pthread_mutex_lock(&both->mutex), "pthread_mutex_lock");
		both->held++;
		must(pthread_mutex_unlock(&both->mutex), "pthread_mutex_unlock");
	}
	if (pid == 0)
		_exit(0);
	if (waitpid(pid, &status, 0) != pid || status)
		die("waitpid");
	printf("{\"role\": \"shared\", \"pairs\": %d, \"held\": %ld}\n", 2 * SHARED_PAIRS,
	       both->held);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return fprintf(stderr, "mutexes PAIRS SECONDS TRIPS\n"), 2;
	pairs = atoi(argv[1]);
	seconds = atof(argv[2]);
	trips = atoi(argv[3]);
	apart(alone);
	for (threads = 2; threads <= THREADS_MAX; threads *= 2)
		apart(together);
	apart(ping_pong);
	apart(robust);
	apart(across_processes);
	return 0;
}
