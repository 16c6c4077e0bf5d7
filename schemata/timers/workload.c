// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Arms timers of one kind, so many times, and prints what it knows of them, in JSON: its thread;
 * for which times they were (`wanted`), and how late the program heard of each (`late`), as
 * cyclictest measures it.
 *
 *   periodic N US     sleeps until N moments that are so many microseconds apart
 *   realtime N US     the same, by CLOCK_REALTIME
 *   sleep N US        N sleeps of so many microseconds
 *   epoll N           N times epoll_wait() with a time-out of a millisecond, and nothing comes
 *   cancel N          setitimer(), N times armed and cancelled
 *   interval N US     a POSIX timer that repeats, until N signals have come
 *   timerfd N US      the same with a file descriptor
 *   listed N          N file descriptors for a minute later; what /proc/timer_list has of them
 *   outlives N        the same of a child, which ends before they are closed; its thread is printed
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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long *late;
static long long *wanted;
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

static void periodic(clockid_t clock, int times, long long us)
{
    long long next = now_ns(clock);

    for (int i = 0; i < times; i++) {
        struct timespec until;

        next += us * 1000;
        /* What would be over before it began arms no timer. */
        if (next < now_ns(clock) + 100000)
            next = now_ns(clock) + us * 1000;
        until = spec(next);
        must(!clock_nanosleep(clock, TIMER_ABSTIME, &until, NULL), "clock_nanosleep");
        late[heard] = now_ns(clock) - next;
        wanted[heard++] = next;
    }
}

static void sleeps(int times, long long us)
{
    struct timespec time = spec(us * 1000);

    for (int i = 0; i < times; i++)
        must(!nanosleep(&time, NULL), "nanosleep");
}

static void alarms(int times)
{
    struct itimerval minute = { .it_value = { .tv_sec = 60 } }, none = {};

    for (int i = 0; i < times; i++) {
        must(!setitimer(ITIMER_REAL, &minute, NULL), "setitimer");
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

/* The times that /proc/timer_list has between these two, of timers of file descriptors. */
static void list(long long from, long long to)
{
    FILE *file = fopen("/proc/timer_list", "r");
    long long expires;
    char line[512];
    int is_ours = 0;

    must(file != NULL, "/proc/timer_list");
    while (fgets(line, sizeof(line), file)) {
        if (is_ours && sscanf(line, " # expires at %lld-", &expires) == 1 && expires >= from &&
            expires <= to)
            wanted[heard++] = expires;
        is_ours = strstr(line, "timerfd_tmrproc") != NULL;
    }
    fclose(file);
}

/* `child`: who arms them. */
static void listed(int times, pid_t *child)
{
    long long first = now_ns(CLOCK_MONOTONIC) + 60000000000ll;
    int fds[times];

    for (int i = 0; i < times; i++) {
        fds[i] = timerfd_create(CLOCK_MONOTONIC, 0);
        must(fds[i] >= 0, "timerfd_create");
    }
    if (child)
        *child = fork();
    for (int i = 0; i < times && (!child || !*child); i++) {
        struct itimerspec until = { .it_value = spec(first + i * 1000003ll) };

        must(!timerfd_settime(fds[i], TFD_TIMER_ABSTIME, &until, NULL), "timerfd_settime");
    }
    if (child && !*child)
        _exit(0);
    if (child)
        must(waitpid(*child, NULL, 0) == *child, "waitpid");
    /* The kernel forgets it when all CPUs have passed on, and a moment later. */
    for (int i = 0; child && i < 3; i++) {
        syscall(SYS_membarrier, 1 /* MEMBARRIER_CMD_GLOBAL */, 0, 0);
        usleep(20000);
    }
    list(first, first + times * 1000003ll);
    for (int i = 0; i < times; i++)
        close(fds[i]);
}

static void events(int times)
{
    struct epoll_event event;
    int fd = epoll_create1(0);

    for (int i = 0; i < times; i++)
        must(!epoll_wait(fd, &event, 1, 1), "epoll_wait");
}

/* Of a thread that answers: whom, and how often. */
struct answers {
    int fd, times;
    pid_t asks;
};

/* Until a thread waits in this call: then it has armed its timer. */
static void until_it_waits(pid_t thread, int call)
{
    char path[64], word[16] = "";
    int now = -1;

    snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", thread);
    while (now != call) {
        FILE *file = fopen(path, "r");

        must(file && fscanf(file, "%15s", word) == 1, path);
        fclose(file);
        now = *word == 'r' ? -1 : atoi(word);
    }
}

static void *answers(void *data)
{
    struct answers *to = data;
    char byte;

    for (int i = 0; i < to->times; i++) {
        must(read(to->fd, &byte, 1) == 1, "read");
        until_it_waits(to->asks, SYS_recvfrom);
        must(write(to->fd, "x", 1) == 1, "write");
    }
    return NULL;
}

static void sockets(int times, int answered)
{
    struct timeval until = { .tv_sec = answered ? 60 : 0, .tv_usec = 1000 };
    struct answers to = { 0, times, syscall(SYS_gettid) };
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
    pid_t who = syscall(SYS_gettid);

    late = calloc(times + 1, sizeof(*late));
    wanted = calloc(times + 1, sizeof(*wanted));
    if (is(what, "periodic"))
        periodic(CLOCK_MONOTONIC, times, us);
    else if (is(what, "realtime"))
        periodic(CLOCK_REALTIME, times, us);
    else if (is(what, "sleep"))
        sleeps(times, us);
    else if (is(what, "cancel"))
        alarms(times);
    else if (is(what, "interval"))
        interval(times, us);
    else if (is(what, "timerfd"))
        descriptor(times, us);
    else if (is(what, "listed"))
        listed(times, NULL);
    else if (is(what, "outlives"))
        listed(times, &who);
    else if (is(what, "epoll"))
        events(times);
    else if (is(what, "socket") || is(what, "answered"))
        sockets(times, is(what, "answered"));
    else
        return 2;
    printf("{\"pid\": %d, \"wanted\": [", who);
    for (int i = 0; i < heard; i++)
        printf("%s%lld", i ? ", " : "", wanted[i]);
    printf("], \"late\": [");
    for (int i = 0; i < heard; i++)
        printf("%s%ld", i ? ", " : "", late[i]);
    printf("]}\n");
    return 0;
}
