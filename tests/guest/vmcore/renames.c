// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* renames N [FILE]: changes its name N times, to 1, 2, ... N, then at once writes 0 to the file. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **words)
{
	int last = count > 1 ? atoi(words[1]) : 0;
	int file = count > 2 ? open(words[2], O_WRONLY) : -1;
	char name[16];

	if (count > 2 && file < 0) {
		perror(words[2]);
		return 1;
	}
	for (int i = 1; i <= last; i++) {
		snprintf(name, sizeof(name), "%d", i);
		prctl(PR_SET_NAME, name);
	}
	return file >= 0 && write(file, "0", 1) != 1;
}
