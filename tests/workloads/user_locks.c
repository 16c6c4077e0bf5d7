// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Uses locks in planted ways, and prints what its own clock says.
 *
 *   user_locks free                 100003 pairs of lock and unlock by one thread: "free PAIRS"
 *   user_locks guilty               four threads and sixteen mutexes, one of which is held long:
 *                                   "guilty ADDRESS WAITED_NS TOTAL_NS", the time that threads took
 *                                   to get that mutex, and all of them
 *   user_locks pingpong             two threads wake each other 1009 times: "pingpong ROUNDS
 *                                   SWITCHES", of getrusage()
 *   user_locks pi                   a mutex with priority inheritance, 53 waits: "pi ADDRESS"
 *   user_locks deadlock             two threads take two mutexes in opposite order, and end by a
 *                                   signal: "deadlock ADDRESS ADDRESS"
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PAIRS 100003
#define ROUNDS 1009
#define LOCKS 16
#define THREADS 4
#define TURNS 211
#define PI_TURNS 53

static pthread_mutex_t locks[LOCKS][2] __attribute__((aligned(128)));
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static const int guilty = 11;
static unsigned long long waited[THREADS], all[THREADS];
static int turn;

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
        while (turn != 1)
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
        while (turn != 0)
            pthread_cond_wait(&turned, &locks[0][0]);
    }
    pthread_mutex_unlock(&locks[0][0]);
    pthread_join(thread, NULL);
    getrusage(RUSAGE_SELF, &usage);
    printf("pingpong %d %ld\n", ROUNDS, usage.ru_nvcsw);
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
    } else {
        fprintf(stderr, "usage: user_locks free|guilty|pingpong|pi|deadlock\n");
        return 2;
    }
    return 0;
}
