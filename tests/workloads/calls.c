// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Makes known, prime, numbers of system calls, in two processes, with planted paths.
//
// usage: calls FOLDER
//
// FOLDER must exist. Prints how often the program made each call, and how often each path was
// opened.
#include "oracle.h"
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>

#define PARENTS 1009
#define DUPS 101
#define ABIS 23

struct planted {
	const char *path;
	int times;
	int flags;
};

static char longest[PATH_MAX], too_long[PATH_MAX + 8];

static const struct planted planted[] = {
	{ "with several  spaces", 7, O_CREAT | O_RDWR },
	{ "with \"quotes\" and 'others' and \\", 11, O_CREAT | O_RDWR },
	{ "G\xc3\xbc\xc3\x9f" "e \xe2\x82\xac \xf0\x9f\x90\xa7", 13, O_CREAT | O_RDWR },
	{ "missing", 17, O_RDONLY },
	{ longest, 5, O_RDONLY },
	{ too_long, 3, O_RDONLY },
};
#define PLANTED (sizeof(planted) / sizeof(*planted))

// Not mapped, the kernel's, and beyond both.
static const unsigned long bad[] = { 8, 0xffffffff81000000ul, 0x8000000000000000ul };
#define BAD_TIMES 19

static void open_all(int folder)
{
	for (size_t i = 0; i < PLANTED; i++)
		for (int n = 0; n < planted[i].times; n++) {
			const struct planted *one = &planted[i];
			long fd = syscall(SYS_openat, folder, one->path, one->flags, 0600);

			if (fd >= 0)
				syscall(SYS_close, fd);
		}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		for (int n = 0; n < BAD_TIMES; n++)
			syscall(SYS_openat, folder, bad[i], O_RDONLY, 0);
}

// How often the program has made each of its 32-bit calls.
static int calls_32;

#ifdef __x86_64__
// A kernel without such calls sends SIGSEGV.
static sigjmp_buf without;

static void has_none(int signal)
{
	siglongjmp(without, signal);
}

static long call_32(long number, long a, long b, long c)
{
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(number), "b"(a), "c"(b), "d"(c)
			 : "memory", "r8", "r9", "r10", "r11");
	return result;
}

// What 32-bit programs call. Its addresses have 32 bits.
static void call_as_32_bit(int folder)
{
	static const char path[] = "thirty-two";
	char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);

	if (low == MAP_FAILED)
		die("mmap");
	signal(SIGSEGV, has_none);
	if (sigsetjmp(without, 1))
		return;
	memcpy(low, path, sizeof(path));
	for (int n = 0; n < ABIS; n++) {
		// Number 39 is mkdir() for a 32-bit call, and getpid() for a 64-bit call.
		call_32(39, 0, 0750, 0);
		// openat(), and mmap2(), which 64-bit programs do not have.
		call_32(295, folder, (long)low, O_RDONLY);
		call_32(192, 0, 0, 0);
	}
	calls_32 = ABIS;
	munmap(low, 4096);
}
#else
static void call_as_32_bit(int folder)
{
	(void)folder;
}
#endif

static void call_all(int folder)
{
	open_all(folder);
	for (int n = 0; n < PARENTS; n++)
		syscall(SYS_getppid);
	for (int n = 0; n < DUPS; n++)
		syscall(SYS_dup, -1);
	call_as_32_bit(folder);
}

int main(int argc, char **argv)
{
	int folder, status;
	pid_t child;

	if (argc != 2)
		exit(2);
	memset(longest, '/', sizeof(longest) - 1);
	memcpy(longest + sizeof(longest) - 9, "/the end", 8);
	memset(too_long, 'x', sizeof(too_long) - 1);
	folder = syscall(SYS_openat, AT_FDCWD, argv[1], O_PATH | O_DIRECTORY, 0);
	if (folder < 0)
		die(argv[1]);
	call_all(folder);
	child = fork();
	if (child < 0)
		die("fork");
	if (!child) {
		call_all(folder);
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status)
		die("the child");
	printf("{\"pids\": [%d, %d], \"getppid\": %d, \"dup\": %d, \"calls_32\": %d, \"bad\": %d,"
	       " \"paths\": [",
	       getpid(), child, 2 * PARENTS, 2 * DUPS, 2 * calls_32, 2 * 3 * BAD_TIMES);
	// As bytes in hexadecimal, because the test must not rely on how JSON is written here.
	for (size_t i = 0; i < PLANTED; i++) {
		printf("%s[\"", i ? ", " : "");
		for (const char *c = planted[i].path; *c; c++)
			printf("%02x", (unsigned char)*c);
		printf("\", %d]", 2 * planted[i].times);
	}
	printf("]}\n");
	return 0;
}
