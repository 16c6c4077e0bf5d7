// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Threads that sleep in the D state, for a reason that is known.
 *
 * Usage: workload freeze FOLDER SECONDS
 *        workload vfork SECONDS
 *        workload busy FOLDER SECONDS
 *
 *   freeze  freezes the file system of FOLDER, then, each when the one before it sleeps:
 *             writer1  makes a file in it
 *             writer2  makes a folder in it
 *             memory   writes to a mapped file of it, through /proc/PID/mem of `victim`. So it
 *                      holds the lock of that address space while it waits for the file system
 *             mapper   a thread of `victim` that maps memory: it waits for that lock
 *             reader   reads /proc/PID/cmdline of `victim`, as ps does: it waits behind `mapper`
 *           After so many seconds it thaws the file system, and all go on.
 *   vfork   a parent waits for its child, which has borrowed its memory: slow, and no dead-lock
 *   busy    writes, syncs and reads: sleeps in D often, and never for long. It prints its id and
 *           how often it left its CPU by itself
 *
 * The others print for each thread, once all sleep: its name, its id, its state in /proc, the time
 * (of CLOCK_MONOTONIC, ns) at which it was first seen to sleep, and the functions of its kernel
 * stack. Then the times of the freeze and the thaw.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define FRAMES 32

struct shared {
	volatile pid_t victim, mapper;
	volatile int map_now;
	char *volatile page;
};

static struct shared *shared;
static int folder = -1;
static volatile sig_atomic_t is_frozen;

/* The file system is thawed however this ends. Only calls that signal handlers may make. */
static void thaw(void)
{
	if (is_frozen)
		ioctl(folder, FITHAW, 0);
	is_frozen = 0;
}

static void stopped(int number)
{
	thaw();
	_exit(128 + number);
}

static void fail(const char *what)
{
	perror(what);
	thaw();
	exit(1);
}

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static void nap(double seconds)
{
	struct timespec time = { seconds, (seconds - (long)seconds) * 1e9 };

	while (nanosleep(&time, &time) && errno == EINTR)
		;
}

/* The letter of its state in /proc, which is read without the lock of its address space. */
static char state_of(pid_t tid)
{
	char name[64], text[512], *end;
	FILE *file;

	snprintf(name, sizeof(name), "/proc/%d/stat", tid);
	file = fopen(name, "r");
	if (!file)
		return '-';
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	end = strrchr(text, ')');
	return end && end[1] ? end[2] : '-';
}

/* Waits until it sleeps in D for good: in each of so many looks. */
static long long asleep(const char *name, pid_t tid)
{
	long long since = 0;

	for (int look = 0, seen = 0; seen < 20; look++) {
		if (look > 6000) {
			fprintf(stderr, "workload: %s does not sleep\n", name);
			thaw();
			exit(1);
		}
		if (state_of(tid) == 'D') {
			if (!seen++)
				since = now();
		} else {
			seen = 0;
		}
		nap(0.01);
	}
	return since;
}

static void print_stack(pid_t tid)
{
	char name[64], line[256];
	FILE *file;

	snprintf(name, sizeof(name), "/proc/%d/stack", tid);
	file = fopen(name, "r");
	while (file && fgets(line, sizeof(line), file)) {
		char *function = strchr(line, ' ');

		if (function)
			printf(" %.*s", (int)strcspn(function + 1, "+\n"), function + 1);
	}
	if (file)
		fclose(file);
}

static void print_thread(const char *name, pid_t tid, long long since)
{
	printf("%s %d %c %lld", name, tid, state_of(tid), since);
	print_stack(tid);
	printf("\n");
}

/* A child with a name, which does one thing. It sees no more of its parent's output. */
static pid_t child(const char *name, void (*act)(void))
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		fail("fork");
	if (pid)
		return pid;
	is_frozen = 0;
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	prctl(PR_SET_NAME, name);
	act();
	_exit(0);
}

static void make_file(void)
{
	openat(folder, "made", O_CREAT | O_WRONLY, 0600);
}

static void make_folder(void)
{
	mkdirat(folder, "folder", 0700);
}

static void *map(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "mapper");
	shared->mapper = syscall(SYS_gettid);
	while (!shared->map_now)
		nap(0.005);
	mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return NULL;
}

static void be_victim(void)
{
	int file = openat(folder, "mapped", O_RDWR);
	pthread_t thread;

	shared->page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (shared->page == MAP_FAILED || pthread_create(&thread, NULL, map, NULL))
		fail("victim");
	while (!shared->mapper)
		nap(0.005);
	shared->victim = getpid();
	pthread_join(thread, NULL);
}

static int open_of_victim(const char *what, int flags)
{
	char name[64];

	snprintf(name, sizeof(name), "/proc/%d/%s", shared->victim, what);
	return open(name, flags);
}

static void write_memory(void)
{
	if (pwrite(open_of_victim("mem", O_RDWR), "x", 1, (off_t)shared->page) != 1)
		fail("mem");
}

static void read_command(void)
{
	char text[PAGE];

	if (read(open_of_victim("cmdline", O_RDONLY), text, sizeof(text)) < 0)
		fail("cmdline");
}

static void freeze(const char *where, double seconds)
{
	long long frozen, thawed, since[5];
	const char *names[] = { "writer1", "writer2", "memory", "mapper", "reader" };
	pid_t tids[5];
	int file;

	folder = open(where, O_RDONLY | O_DIRECTORY);
	file = openat(folder, "mapped", O_CREAT | O_RDWR, 0600);
	if (file < 0 || ftruncate(file, PAGE))
		fail(where);
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("mmap");
	child("victim", be_victim);
	while (!shared->victim)
		nap(0.005);
	signal(SIGTERM, stopped);
	signal(SIGINT, stopped);
	frozen = now();
	is_frozen = 1;
	if (ioctl(folder, FIFREEZE, 0))
		fail("FIFREEZE");
	for (int i = 0; i < 5; i++) {
		if (i == 3)
			shared->map_now = 1;
		tids[i] = i == 3 ? shared->mapper :
				   child(names[i], i == 0 ? make_file :
						   i == 1 ? make_folder :
						   i == 2 ? write_memory : read_command);
		since[i] = asleep(names[i], tids[i]);
	}
	for (int i = 0; i < 5; i++)
		print_thread(names[i], tids[i], since[i]);
	fflush(stdout);
	nap(seconds);
	for (int i = 0; i < 5; i++)
		if (state_of(tids[i]) != 'D')
			fail(names[i]);
	thawed = now();
	thaw();
	printf("freeze %lld %lld\n", frozen, thawed);
	while (wait(NULL) > 0)
		;
}

/* Of a parent that waits for its child, the child says what it looks like. */
static void borrow(double seconds)
{
	pid_t parent = getpid();

	prctl(PR_SET_NAME, "parent");
	if (vfork())
		return;
	long long since = asleep("parent", parent);

	nap(seconds);
	print_thread("parent", parent, since);
	fflush(stdout);
	_exit(0);
}

static void be_busy(const char *where, double seconds)
{
	static char block[64 * PAGE];
	long long until = now() + seconds * 1e9;
	struct rusage usage;
	int file;

	folder = open(where, O_RDONLY | O_DIRECTORY);
	file = openat(folder, "busy", O_CREAT | O_RDWR | O_TRUNC, 0600);
	do {
		if (pwrite(file, block, sizeof(block), 0) < 0 || fsync(file))
			fail(where);
		posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
		if (pread(file, block, sizeof(block), 0) < 0)
			fail(where);
	} while (now() < until);
	getrusage(RUSAGE_SELF, &usage);
	printf("busy %d %ld\n", getpid(), usage.ru_nvcsw);
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "freeze"))
		freeze(argv[2], atof(argv[3]));
	else if (argc == 3 && !strcmp(argv[1], "vfork"))
		borrow(atof(argv[2]));
	else if (argc == 4 && !strcmp(argv[1], "busy"))
		be_busy(argv[2], atof(argv[3]));
	else
		return fprintf(stderr, "usage: see the head of workload.c\n"), 2;
	return 0;
}
