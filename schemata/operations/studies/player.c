// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * player FOLDER STREAMS PERCENT SECONDS WRITERS: each stream is a thread that reads its file,
 * FOLDER/stream0, ..., in requests of 128 KiB, from its begin to its end, again and again. What was
 * read leaves the page cache at once, so that each request needs the device, or what the kernel has
 * read ahead.
 *
 * First each request begins when the one before has ended. If PERCENT is not 0, this lasts for a
 * quarter of SECONDS, and shows how fast the disk is. Then the streams together want so much of
 * that: request N is due to begin N periods after the start of this part, and to have ended 8
 * periods later, which is its deadline: a player has 1 MiB in its buffer. Beside them, WRITERS
 * threads write 64 KiB to a file of their own and call fsync, again and again.
 *
 * Prints a line for each request: stream, thread, when it was issued and done, deadline (0: none);
 * ns of CLOCK_MONOTONIC. Last: "writes" and their number, "period" and its ns.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { REQUEST = 128 * 1024, WRITE = 64 * 1024, THREADS = 32, MOST = 200 * 1000, BUFFERED = 8 };

struct request {
    long long issued, done, deadline;
};

struct stream {
    pthread_t thread;
    int number, tid;
    long count;
    struct request *requests;
};

static const char *folder;
static int percent, count;
static long long start, end, measured, period;
static struct stream streams[THREADS];
static pthread_barrier_t barrier;
static long writes;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static long long now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void sleep_until(long long when)
{
    struct timespec t = {when / 1000000000LL, when % 1000000000LL};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static int open_in(const char *name, int number, int flags)
{
    char path[4096];
    int fd;

    snprintf(path, sizeof(path), "%s/%s%d", folder, name, number);
    fd = open(path, flags, 0600);
    if (fd < 0)
        fail(path);
    return fd;
}

/* Reads the next request; it is due at a time, or at once (0). */
static void request(struct stream *stream, int fd, long long size, long long due)
{
    static __thread char buffer[REQUEST];
    struct request *request = &stream->requests[stream->count];
    off_t at = (long long)stream->count * REQUEST % (size / REQUEST * REQUEST);

    if (due && now() < due)
        sleep_until(due);
    request->deadline = due ? due + BUFFERED * period : 0;
    request->issued = now();
    if (pread(fd, buffer, REQUEST, at) != REQUEST)
        fail("pread");
    request->done = now();
    stream->count++;
    posix_fadvise(fd, at, REQUEST, POSIX_FADV_DONTNEED);
}

/* The period with which all streams together want so much percent of what they have got. */
static void set_period(void)
{
    long long requests = 0;

    for (int i = 0; i < count; i++)
        requests += streams[i].count;
    period = (measured - start) * count * 100 / (requests ? requests : 1) / percent;
    start = now() + 1000 * 1000;
}

static void *play(void *given)
{
    struct stream *stream = given;
    int fd = open_in("stream", stream->number, O_RDONLY);
    struct stat file;

    if (fstat(fd, &file) || file.st_size < REQUEST)
        fail("stream");
    stream->tid = gettid();
    sleep_until(start);
    while (stream->count < MOST && now() < measured)
        request(stream, fd, file.st_size, 0);
    if (percent) {
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            set_period();
        pthread_barrier_wait(&barrier);
        for (long n = 0; stream->count < MOST && now() < end; n++)
            request(stream, fd, file.st_size, start + n * period);
    }
    close(fd);
    return NULL;
}

static void *append(void *given)
{
    int fd = open_in("written", (int)(long)given, O_WRONLY | O_CREAT | O_TRUNC);
    char *buffer = calloc(1, WRITE);

    sleep_until(start);
    for (long n = 0; now() < end; n++) {
        /* A file of at most 16 MiB. */
        if (pwrite(fd, buffer, WRITE, n % 256 * WRITE) != WRITE || fsync(fd))
            fail("write");
        __atomic_fetch_add(&writes, 1, __ATOMIC_RELAXED);
    }
    free(buffer);
    close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    static pthread_t writers[THREADS];
    double seconds;
    int others;

    if (argc != 6)
        return 2;
    folder = argv[1];
    count = atoi(argv[2]);
    percent = atoi(argv[3]);
    seconds = atof(argv[4]);
    others = atoi(argv[5]);
    if (count < 1 || count > THREADS || others < 0 || others > THREADS || percent < 0)
        return 2;
    pthread_barrier_init(&barrier, NULL, count);
    start = now() + 20 * 1000 * 1000;
    end = start + (long long)(seconds * 1e9);
    measured = percent ? start + (end - start) / 4 : end;
    for (int i = 0; i < count; i++) {
        streams[i].number = i;
        streams[i].requests = calloc(MOST, sizeof(struct request));
        if (!streams[i].requests || pthread_create(&streams[i].thread, NULL, play, &streams[i]))
            fail("thread");
    }
    for (long i = 0; i < others; i++)
        if (pthread_create(&writers[i], NULL, append, (void *)i))
            fail("thread");
    for (int i = 0; i < count; i++)
        pthread_join(streams[i].thread, NULL);
    for (int i = 0; i < others; i++)
        pthread_join(writers[i], NULL);
    for (int i = 0; i < count; i++)
        for (long n = 0; n < streams[i].count; n++) {
            struct request *r = &streams[i].requests[n];

            printf("%d %d %lld %lld %lld\n", i, streams[i].tid, r->issued, r->done, r->deadline);
        }
    printf("writes %ld\nperiod %lld\n", writes, period);
    return 0;
}
