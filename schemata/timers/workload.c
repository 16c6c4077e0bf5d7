// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Arms timers of one kind, so many times, and prints what it knows of them: its thread, and of what
 * fires how late it was when the program heard of it, as cyclictest does.
 *
 *   periodic N US     sleeps until N moments that are so many microseconds apart
 *   sleep N US        N short sleeps
 *   cancel N          setitimer(), N times armed and cancelled
 *   again N           setitimer(), N times armed without an end in between; then cancelled
 *   interval N US     a POSIX timer that repeats, N times
 *   timerfd N US      the same with a file descriptor
 *   epoll N           N times epoll_wait() with a time-out of a millisecond, and nothing comes
 *   realtime N US     as periodic, by CLOCK_REALTIME
 *   socket N          N times recv() with a time-out of a millisecond, and nothing comes
 *   answered N        N times recv() with a time-out of a minute, and something comes
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static long *lateness;
static int heard;

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static long long now_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static struct timespec spec(long long ns)
{
    return (struct timespec){ ns / 1000000000, ns % 1000000000 };
}

static void hear(clockid_t clock, long long wanted)
{
    lateness[heard++] = now_ns(clock) - wanted;
}

static void periodic(clockid_t clock, int times, long long us)
{
    long long wanted = now_ns(clock);

    for (int i = 0; i < times; i++) {
        struct timespec until;

        wanted += us * 1000;
        /* What would be over before it began arms no timer. */
        if (now_ns(clock) >= wanted - 20000)
            wanted = now_ns(clock) + us * 1000;
        until = spec(wanted);
        must(!clock_nanosleep(clock, TIMER_ABSTIME, &until, NULL), "clock_nanosleep");
        hear(clock, wanted);
    }
}

static void sleeps(int times, long long us)
{
    struct timespec time = spec(us * 1000);

    for (int i = 0; i < times; i++)
        must(!nanosleep(&time, NULL), "nanosleep");
}

static void alarms(int times, int again)
{
    struct itimerval minute = { .it_value = { .tv_sec = 60 } }, none = {};

    for (int i = 0; i < times; i++) {
        must(!setitimer(ITIMER_REAL, &minute, NULL), "setitimer");
        if (!again || i == times - 1)
            must(!setitimer(ITIMER_REAL, &none, NULL), "setitimer");
    }
}

static void interval(int times, long long us)
{
    struct sigevent how = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
    struct itimerspec period = { spec(us * 1000), spec(us * 1000) };
    sigset_t set;
    timer_t timer;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    must(!timer_create(CLOCK_MONOTONIC, &how, &timer), "timer_create");
    must(!timer_settime(timer, 0, &period, NULL), "timer_settime");
    for (int i = 0; i < times; i++)
        must(sigwaitinfo(&set, NULL) == SIGUSR1, "sigwaitinfo");
    must(!timer_delete(timer), "timer_delete");
}

static void descriptor(int times, long long us)
{
    struct itimerspec period = { spec(us * 1000), spec(us * 1000) };
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);

    must(fd >= 0 && !timerfd_settime(fd, 0, &period, NULL), "timerfd");
    for (int i = 0; i < times; i++) {
        unsigned long long expired;

        must(read(fd, &expired, sizeof(expired)) == sizeof(expired), "read");
    }
    close(fd);
}

static void events(int times)
{
    struct epoll_event event;
    int fd = epoll_create1(0);

    for (int i = 0; i < times; i++)
        must(!epoll_wait(fd, &event, 1, 1), "epoll_wait");
}

/* A thread's, so that what it waits for has not come before. */
struct answers {
    int fd, times;
};

static void *answers(void *data)
{
    struct answers *to = data;
    char byte;

    for (int i = 0; i < to->times; i++) {
        /* It asks, and a moment later it waits. */
        must(read(to->fd, &byte, 1) == 1, "read");
        usleep(500);
        must(write(to->fd, "x", 1) == 1, "write");
    }
    return NULL;
}

static void sockets(int times, int answered)
{
    struct timeval until = { .tv_sec = answered ? 60 : 0, .tv_usec = 1000 };
    struct answers to = { 0, times };
    pthread_t thread;
    int ends[2];
    char byte;

    must(!socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), "socketpair");
    must(!setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &until, sizeof(until)), "setsockopt");
    to.fd = ends[1];
    if (answered)
        must(!pthread_create(&thread, NULL, answers, &to), "pthread_create");
    for (int i = 0; i < times; i++) {
        if (answered)
            must(write(ends[0], "x", 1) == 1, "write");
        must(recv(ends[0], &byte, 1, 0) == (answered ? 1 : -1), "recv");
    }
    if (answered)
        pthread_join(thread, NULL);
}

static int is(const char *word, const char *what)
{
    return !strcmp(word, what);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int times = argc > 2 ? atoi(argv[2]) : 0;
    long long us = argc > 3 ? atoll(argv[3]) : 1000;

    lateness = calloc(times + 1, sizeof(*lateness));
    if (is(what, "periodic"))
        periodic(CLOCK_MONOTONIC, times, us);
    else if (is(what, "realtime"))
        periodic(CLOCK_REALTIME, times, us);
    else if (is(what, "sleep"))
        sleeps(times, us);
    else if (is(what, "cancel") || is(what, "again"))
        alarms(times, is(what, "again"));
    else if (is(what, "interval"))
        interval(times, us);
    else if (is(what, "timerfd"))
        descriptor(times, us);
    else if (is(what, "epoll"))
        events(times);
    else if (is(what, "socket") || is(what, "answered"))
        sockets(times, is(what, "answered"));
    else
        return 2;
    printf("{\"pid\": %d, \"times\": %d, \"late\": [", (int)syscall(SYS_gettid), times);
    for (int i = 0; i < heard; i++)
        printf("%s%ld", i ? ", " : "", lateness[i]);
    printf("], \"threads\": []}\n");
    return 0;
}
