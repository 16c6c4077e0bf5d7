// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A thread waits for a lock of some kind that another one holds for a moment, or for ever.
 *
 *   lock_kinds passed|inlined   a lock of the program's own, whose memory looks like a mutex that
 *                               the waiting thread holds; it calls the kernel by syscall(), or by
 *                               an instruction of its own
 *   lock_kinds rwlock|robust|recursive|pi   those of the C library
 *   lock_kinds dead             two threads take two robust mutexes in opposite order
 *
 * Prints "WAITER HOLDER", ids of threads in their PID namespace.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As glibc has it: who holds it, how many use it, of which kind it is. */
static struct { int word; unsigned int count; int owner; unsigned int users; int kind; } own;
static pthread_mutex_t mutexes[2];
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t both;
static const char *kind;
static int holder;
/* The main thread is about to wait. */
static volatile int about;

static int self(void)
{
	return syscall(SYS_gettid);
}

static void wait_for(int *word)
{
#if defined(__x86_64__)
	register long timeout __asm__("r10") = 0;
	long result;

	if (strcmp(kind, "inlined") == 0) {
		__asm__ volatile("syscall" : "=a"(result)
				 : "a"(SYS_futex), "D"(word), "S"(FUTEX_WAIT_PRIVATE), "d"(2),
				   "r"(timeout) : "rcx", "r11", "memory");
		return;
	}
#endif
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

static int is_own(void)
{
	return strcmp(kind, "passed") == 0 || strcmp(kind, "inlined") == 0;
}

static void take(void)
{
	int free = 0;

	if (strcmp(kind, "rwlock") == 0)
		pthread_rwlock_wrlock(&rwlock);
	else if (!is_own())
		pthread_mutex_lock(&mutexes[0]);
	else if (!__atomic_compare_exchange_n(&own.word, &free, 1, 0, __ATOMIC_ACQUIRE,
					      __ATOMIC_ACQUIRE))
		while (__atomic_exchange_n(&own.word, 2, __ATOMIC_ACQUIRE))
			wait_for(&own.word);
}

static void drop(void)
{
	if (strcmp(kind, "rwlock") == 0)
		pthread_rwlock_unlock(&rwlock);
	else if (!is_own())
		pthread_mutex_unlock(&mutexes[0]);
	else {
		__atomic_store_n(&own.word, 0, __ATOMIC_RELEASE);
		syscall(SYS_futex, &own.word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	}
}

/*
 * However long that takes on a busy machine. Without memory from the heap: while the mappings of
 * the process change, the kernel does not say whose code waits.
 */
static void until_main_sleeps(void)
{
	char path[64], line[256];
	int asleep = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", getpid());
	while (asleep < 10) {
		int stat = open(path, O_RDONLY);
		long length = read(stat, line, sizeof(line) - 1);

		line[length > 0 ? length : 0] = 0;
		asleep = about && strstr(line, ") S ") ? asleep + 1 : 0;
		close(stat);
		usleep(10000);
	}
}

static void *holds(void *unused)
{
	holder = self();
	take();
	pthread_barrier_wait(&both);
	until_main_sleeps();
	usleep(400000);
	drop();
	return unused;
}

static void *crosses(void *unused)
{
	pthread_mutex_lock(&mutexes[1]);
	pthread_barrier_wait(&both);
	pthread_mutex_lock(&mutexes[0]);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_mutexattr_t of;
	pthread_t other;

	if (argc != 2)
		return 2;
	kind = argv[1];
	pthread_barrier_init(&both, NULL, 2);
	pthread_mutexattr_init(&of);
	if (strcmp(kind, "robust") == 0 || strcmp(kind, "dead") == 0)
		pthread_mutexattr_setrobust(&of, PTHREAD_MUTEX_ROBUST);
	if (strcmp(kind, "recursive") == 0)
		pthread_mutexattr_settype(&of, PTHREAD_MUTEX_RECURSIVE);
	if (strcmp(kind, "pi") == 0)
		pthread_mutexattr_setprotocol(&of, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&mutexes[0], &of);
	pthread_mutex_init(&mutexes[1], &of);
	if (strcmp(kind, "dead") == 0) {
		pthread_mutex_lock(&mutexes[0]);
		pthread_create(&other, NULL, crosses, NULL);
		pthread_barrier_wait(&both);
		pthread_mutex_lock(&mutexes[1]);
		return 1;
	}
	own.owner = self();
	own.users = 1;
	pthread_create(&other, NULL, holds, NULL);
	pthread_barrier_wait(&both);
	about = 1;
	take();
	printf("%d %d\n", self(), holder);
	drop();
	pthread_join(other, NULL);
	return 0;
}
