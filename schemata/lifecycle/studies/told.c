// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// told SIGNALS CANCELS SECONDS: sends signals to threads and to the process, cancels threads, and
// counts the expiries of timers, each in a process of its own. Reports what the program itself saw.
#include "threads.h"

#define WORKERS 4
#define TIMERS 3

static int signals, cancels;
static double seconds;

static int gate, over, ready, tids[WORKERS + 1];
// By the thread that took the signal; the main thread is the last.
static int taken[WORKERS + 1];
static __thread int me = WORKERS;

static void take(int sig)
{
	(void)sig;
	__atomic_fetch_add(&taken[me], 1, __ATOMIC_RELEASE);
}

static int all_taken(void)
{
	int all = 0;

	for (int i = 0; i <= WORKERS; i++)
		all += __atomic_load_n(&taken[i], __ATOMIC_ACQUIRE);
	return all;
}

static void *worker(void *number)
{
	me = (long)number;
	tids[me] = own_tid();
	__atomic_fetch_add(&ready, 1, __ATOMIC_RELEASE);
	// By number: not a place where this C library lets a thread be cancelled.
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE))
		pause_ns(10000000);
	return NULL;
}

static void report_taken(const char *how, int wrong)
{
	printf("{\"role\": \"signals\", \"how\": \"%s\", \"pid\": %d, \"sent\": %d, "
	       "\"elsewhere\": %d, \"taken\": [", how, getpid(), signals, wrong);
	for (int i = 0; i <= WORKERS; i++)
		printf("[%d,%d]%s", tids[i], taken[i], i < WORKERS ? "," : "]}\n");
}

// to_thread: to one worker after the other; else to the process. One is pending at a time, as
// several would become one.
static void send_signals(const char *how, int to_thread, int main_takes)
{
	pthread_t made[WORKERS];
	int wrong = 0;
	sigset_t set;

	sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = take, .sa_flags = SA_RESTART }, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	tids[WORKERS] = own_tid();
	for (long i = 0; i < WORKERS; i++)
		must(pthread_create(&made[i], NULL, worker, (void *)i), "pthread_create");
	for (long long begun = now(); __atomic_load_n(&ready, __ATOMIC_ACQUIRE) < WORKERS;)
		wait_a_little(begun, "that all threads run");
	if (!main_takes)
		pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (int i = 0; i < signals; i++) {
		int target = i % WORKERS, before = taken[target];
		long long begun = now();

		if (to_thread)
			must(pthread_kill(made[target], SIGUSR1), "pthread_kill");
		else if (kill(getpid(), SIGUSR1))
			die("kill");
		while (all_taken() <= i)
			wait_a_little(begun, "that a signal is taken");
		wrong += to_thread && taken[target] != before + 1;
	}
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < WORKERS; i++)
		must(pthread_join(made[i], NULL), "pthread_join");
	report_taken(how, wrong);
}

static void to_threads(void)
{
	send_signals("to a thread", 1, 1);
}

static void to_process(void)
{
	send_signals("to the process", 0, 1);
}

static void to_others(void)
{
	send_signals("to the process, main blocks it", 0, 0);
}

static int tid;

static void *cancelled_in_pause(void *unused)
{
	__atomic_store_n(&tid, own_tid(), __ATOMIC_RELEASE);
	for (;;)
		pause();
	return unused;
}

static void *cancelled_at_work(void *unused)
{
	static volatile long work;

	must(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL), "pthread_setcanceltype");
	__atomic_store_n(&tid, own_tid(), __ATOMIC_RELEASE);
	for (;;)
		work++;
	return unused;
}

static void *not_cancelled(void *unused)
{
	must(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL), "pthread_setcancelstate");
	__atomic_store_n(&tid, own_tid(), __ATOMIC_RELEASE);
	pass(&gate);
	return unused;
}

static void cancel_one(void *(*begin)(void *), const char *how, int number)
{
	long long begun = now(), called, joined;
	pthread_attr_t attr;
	pthread_t made;
	void *result;

	tid = gate = 0;
	stacks_of(&attr);
	must(pthread_create(&made, &attr, begin, NULL), "pthread_create");
	while (!__atomic_load_n(&tid, __ATOMIC_ACQUIRE))
		wait_a_little(begun, "that a thread runs");
	if (begin != cancelled_at_work)
		until_asleep(tid);
	called = now();
	must(pthread_cancel(made), "pthread_cancel");
	if (begin == not_cancelled)
		open_gate(&gate);
	must(pthread_join(made, &result), "pthread_join");
	joined = now();
	printf("{\"role\": \"cancel\", \"how\": \"%s\", \"number\": %d, \"tid\": %d, "
	       "\"called\": %lld, \"joined\": %lld, \"cancelled\": %s}\n",
	       how, number, tid, called, joined, result == PTHREAD_CANCELED ? "true" : "false");
}

static void cancel_threads(void)
{
	for (int i = 0; i < cancels; i++) {
		cancel_one(cancelled_in_pause, "deferred", i);
		cancel_one(cancelled_at_work, "asynchronous", i);
		cancel_one(not_cancelled, "disabled", i);
	}
}

struct timer {
	timer_t id;
	long period_ms, signals, overruns;
	// Of the call of timer_settime(); before and after the last signal was taken.
	long long set_before, set_after, last_before, last_after;
};

static void set_timer(struct timer *timer, int number)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + number };
	struct itimerspec times = { 0 };

	event.sigev_value.sival_int = number;
	if (timer_create(CLOCK_MONOTONIC, &event, &timer->id))
		die("timer_create");
	times.it_value.tv_nsec = times.it_interval.tv_nsec = timer->period_ms * 1000000;
	timer->set_before = now();
	if (timer_settime(timer->id, 0, &times, NULL))
		die("timer_settime");
	timer->set_after = now();
}

static void count_expiries(void)
{
	struct timer timers[TIMERS] = { { .period_ms = 1 }, { .period_ms = 10 },
					{ .period_ms = 100 } };
	long long begun = now();
	sigset_t set;

	sigemptyset(&set);
	for (int i = 0; i < TIMERS; i++)
		sigaddset(&set, SIGRTMIN + i);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (int i = 0; i < TIMERS; i++)
		set_timer(&timers[i], i);
	// The slowest expires at least once.
	while (now() - begun < (long long)(seconds * SECOND) || !timers[TIMERS - 1].signals) {
		long long before = now();
		siginfo_t info;

		if (sigwaitinfo(&set, &info) < 0)
			continue;
		struct timer *timer = &timers[info.si_value.sival_int];

		timer->signals++;
		timer->overruns += timer_getoverrun(timer->id);
		timer->last_before = before;
		timer->last_after = now();
	}
	for (int i = 0; i < TIMERS; i++) {
		struct timer *t = &timers[i];

		timer_delete(t->id);
		printf("{\"role\": \"timer\", \"pid\": %d, \"signal\": %d, \"period_ms\": %ld, "
		       "\"signals\": %ld, \"overruns\": %ld, \"least_ns\": %lld, "
		       "\"most_ns\": %lld}\n",
		       getpid(), SIGRTMIN + i, t->period_ms, t->signals, t->overruns,
		       t->last_before - t->set_after, t->last_after - t->set_before);
	}
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return fprintf(stderr, "told SIGNALS CANCELS SECONDS\n"), 2;
	signals = atoi(argv[1]);
	cancels = atoi(argv[2]);
	seconds = atof(argv[3]);
	apart(to_threads);
	apart(to_process);
	apart(to_others);
	apart(cancel_threads);
	apart(count_expiries);
	return 0;
}
