// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// places LIBRARY [DEPTH]: calls its functions and passes its static probes known numbers of times,
// in threads, in a child, and in a library that it opens late; prints how often.
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLACE __attribute__((noipa))

enum { OWN = 101, THREAD = 103, THREADS = 3, CHILD = 107, LATE = 109, SHOTS = 53 };

PLACE long step(long n)
{
	return 3 * n + 1;
}

PLACE bool narrow(bool b, signed char c, short s, int i, unsigned char u, unsigned short v)
{
	asm volatile("" ::"r"((int)c), "r"((int)s), "r"(i), "r"((int)u), "r"((int)v));
	return b;
}

PLACE long many(long a, long b, long c, long d, long e, long f, int g, long h, char i)
{
	return a + b + c + d + e + f + g + h + i;
}

PLACE const char *text(const char *t)
{
	return t + 1;
}

/* Returns n; so many calls are open at once, and one more. */
PLACE long deep(int n)
{
	volatile long below = n ? deep(n - 1) : -1;

	return below + 1;
}

/* What sys/sdt.h makes: a NOP, and a note that says where the arguments are. */
unsigned short places_semaphore __attribute__((section(".probes"), used));
asm(".pushsection .stapsdt.base,\"a\",\"progbits\"\nplaces_base: .space 1\n.popsection");

#define SHOT(arguments, ...)                                                                    \
	asm volatile("990: nop\n.pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n"          \
		     ".4byte 992f - 991f, 994f - 993f, 3\n991: .asciz \"stapsdt\"\n"            \
		     "992: .balign 4\n993: .8byte 990b, places_base, places_semaphore\n"        \
		     ".asciz \"places\"\n.asciz \"shot\"\n.asciz \"" arguments "\"\n"           \
		     "994: .balign 4\n.popsection" ::__VA_ARGS__)

static long global = -5000000000;
static long table[8] = { 0, 0, 0, 700 };

/* With a register, memory at a symbol, a part of a register, a constant. */
PLACE void first_shot(int a, short c)
{
	SHOT("8@%3 -4@%0 -8@%1 -2@%2", "r"(a), "m"(global), "r"(c), "i"(1));
}

/* With an element of an array, the stack, a byte. */
PLACE void second_shot(long at, signed char c)
{
	volatile int a = -7;

	SHOT("8@%3 -4@%0 -8@%1 -1@%2", "m"(a), "m"(table[at]), "q"(c), "i"(2));
}

static long tid(void)
{
	return syscall(SYS_gettid);
}

static void *thread(void *of)
{
	*(long *)of = tid();
	for (int i = 0; i < THREAD; i++)
		step(1000 + i);
	return NULL;
}

static void run_threads(void)
{
	pthread_t threads[THREADS];
	long tids[THREADS];

	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, thread, &tids[i]);
	printf("\"threads\": [");
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		printf("%s%ld", i ? ", " : "", tids[i]);
	}
	printf("], ");
}

static void run_child(void)
{
	fflush(stdout);
	int child = fork();

	if (child == 0) {
		for (int i = 0; i < CHILD; i++)
			step(2000 + i);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	printf("\"child\": %d, ", child);
}

static int run_library(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	long (*late)(long) = library ? (long (*)(long))dlsym(library, "late_step") : NULL;

	if (!late)
		return 1;
	for (int i = 0; i < LATE; i++)
		late(i);
	return 0;
}

int main(int argc, char **argv)
{
	/* As a caller that leaves something in the upper bits. */
	bool (*wide)(long, long, long, long, long, long) =
		(bool (*)(long, long, long, long, long, long))(void (*)(void))narrow;
	unsigned on = places_semaphore;

	printf("{\"workload\": \"places\", \"pid\": %d, ", getpid());
	for (int i = 0; i < OWN; i++)
		step(i);
	run_threads();
	run_child();
	wide(0x1234567800, 0x7f80, 0x7fff8000, 0x7fffffff80000000, 0x1ff, 0x1ffff);
	wide(0x1234567801, 0x7f7f, 0x7fff7fff, 0x7fffffff7fffffff, 0x100, 0x10000);
	many(1, -2, 3, -4, 5, -6, -7, 1l << 40, 'x');
	text("a text with \"quotes\" and ümläute");
	for (int i = 0; i < SHOTS; i++)
		first_shot(i, -i);
	for (int i = 0; i < SHOTS; i++)
		second_shot(3, -i);
	if (argc > 2)
		printf("\"deep\": %ld, ", deep(atoi(argv[2])));
	if (argc > 1 && run_library(argv[1]))
		return 1;
	printf("\"own\": %d, \"thread\": %d, \"made\": %d, \"late\": %d, \"shots\": %d, "
	       "\"semaphore\": %u, \"after\": []}\n",
	       OWN, THREAD, CHILD, LATE, SHOTS, on);
	return 0;
}
