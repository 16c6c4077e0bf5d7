// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Makes processes that end in planted ways, and prints "WHAT PID STATUS" for each, as waitpid() has
 * told it: three crash, one is killed, two handle their faults and go on, one ignores an interrupt,
 * the rest exit with codes. Last come threads that are renamed and end by exit_group().
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXITS 101
#define THREADS 64
#define FAULTS 13

static sigjmp_buf back;
static volatile int *volatile nowhere = (int *)0x10;
static volatile int zero;

static void jump(int sig)
{
    siglongjmp(back, sig);
}

__attribute__((noinline, noclone)) static void planted_crash(void)
{
    *nowhere = 1;
    zero++;
}

static void crash(void)
{
    planted_crash();
    zero++;
}

static void fail(void)
{
    abort();
}

static void divide(void)
{
    zero = 1000 / zero;
}

static void be_killed(void)
{
    kill(getpid(), SIGKILL);
}

static void handle(void)
{
    signal(SIGSEGV, jump);
    for (volatile int i = 0; i < FAULTS; i++)
        if (!sigsetjmp(back, 1))
            *nowhere = 1;
    _exit(5);
}

static void ignore(void)
{
    signal(SIGINT, SIG_IGN);
    kill(getpid(), SIGINT);
    _exit(6);
}

static void *wait_there(void *unused)
{
    char name[16];

    snprintf(name, sizeof(name), "renamed%d", gettid());
    prctl(PR_SET_NAME, name);
    pthread_barrier_wait(unused);
    pause();
    return NULL;
}

static void end_with_threads(void)
{
    pthread_barrier_t barrier;
    pthread_t thread;

    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, wait_there, &barrier))
            _exit(99);
    pthread_barrier_wait(&barrier);
    _exit(7);
}

static void child(const char *what, void (*act)(void), int code)
{
    int status;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid < 0)
        exit(1);
    if (!pid) {
        if (act)
            act();
        _exit(code);
    }
    if (waitpid(pid, &status, 0) != pid)
        exit(1);
    printf("%s %d %d\n", what, pid, status);
}

int main(void)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){});
    child("crash", crash, 0);
    child("crash", fail, 0);
    child("crash", divide, 0);
    child("killed", be_killed, 0);
    child("handled", handle, 0);
    child("handled", handle, 0);
    child("ignored", ignore, 0);
    for (int i = 0; i < EXITS; i++)
        child("exit", NULL, i);
    child("threads", end_with_threads, 0);
    return 0;
}
