// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A suite of small programs, of which some crash, run two at a time as `make -j2` does:
 *
 *   crash_suite suite N   all roles, and N programs that do nothing wrong
 *   crash_suite load N    the same without the dead-lock, which takes two seconds
 *   crash_suite ROLE      one of them
 *
 * A program prints "ROLE PID NS LINE" before it goes wrong: NS by CLOCK_MONOTONIC, LINE is that of
 * the fault in this file. The suite prints "ended ROLE PID STATUS", as waitpid() has it, and at the
 * end "elapsed NS CPU_NS".
 */
#define _GNU_SOURCE
/* The kernel follows frame pointers. */
#pragma GCC optimize("no-omit-frame-pointer")
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TOGETHER 2
#define DEADLOCKED_S 2
#define FAULTS 5

static volatile int *volatile nowhere = (int *)0x10;
static volatile int zero;
static sigjmp_buf back;
static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static unsigned long long now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void say(const char *role, int line)
{
    char text[100];
    int size = snprintf(text, sizeof(text), "%s %d %llu %d\n", role, getpid(), now(), line);

    /* One write, for others print as well. */
    if (write(1, text, size) != size)
        _exit(99);
}

__attribute__((noinline)) static void fault(void)
{
    say("segv", __LINE__ + 1);
    *nowhere = 1;
    zero++;
}

__attribute__((noinline)) static void give_up(void)
{
    say("abort", __LINE__ + 1);
    abort();
}

__attribute__((noinline)) static void divide(void)
{
    say("fpe", __LINE__ + 1);
    zero = 1000 / zero;
    zero++;
}

static void repair(int sig)
{
    (void)sig;
    nowhere = &zero;
}

/* The handler repairs what faulted, as run-times with a write barrier do. */
static int handle(void)
{
    signal(SIGSEGV, repair);
    for (int i = 0; i < FAULTS; i++) {
        nowhere = (int *)0x10;
        while (nowhere != &zero)
            raise(SIGSEGV);
    }
    return 0;
}

static void jump(int sig)
{
    siglongjmp(back, sig);
}

static int jump_out(void)
{
    signal(SIGSEGV, jump);
    for (volatile int i = 0; i < FAULTS; i++)
        if (!sigsetjmp(back, 1))
            *nowhere = 1;
    return 0;
}

__attribute__((noinline)) static void take(pthread_mutex_t *one, pthread_mutex_t *other)
{
    pthread_mutex_lock(one);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(other);
    zero++;
}

static void *one_way(void *unused)
{
    take(&first, &second);
    return unused;
}

static void *other_way(void *unused)
{
    take(&second, &first);
    return unused;
}

static int cross(void)
{
    pthread_t threads[2];

    printf("locks %d %p %p\n", getpid(), (void *)&first, (void *)&second);
    fflush(stdout);
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&threads[0], NULL, one_way, NULL);
    pthread_create(&threads[1], NULL, other_way, NULL);
    /* Both words say that threads wait. */
    while (__atomic_load_n((int *)&first, __ATOMIC_RELAXED) != 2 ||
           __atomic_load_n((int *)&second, __ATOMIC_RELAXED) != 2)
        usleep(200);
    say("deadlock", 0);
    pause();
    return 0;
}

static int leave_a_zombie(void)
{
    if (!fork())
        _exit(0);
    usleep(100000);
    return 0;
}

static int work(void)
{
    struct stat found;
    char bytes[4096];
    int file;

    for (int i = 0; i < 50; i++) {
        char *some = malloc(1 << 16);

        memset(some, i, 1 << 16);
        free(some);
        stat("/etc/passwd", &found);
        file = open("/etc/passwd", O_RDONLY);
        if (file >= 0) {
            zero += read(file, bytes, sizeof(bytes)) > 0;
            close(file);
        }
    }
    return 0;
}

static const struct {
    const char *name;
    int (*run)(void);
    void (*crash)(void);
} roles[] = {
    { "segv", NULL, fault },       { "handled", handle, NULL }, { "abort", NULL, give_up },
    { "longjmp", jump_out, NULL }, { "fpe", NULL, divide },     { "handled", jump_out, NULL },
    { "zombie", leave_a_zombie, NULL }, { "deadlock", cross, NULL }, { "ok", work, NULL },
};
#define ROLES (int)(sizeof(roles) / sizeof(roles[0]))

/* One of those that run; the others are NULL. */
struct child {
    const char *role;
    pid_t pid;
    unsigned long long since;
};

static void start(struct child *child, const char *self, const char *role)
{
    *child = (struct child){ role, fork(), now() };
    if (child->pid < 0)
        exit(1);
    if (!child->pid) {
        execl(self, self, role, NULL);
        _exit(98);
    }
}

/* Waits until one of them has ended. A dead-lock is killed when it has lasted for long enough. */
static void wait_for_one(struct child *children)
{
    for (;;) {
        for (int i = 0; i < TOGETHER; i++) {
            struct child *child = &children[i];
            int status;

            if (!child->pid)
                continue;
            if (waitpid(child->pid, &status, WNOHANG) == child->pid) {
                printf("ended %s %d %d\n", child->role, child->pid, status);
                fflush(stdout);
                *child = (struct child){};
                return;
            }
            if (!strcmp(child->role, "deadlock") &&
                now() - child->since > DEADLOCKED_S * 1000000000ull)
                kill(child->pid, SIGKILL);
        }
        usleep(500);
    }
}

static int run_all(const char *self, int with_deadlock, int more)
{
    struct child children[TOGETHER] = {};
    unsigned long long since = now();
    struct rusage usage;

    setrlimit(RLIMIT_CORE, &(struct rlimit){});
    for (int i = 0; i < ROLES - 1 + more; i++) {
        const char *role = i < ROLES ? roles[i].name : "ok";
        int at = 0;

        if (!with_deadlock && !strcmp(role, "deadlock"))
            continue;
        while (at < TOGETHER && children[at].pid)
            at++;
        if (at == TOGETHER) {
            wait_for_one(children);
            for (at = 0; children[at].pid; at++)
                ;
        }
        start(&children[at], self, role);
    }
    for (int i = 0; i < TOGETHER; i++)
        if (children[i].pid)
            wait_for_one(children), i = -1;
    getrusage(RUSAGE_CHILDREN, &usage);
    printf("elapsed %llu %llu\n", now() - since,
           (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000ull +
               (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000ull);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && (!strcmp(argv[1], "suite") || !strcmp(argv[1], "load")))
        return run_all(argv[0], argv[1][0] == 's', atoi(argv[2]));
    for (int i = 0; argc == 2 && i < ROLES; i++) {
        if (strcmp(argv[1], roles[i].name))
            continue;
        if (roles[i].run)
            return roles[i].run();
        roles[i].crash();
    }
    fprintf(stderr, "usage: crash_suite suite|load NUMBER\n");
    return 2;
}
