// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Uses locks in planted ways, and prints what its own clock says.
 *
 *   user_locks free                 100003 pairs of lock and unlock by one thread: "free PAIRS"
 *   user_locks guilty               four threads and sixteen mutexes, one of which is held long:
 *                                   "guilty ADDRESS WAITED_NS TOTAL_NS", the time that threads took
 *                                   to get that mutex, and all of them
 *   user_locks pingpong             two threads wake each other 1009 times: "pingpong ROUNDS
 *                                   SWITCHES WAITS", of getrusage(), and of pthread_cond_wait()
 *   user_locks pi                   a mutex with priority inheritance, 53 waits: "pi ADDRESS"
 *   user_locks deadlock             two threads take two mutexes in opposite order, and end by a
 *                                   signal: "deadlock ADDRESS ADDRESS"
 *   user_locks calls                one thread waits by futex_wait(), another one wakes it by
 *                                   futex_wake(), 101 times; and 7 times moves it by
 *                                   futex_requeue() before: "calls ADDRESS ADDRESS"; "absent" on
 *                                   a kernel without these calls
 *   user_locks vain                 calls for one lock that are of no use: "vain ADDRESS SPURIOUS
 *                                   AGAIN TIMEOUTS NOBODY", by their results
 *   user_locks inversion            a thread of priority 50 waits 11 times for one of priority 10,
 *                                   for a mutex with priority inheritance, and then for one
 *                                   without: "inversion ADDRESS WAITED_NS ADDRESS WAITED_NS";
 *                                   "refused" without the right to such priorities
 *   user_locks behind               tries a robust mutex whose holder has ended, and gets it; then
 *                                   13 times uses it, and waits for a semaphore that lies behind
 *                                   it: "behind ADDRESS ERROR", which the first try returned
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAIRS 100003
#define ROUNDS 1009
#define LOCKS 16
#define THREADS 4
#define TURNS 211
#define PI_TURNS 53
#define CALLS 101
#define MOVES 7
#define INVERSIONS 11
#define BEHIND 13
/* Since Linux 6.7; their numbers are the same everywhere. */
#define CALL_WAKE 454
#define CALL_WAIT 455
#define CALL_REQUEUE 456
/* Words of 32 bits, of this process only. */
#define FLAGS (2 | FUTEX_PRIVATE_FLAG)

static pthread_mutex_t locks[LOCKS][2] __attribute__((aligned(128)));
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static const int guilty = 11;
static unsigned long long waited[THREADS], all[THREADS];
static int turn;
/* Calls of pthread_cond_wait(); under the lock. */
static int turns_waited;
static unsigned int words[2] __attribute__((aligned(64)));
static pthread_mutex_t lent, kept = PTHREAD_MUTEX_INITIALIZER;

static unsigned long long now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void hold(unsigned long long ns)
{
    unsigned long long until = now() + ns;

    while (now() < until)
        ;
}

__attribute__((noinline)) static void take(int lock)
{
    pthread_mutex_lock(&locks[lock][0]);
}

static void *compete(void *number)
{
    long me = (long)number;

    pthread_barrier_wait(&barrier);
    for (int i = 0; i < TURNS; i++) {
        int lock = i % 3 ? guilty : (int)((i * 7 + me) % LOCKS);
        unsigned long long begun = now(), took;

        take(lock);
        took = now() - begun;
        all[me] += took;
        if (lock == guilty)
            waited[me] += took;
        if (lock == guilty)
            hold(300000);
        pthread_mutex_unlock(&locks[lock][0]);
    }
    return NULL;
}

static void *answer(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&locks[0][0]);
    for (int i = 0; i < ROUNDS; i++) {
        for (; turn != 1; turns_waited++)
            pthread_cond_wait(&turned, &locks[0][0]);
        turn = 0;
        pthread_cond_signal(&turned);
    }
    pthread_mutex_unlock(&locks[0][0]);
    return NULL;
}

static void *inherit(void *unused)
{
    for (int i = 0; i < PI_TURNS; i++) {
        pthread_barrier_wait(&barrier);
        pthread_mutex_lock(unused);
        pthread_mutex_unlock(unused);
        /* Or the other thread takes it again before this one has asked for it. */
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void *cross(void *number)
{
    long me = (long)number;

    pthread_mutex_lock(&locks[me][0]);
    pthread_barrier_wait(&barrier);
    take(1 - me);
    return NULL;
}

static void be_guilty(void)
{
    unsigned long long sum = 0, total = 0;
    pthread_t threads[THREADS];

    pthread_barrier_init(&barrier, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, compete, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        sum += waited[i];
        total += all[i];
    }
    printf("guilty %p %llu %llu\n", (void *)&locks[guilty][0], sum, total);
}

static void play(void)
{
    struct rusage usage;
    pthread_t thread;

    pthread_create(&thread, NULL, answer, NULL);
    pthread_mutex_lock(&locks[0][0]);
    for (int i = 0; i < ROUNDS; i++) {
        turn = 1;
        pthread_cond_signal(&turned);
        for (; turn != 0; turns_waited++)
            pthread_cond_wait(&turned, &locks[0][0]);
    }
    pthread_mutex_unlock(&locks[0][0]);
    pthread_join(thread, NULL);
    getrusage(RUSAGE_SELF, &usage);
    printf("pingpong %d %ld %d\n", ROUNDS, usage.ru_nvcsw, turns_waited);
}

static void lend(void)
{
    pthread_mutexattr_t attributes;
    pthread_mutex_t mutex;
    pthread_t thread;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&mutex, &attributes);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, inherit, &mutex);
    for (int i = 0; i < PI_TURNS; i++) {
        pthread_mutex_lock(&mutex);
        pthread_barrier_wait(&barrier);
        /* Until the other one waits, which the kernel marks in the lock's upper bit. */
        while (!(__atomic_load_n((unsigned int *)&mutex, __ATOMIC_RELAXED) & 0x80000000u))
            usleep(100);
        pthread_mutex_unlock(&mutex);
        pthread_barrier_wait(&barrier);
    }
    pthread_join(thread, NULL);
    printf("pi %p\n", (void *)&mutex);
}

static void die(void)
{
    pthread_t threads[2];

    printf("deadlock %p %p\n", (void *)&locks[0][0], (void *)&locks[1][0]);
    fflush(stdout);
    pthread_barrier_init(&barrier, NULL, 2);
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, cross, (void *)i);
    /* Both wait: their locks have the mark of waiters. */
    for (int i = 0; i < 2; i++)
        while (__atomic_load_n((int *)&locks[i][0], __ATOMIC_RELAXED) != 2)
            usleep(1000);
    /* They have asked the kernel by then, or are about to. */
    usleep(200000);
    _exit(0);
}

static void *wait_by_calls(void *unused)
{
    (void)unused;
    for (int i = 0; i < CALLS + MOVES; i++) {
        do
            syscall(CALL_WAIT, &words[0], 0ul, 0xfffffffful, FLAGS, NULL, 0);
        while (!__atomic_load_n(&words[1], __ATOMIC_ACQUIRE));
        __atomic_store_n(&words[1], 0, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* Wakes the other thread, which may not wait yet, or moves it before. */
static void wake_by_calls(int moves)
{
    struct {
        unsigned long long value, address;
        unsigned int flags, reserved;
    } both[2] = {{0, (unsigned long)&words[0], FLAGS, 0}, {0, (unsigned long)&locks[0], FLAGS, 0}};
    unsigned int *from = &words[0];

    if (moves) {
        while (syscall(CALL_REQUEUE, both, 0, 0, 1) != 1)
            usleep(100);
        from = (unsigned int *)&locks[0];
    }
    __atomic_store_n(&words[1], 1, __ATOMIC_RELEASE);
    while (syscall(CALL_WAKE, from, 0xfffffffful, 1, FLAGS) != 1)
        usleep(100);
    while (__atomic_load_n(&words[1], __ATOMIC_ACQUIRE))
        usleep(100);
}

static void call(void)
{
    pthread_t thread;

    if (syscall(CALL_WAKE, &words[0], 1ul, 1, FLAGS) < 0 && errno == ENOSYS) {
        printf("calls absent\n");
        return;
    }
    pthread_create(&thread, NULL, wait_by_calls, NULL);
    for (int i = 0; i < CALLS; i++)
        wake_by_calls(0);
    for (int i = 0; i < MOVES; i++)
        wake_by_calls(1);
    pthread_join(thread, NULL);
    printf("calls %p %p\n", (void *)&words[0], (void *)&locks[0]);
}

static long wait_for(unsigned int value, long timeout_ns)
{
    struct timespec timeout = {0, timeout_ns};

    return syscall(SYS_futex, &words[0], FUTEX_WAIT_PRIVATE, value, timeout_ns ? &timeout : NULL);
}

static void *wait_in_vain(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&words[1], __ATOMIC_ACQUIRE))
        if (wait_for(0, 0) == 0)
            __atomic_add_fetch(&turn, 1, __ATOMIC_ACQ_REL);
    return NULL;
}

static void be_of_no_use(void)
{
    int again = 0, timeouts = 0, nobody = 0;
    pthread_t thread;

    for (int i = 0; i < 17; i++)
        again += wait_for(1, 0) < 0 && errno == EAGAIN;
    for (int i = 0; i < 3; i++)
        timeouts += wait_for(0, 1000000) < 0 && errno == ETIMEDOUT;
    pthread_create(&thread, NULL, wait_in_vain, NULL);
    for (int i = 1; i <= PI_TURNS; i++) {
        if (i == PI_TURNS)
            __atomic_store_n(&words[1], 1, __ATOMIC_RELEASE);
        while (syscall(SYS_futex, &words[0], FUTEX_WAKE_PRIVATE, 1) != 1) {
            nobody++;
            usleep(100);
        }
        while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != i)
            usleep(100);
    }
    pthread_join(thread, NULL);
    /* After the last one it did not wait again. */
    printf("vain %p %d %d %d %d\n", (void *)&words[0], PI_TURNS - 1, again, timeouts, nobody);
}

static int become(int priority)
{
    struct sched_param parameter = {.sched_priority = priority};

    return pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter);
}

static void *want(void *mutex)
{
    become(50);
    for (int i = 0; i < INVERSIONS; i++) {
        unsigned long long begun;

        pthread_barrier_wait(&barrier);
        begun = now();
        pthread_mutex_lock(mutex);
        waited[mutex == &kept] += now() - begun;
        pthread_mutex_unlock(mutex);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void keep_waiting(pthread_mutex_t *mutex)
{
    pthread_t thread;

    pthread_create(&thread, NULL, want, mutex);
    for (int i = 0; i < INVERSIONS; i++) {
        pthread_mutex_lock(mutex);
        pthread_barrier_wait(&barrier);
        /* Until the other one waits: the mark of the kernel, or of the C library. */
        while (!(__atomic_load_n((unsigned int *)mutex, __ATOMIC_RELAXED) &
                 (mutex == &lent ? FUTEX_WAITERS : 2)))
            usleep(100);
        usleep(5000);
        pthread_mutex_unlock(mutex);
        pthread_barrier_wait(&barrier);
    }
    pthread_join(thread, NULL);
}

static void invert(void)
{
    pthread_mutexattr_t attributes;

    if (become(10)) {
        printf("inversion refused\n");
        return;
    }
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&lent, &attributes);
    pthread_barrier_init(&barrier, NULL, 2);
    keep_waiting(&lent);
    keep_waiting(&kept);
    printf("inversion %p %llu %p %llu\n", (void *)&lent, waited[0], (void *)&kept, waited[1]);
}

static struct {
    pthread_mutex_t mutex;
    sem_t never;
} both;

static void *leave_locked(void *unused)
{
    pthread_mutex_lock(&both.mutex);
    return unused;
}

static void wait_behind(void)
{
    pthread_mutexattr_t attributes;
    struct timespec until;
    pthread_t thread;
    int error;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&both.mutex, &attributes);
    sem_init(&both.never, 0, 0);
    pthread_create(&thread, NULL, leave_locked, NULL);
    pthread_join(thread, NULL);
    error = pthread_mutex_trylock(&both.mutex);
    pthread_mutex_consistent(&both.mutex);
    pthread_mutex_unlock(&both.mutex);
    for (int i = 0; i < BEHIND; i++) {
        pthread_mutex_lock(&both.mutex);
        pthread_mutex_unlock(&both.mutex);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 5000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        while (sem_timedwait(&both.never, &until) && errno == EINTR)
            ;
    }
    printf("behind %p %d\n", (void *)&both.mutex, error);
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";

    if (!strcmp(what, "free")) {
        for (int i = 0; i < PAIRS; i++) {
            pthread_mutex_lock(&locks[0][0]);
            pthread_mutex_unlock(&locks[0][0]);
        }
        printf("free %d\n", PAIRS);
    } else if (!strcmp(what, "guilty")) {
        be_guilty();
    } else if (!strcmp(what, "pingpong")) {
        play();
    } else if (!strcmp(what, "pi")) {
        lend();
    } else if (!strcmp(what, "deadlock")) {
        die();
    } else if (!strcmp(what, "calls")) {
        call();
    } else if (!strcmp(what, "vain")) {
        be_of_no_use();
    } else if (!strcmp(what, "inversion")) {
        invert();
    } else if (!strcmp(what, "behind")) {
        wait_behind();
    } else {
        fprintf(stderr, "usage: user_locks free|guilty|pingpong|pi|deadlock|calls|vain|"
                        "inversion|behind\n");
        return 2;
    }
    return 0;
}
