// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * load KERNEL INITRAMFS COMMAND_LINE: loads the kernel that is booted after a crash (like `kexec
 * -p` of kexec-tools).
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ON_CRASH 2UL

int main(int count, char **words)
{
	int kernel, initramfs;

	if (count != 4)
		return 2;
	kernel = open(words[1], O_RDONLY);
	initramfs = open(words[2], O_RDONLY);
	if (syscall(SYS_kexec_file_load, kernel, initramfs, strlen(words[3]) + 1, words[3],
		    ON_CRASH)) {
		perror("kexec_file_load");
		return 1;
	}
	return 0;
}
