// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// crashes uninitialised '' | crashes overrun TEXT: uses memory that nobody has written, or copies a
// text into a buffer of 16 bytes, which the C library checks.

#undef _FORTIFY_SOURCE
#define _FORTIFY_SOURCE 2
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    struct node *next;
    int value;
};

// The block is new, so that its bytes are zeros unless MALLOC_PERTURB_ is set.
static int uninitialised(void)
{
    volatile struct node *node = malloc(100000);

    if (!node)
        return 1;
    return node->next ? node->next->value : 0;
}

int main(int count, char **words)
{
    char copy[16];

    if (count != 3)
        return 2;
    if (!strcmp(words[1], "uninitialised"))
        return uninitialised();
    strcpy(copy, words[2]);
    return copy[0] == 0;
}
