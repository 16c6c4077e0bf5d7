// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// starts TIMES PROGRAM...: starts each of the programs, which are `nothing` with several C
// libraries, one after the other, TIMES times. Reports what each said, and what the kernel counted.
#include "nothing.h"
#include "threads.h"
#include <spawn.h>

extern char **environ;

static void start(int number, char *program)
{
	char *arguments[] = { program, NULL };
	posix_spawn_file_actions_t actions;
	struct rusage usage;
	struct said said;
	int ends[2], status;
	pid_t pid;

	if (pipe(ends))
		die("pipe");
	must(posix_spawn_file_actions_init(&actions), "posix_spawn_file_actions_init");
	must(posix_spawn_file_actions_adddup2(&actions, ends[1], 1), "adddup2");
	must(posix_spawn_file_actions_addclose(&actions, ends[0]), "addclose");
	must(posix_spawn_file_actions_addclose(&actions, ends[1]), "addclose");
	must(posix_spawn(&pid, program, &actions, NULL, arguments, environ), program);
	close(ends[1]);
	if (read(ends[0], &said, sizeof(said)) != sizeof(said) ||
	    wait4(pid, &status, 0, &usage) != pid || status)
		die(program);
	close(ends[0]);
	posix_spawn_file_actions_destroy(&actions);
	printf("{\"role\": \"start\", \"program\": %d, \"pid\": %d, \"main_ns\": %lld, "
	       "\"faults\": %lld, \"all_faults\": %ld}\n",
	       number, pid, said.main_ns, said.faults, usage.ru_minflt + usage.ru_majflt);
}

// Not all machines have it.
#ifndef SYS_open
#define SYS_open -1
#endif

int main(int argc, char **argv)
{
	int times = argc > 2 ? atoi(argv[1]) : 0;

	if (times < 1)
		return fprintf(stderr, "starts TIMES PROGRAM...\n"), 2;
	printf("{\"role\": \"numbers\", \"open\": %d, \"openat\": %d, \"mmap\": %d, "
	       "\"mprotect\": %d}\n",
	       SYS_open, SYS_openat, SYS_mmap, SYS_mprotect);
	for (int i = 0; i < times; i++)
		for (int n = 2; n < argc; n++)
			start(n - 2, argv[n]);
	return 0;
}
