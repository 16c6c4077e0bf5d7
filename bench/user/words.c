// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// words N: counts the words of N generated pages and sorts them. An ordinary program of small
// functions, to be compiled with -finstrument-functions. Prints a checksum.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096

struct word {
	struct word *next;
	unsigned count;
	char text[12];
};

static struct word *table[BUCKETS];
static unsigned seed = 1;

/* As small as these are, a compiler that is asked to log functions is told to leave them alone. */
#define SMALL static inline __attribute__((no_instrument_function))

SMALL unsigned next_random(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

SMALL char letter(void)
{
	return (char)('a' + next_random() % 7);
}

static void make_word(char *text)
{
	unsigned length = 2 + next_random() % 4, i;

	for (i = 0; i < length; i++)
		text[i] = letter();
	text[length] = 0;
}

static unsigned hash(const char *text)
{
	unsigned value = 2166136261u;

	while (*text)
		value = (value ^ (unsigned char)*text++) * 16777619u;
	return value % BUCKETS;
}

static struct word *new_word(const char *text)
{
	struct word *word = calloc(1, sizeof(*word));

	if (!word)
		abort();
	strcpy(word->text, text);
	return word;
}

static struct word *find(const char *text)
{
	struct word **at = &table[hash(text)];

	while (*at && strcmp((*at)->text, text))
		at = &(*at)->next;
	if (!*at)
		*at = new_word(text);
	return *at;
}

static void count_page(void)
{
	char text[12];
	int i;

	for (i = 0; i < 1000; i++) {
		make_word(text);
		find(text)->count++;
	}
}

static int compare(const void *a, const void *b)
{
	const struct word *x = *(struct word *const *)a, *y = *(struct word *const *)b;

	return x->count != y->count ? (x->count < y->count) - (x->count > y->count)
				    : strcmp(x->text, y->text);
}

static unsigned list(struct word **words)
{
	unsigned n = 0, i;

	for (i = 0; i < BUCKETS; i++) {
		struct word *word;

		for (word = table[i]; word; word = word->next)
			words[n++] = word;
	}
	return n;
}

int main(int argc, char **argv)
{
	static struct word *words[1u << 16];
	unsigned pages = argc > 1 ? (unsigned)atoi(argv[1]) : 1, i, n, sum = 0;

	for (i = 0; i < pages; i++)
		count_page();
	n = list(words);
	qsort(words, n, sizeof(*words), compare);
	for (i = 0; i < n; i++)
		sum = sum * 31 + words[i]->count + (unsigned char)words[i]->text[0];
	printf("%u words, %u\n", n, sum);
	return 0;
}
