// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// births exit|exec|sh SECONDS: makes one process after the other, which ends at once, or becomes
// another program that does so (this one, or a shell that starts it). Reports how many, and how
// long they took in all.
#include "study.h"

static void be_born(const char *mode, char *self)
{
	char *alone[] = { self, "nothing", NULL }, *shell[] = { "sh", "-c", self, NULL };

	if (!strcmp(mode, "exec"))
		execv(self, alone);
	if (!strcmp(mode, "sh")) {
		setenv("BIRTHS", "nothing", 1);
		execv("/bin/sh", shell);
	}
	_exit(strcmp(mode, "exit") != 0);
}

int main(int argc, char **argv)
{
	long long until = now() + (long long)((argc == 3 ? atof(argv[2]) : 0) * SECOND),
		  begin = now(), count = 0;
	char line[128];
	int pid, status;

	if ((argc == 2 && !strcmp(argv[1], "nothing")) || getenv("BIRTHS"))
		return 0;
	if (argc != 3)
		return fprintf(stderr, "births: exit|exec|sh SECONDS\n"), 2;
	for (; now() < until; count++) {
		if ((pid = fork()) < 0)
			die("fork");
		if (pid == 0)
			be_born(argv[1], argv[0]);
		if (waitpid(pid, &status, 0) != pid || status)
			return fprintf(stderr, "births: a child failed\n"), 1;
	}
	snprintf(line, sizeof(line),
		 "{\"role\": \"births\", \"births\": %lld, \"took_ns\": %lld}\n", count,
		 now() - begin);
	say(line);
	report("parent", count);
	return 0;
}
