// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * writers FOLDER WRITERS MIB SECONDS: so many threads write so much in all, each to a file of its
 * own, from the front to the back, until it is done or the time is up; then the file system is
 * synced. Prints as JSON how much was written, how long it took, and the CPU time of the threads.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 65536, MOST = 256 };

static long long share, written[MOST];
static double until;
static const char *folder;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void *writer(void *which)
{
    long number = (long)which;
    char path[4096], *piece = malloc(PIECE);
    int file;

    snprintf(path, sizeof(path), "%s/file%ld", folder, number);
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || !piece) {
        perror(path);
        exit(1);
    }
    memset(piece, 'x', PIECE);
    while (written[number] < share && now() < until) {
        if (write(file, piece, PIECE) != PIECE) {
            perror(path);
            exit(1);
        }
        written[number] += PIECE;
    }
    close(file);
    free(piece);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[MOST];
    struct rusage usage;
    long long sum = 0;
    long writers;
    double began, took;
    int here;

    if (argc != 5)
        return 2;
    folder = argv[1];
    writers = atol(argv[2]);
    share = atoll(argv[3]) * 1048576 / writers;
    began = now();
    until = began + atof(argv[4]);
    for (long i = 0; i < writers; i++)
        pthread_create(&threads[i], NULL, writer, (void *)i);
    for (long i = 0; i < writers; i++)
        pthread_join(threads[i], NULL);
    here = open(folder, O_RDONLY);
    if (syncfs(here))
        return 1;
    took = now() - began;
    for (long i = 0; i < writers; i++)
        sum += written[i];
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"bytes\": %lld, \"seconds\": %.6f, \"cpu\": %.6f}\n", sum, took,
           usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
               (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    return 0;
}
