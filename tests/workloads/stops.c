// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Stops a child of three threads 13 times by SIGSTOP, and lets it go on; kills another one that is
 * stopped; and attaches itself to a third as a debugger does, 17 times. Prints "WHAT PID
 * NANOSECONDS" of each: how long it was stopped by the clock of this program, from the moment at
 * which waitpid() has told of the stop; and its own process.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STOPS 13
#define ATTACHES 17
#define HELD_US 3000

static unsigned long long now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void *sleep_on(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static pid_t child(int threads)
{
    int ready[2];
    pthread_t thread;
    pid_t pid;
    char byte;

    if (pipe(ready))
        exit(1);
    pid = fork();
    if (pid < 0)
        exit(1);
    if (!pid) {
        for (int i = 1; i < threads; i++)
            if (pthread_create(&thread, NULL, sleep_on, NULL))
                _exit(1);
        if (write(ready[1], "r", 1) != 1)
            _exit(1);
        sleep_on(NULL);
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        exit(1);
    close(ready[0]);
    return pid;
}

static unsigned long long stop(pid_t pid, int with)
{
    unsigned long long since;
    int status;

    kill(pid, SIGSTOP);
    if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
        exit(1);
    since = now();
    usleep(HELD_US);
    since = now() - since;
    kill(pid, with);
    if (waitpid(pid, &status, with == SIGCONT ? WCONTINUED : 0) != pid)
        exit(1);
    return since;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

int main(void)
{
    unsigned long long stopped = 0;
    pid_t pid = child(3);

    printf("self %d 0\n", getpid());
    for (int i = 0; i < STOPS; i++)
        stopped += stop(pid, SIGCONT);
    printf("stopped %d %llu\n", pid, stopped);
    end(pid);

    pid = child(1);
    printf("killed %d %llu\n", pid, stop(pid, SIGKILL));

    pid = child(1);
    stopped = 0;
    for (int i = 0; i < ATTACHES; i++) {
        unsigned long long since;

        if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) || waitpid(pid, NULL, 0) != pid)
            return 1;
        since = now();
        usleep(HELD_US);
        stopped += now() - since;
        if (ptrace(PTRACE_DETACH, pid, NULL, NULL))
            return 1;
    }
    printf("attached %d %llu\n", pid, stopped);
    end(pid);
    return 0;
}
