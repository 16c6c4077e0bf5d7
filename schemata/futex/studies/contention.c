// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Threads that compete for many mutexes, of which one may be held for long.
 *
 *   contention rounds THREADS SPIN ROUNDS SECONDS SEED
 *       In each round the threads take 200 new mutexes at random, 500000 times together. They hold
 *       each for 0.5 us; in two of three rounds one, chosen at random, for 50 us. Before they wait
 *       they try SPIN times. Of each round: "round BASE GUILTY WAITED OTHERS SPUN CALLS": address
 *       of the first mutex, number of the guilty one or -1, ns in pthread_mutex_lock() for it and
 *       for the others, locks got by trying again, calls of pthread_mutex_lock(). After SECONDS no
 *       other round begins, but there are three at least.
 *   contention convoys THREADS TIMES
 *       One thread holds a mutex and sleeps until all others wait for it: "convoys ADDRESS TIMES".
 *
 * At the end: "switches N", the voluntary ones of getrusage().
 */
#define _GNU_SOURCE
/* So that the kernel can follow the callers. */
#pragma GCC optimize("no-omit-frame-pointer", "no-optimize-sibling-calls")
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MUTEXES 200
#define OPERATIONS 500000
#define LONG_NS 50000
#define SHORT_NS 500
#define THREADS_MAX 64
/* All mutexes of a round are in one such area. */
#define AREA 65536

struct mutex {
    _Alignas(128) pthread_mutex_t lock;
};

struct thread {
    _Alignas(128) pthread_t id;
    unsigned int random;
    long tid;
    unsigned long long waited, others, spun, calls;
};

static struct mutex *mutexes;
static struct thread threads[THREADS_MAX];
static pthread_barrier_t barrier;
static int number, spin, guilty, times;

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

static unsigned int next(unsigned int *random)
{
    *random = *random * 1664525 + 1013904223;
    return *random >> 8;
}

__attribute__((noinline)) static void take(struct thread *me, int which)
{
    pthread_mutex_t *lock = &mutexes[which].lock;
    unsigned long long begun, took;

    for (int i = 0; i < spin; i++)
        if (pthread_mutex_trylock(lock) == 0) {
            me->spun += i > 0;
            return;
        }
    begun = now();
    pthread_mutex_lock(lock);
    took = now() - begun;
    me->calls++;
    *(which == guilty ? &me->waited : &me->others) += took;
}

__attribute__((noinline)) static void look_up(struct thread *me, int which)
{
    take(me, which);
    hold(SHORT_NS);
    pthread_mutex_unlock(&mutexes[which].lock);
}

__attribute__((noinline)) static void read_record(struct thread *me, int which)
{
    look_up(me, which);
}

__attribute__((noinline)) static void write_journal(struct thread *me, int which)
{
    take(me, which);
    hold(LONG_NS);
    pthread_mutex_unlock(&mutexes[which].lock);
}

__attribute__((noinline)) static void commit_record(struct thread *me, int which)
{
    write_journal(me, which);
}

static void *compete(void *thread)
{
    struct thread *me = thread;

    pthread_barrier_wait(&barrier);
    for (int i = 0; i < OPERATIONS / number; i++) {
        int which = next(&me->random) % MUTEXES;

        if (which == guilty)
            commit_record(me, which);
        else
            read_record(me, which);
    }
    return NULL;
}

static void start(void *(*what)(void *))
{
    for (int i = 0; i < number; i++)
        if (pthread_create(&threads[i].id, NULL, what, &threads[i])) {
            fprintf(stderr, "contention: cannot create thread %d\n", i);
            exit(1);
        }
    for (int i = 0; i < number; i++)
        pthread_join(threads[i].id, NULL);
}

static void one_round(unsigned int *random)
{
    unsigned long long waited = 0, others = 0, spun = 0, calls = 0;

    mutexes = aligned_alloc(AREA, AREA);
    if (!mutexes)
        exit(1);
    for (int i = 0; i < MUTEXES; i++)
        pthread_mutex_init(&mutexes[i].lock, NULL);
    guilty = next(random) % 3 ? (int)(next(random) % MUTEXES) : -1;
    memset(threads, 0, sizeof(threads));
    for (int i = 0; i < number; i++)
        threads[i].random = next(random);
    start(compete);
    for (int i = 0; i < number; i++) {
        waited += threads[i].waited;
        others += threads[i].others;
        spun += threads[i].spun;
        calls += threads[i].calls;
    }
    printf("round %p %d %llu %llu %llu %llu\n", (void *)mutexes, guilty, waited, others, spun,
           calls);
}

/* Whether a thread sleeps, as the kernel says. */
static bool sleeps(long tid)
{
    char path[64], text[512] = "";
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", tid);
    file = fopen(path, "r");
    if (!file)
        return false;
    if (!fgets(text, sizeof(text), file))
        text[0] = 0;
    fclose(file);
    return strstr(text, ") S ");
}

static void *queue_up(void *thread)
{
    struct thread *me = thread;

    __atomic_store_n(&me->tid, syscall(SYS_gettid), __ATOMIC_RELEASE);
    for (int turn = 0; turn < times; turn++) {
        if (me == threads)
            pthread_mutex_lock(&mutexes->lock);
        pthread_barrier_wait(&barrier);
        if (me != threads)
            pthread_mutex_lock(&mutexes->lock);
        /* At the barrier all others wait for the mutex, or still for those before them. */
        for (int i = 1; me == threads && i < number; i++)
            while (!sleeps(__atomic_load_n(&threads[i].tid, __ATOMIC_ACQUIRE)))
                usleep(1000);
        if (me == threads)
            usleep(5000);
        pthread_mutex_unlock(&mutexes->lock);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    bool rounds = argc == 7 && !strcmp(argv[1], "rounds");
    struct rusage usage;
    unsigned int random;
    unsigned long long until;

    if (!rounds && (argc != 4 || strcmp(argv[1], "convoys"))) {
        fprintf(stderr, "usage: contention rounds THREADS SPIN ROUNDS SECONDS SEED\n"
                        "       contention convoys THREADS TIMES\n");
        return 2;
    }
    number = atoi(argv[2]);
    if (number < 1 || number > THREADS_MAX)
        return 2;
    pthread_barrier_init(&barrier, NULL, number);
    if (rounds) {
        spin = atoi(argv[3]);
        random = atoi(argv[6]);
        until = now() + (unsigned long long)(atof(argv[5]) * 1e9);
        for (int i = 0; i < atoi(argv[4]) && (i < 3 || now() < until); i++)
            one_round(&random);
    } else {
        times = atoi(argv[3]);
        mutexes = aligned_alloc(AREA, AREA);
        if (!mutexes)
            return 1;
        pthread_mutex_init(&mutexes->lock, NULL);
        start(queue_up);
        printf("convoys %p %d\n", (void *)mutexes, times);
    }
    getrusage(RUSAGE_SELF, &usage);
    printf("switches %ld\n", usage.ru_nvcsw);
    return 0;
}
