// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * storm NUMBER: makes so many processes that end at once, some at a time, and prints "PID STATUS"
 * for each, in the order in which they were made, with the status that waitpid() has told.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOGETHER 7

int main(int argc, char **argv)
{
    int number = argc == 2 ? atoi(argv[1]) : 0;
    pid_t pids[TOGETHER];

    if (number <= 0) {
        fprintf(stderr, "usage: storm NUMBER\n");
        return 2;
    }
    for (int made = 0; made < number; made += TOGETHER) {
        int batch = number - made < TOGETHER ? number - made : TOGETHER;

        for (int i = 0; i < batch; i++) {
            fflush(stdout);
            pids[i] = fork();
            if (pids[i] < 0)
                return 1;
            if (!pids[i])
                _exit((made + i) % 251);
        }
        for (int i = 0; i < batch; i++) {
            int status;

            if (waitpid(pids[i], &status, 0) != pids[i])
                return 1;
            printf("%d %d\n", pids[i], status);
        }
    }
    return 0;
}
