/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The file that the module shares with recorders: its folder, its contents, its mapping. */
#ifndef KLOGGER_USER_FILE_H
#define KLOGGER_USER_FILE_H

#include "module.h"

KLOGGER_C_BEGIN

static inline char *klogger_put(char *to, const char *text)
{
	while (*text)
		*to++ = *text++;
	*to = 0;
	return to;
}

static inline char *klogger_put_number(char *to, __u64 n, unsigned base)
{
	char digits[24];
	int i = 0;

	do {
		digits[i++] = "0123456789abcdef"[n % base];
		n /= base;
	} while (n);
	while (i)
		*to++ = digits[--i];
	*to = 0;
	return to;
}

/* Opens a folder to which only this user may write; a file descriptor, or -1. */
KLOGGER_SLOW int klogger_open_folder(const char *path)
{
	struct stat st;
	int fd;

	syscall(SYS_mkdirat, AT_FDCWD, path, 0700);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path,
			  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) || st.st_uid != (__u32)syscall(SYS_geteuid) || (st.st_mode & 077)) {
		syscall(SYS_close, fd);
		errno = EPERM;
		return -1;
	}
	return fd;
}

/* $KLOGGER_DIR, /dev/shm/klogger-UID or $XDG_RUNTIME_DIR/klogger; stores its name in `path`. */
KLOGGER_SLOW int klogger_find_folder(char *path, size_t size)
{
	int secure = getauxval(AT_SECURE) != 0, fd;
	const char *dir = secure ? NULL : getenv("KLOGGER_DIR");
	const char *run = secure ? NULL : getenv("XDG_RUNTIME_DIR");

	if (dir) {
		if (*dir != '/' || strlen(dir) + 64 > size) {
			errno = EINVAL;
			return -1;
		}
		klogger_put(path, dir);
		return klogger_open_folder(path);
	}
	klogger_put_number(klogger_put(path, "/dev/shm/klogger-"), (__u64)syscall(SYS_geteuid), 10);
	fd = klogger_open_folder(path);
	if (fd < 0 && run && strlen(run) + 64 < size) {
		klogger_put(klogger_put(path, run), "/klogger");
		fd = klogger_open_folder(path);
	}
	return fd;
}

KLOGGER_SLOW __u64 klogger_pid_ns(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) ? 0 : (__u64)st.st_ino;
}

/*
 * Removes files of programs that have ended without a recorder: a program that is killed, or that
 * forks and calls exec, cannot do it itself. Looks at some tens of files at most, so that a program
 * starts as fast in a full folder. Numbers of another pid namespace cannot be checked here.
 */
KLOGGER_SLOW void klogger_sweep(int folder, __u64 pid_ns)
{
	struct entry {
		__u64 inode;
		__s64 next;
		unsigned short length;
		unsigned char type;
		char name[];
	};
	char buffer[2048] __attribute__((aligned(8)));
	long bytes = syscall(SYS_getdents64, folder, buffer, sizeof(buffer)), at = 0;

	while (at < bytes) {
		struct entry *entry = (struct entry *)(buffer + at);
		struct klogger_control control;
		long pid = strtol(entry->name, NULL, 10);
		int fd;

		at += entry->length;
		if (pid <= 0 || !syscall(SYS_kill, pid, 0) || errno != ESRCH)
			continue;
		fd = (int)syscall(SYS_openat, folder, entry->name,
				  O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (syscall(SYS_pread64, fd, &control, sizeof(control), 0) ==
			    (long)sizeof(control) &&
		    control.magic == KLOGGER_CONTROL_MAGIC && pid_ns && control.pid_ns == pid_ns &&
		    !control.armed && !control.flight)
			syscall(SYS_unlinkat, folder, entry->name, 0);
		syscall(SYS_close, fd);
	}
}

KLOGGER_SLOW int klogger_write_texts(int fd, const struct klogger_control *control)
{
	const struct klogger_module_schema *schema = control->schema;
	struct klogger_unit *unit;

	for (unit = klogger_module.units; unit; unit = unit->next, schema++)
		if (syscall(SYS_pwrite64, fd, unit->text, unit->length, schema->text) !=
		    (long)unit->length)
			return -1;
	return 0;
}

/*
 * The control page and what follows it can be used at once; slots only after they are taken
 * (klogger_reach_slot), because otherwise mlockall() would allocate all of them. In a child, at
 * every moment there is a page that may be touched.
 */
KLOGGER_SLOW void *klogger_map(int fd, const struct klogger_control *control, void *at)
{
	/* In whole pages: with pages of 16 or 64 KiB the first slot begins within one. */
	long flags = MAP_SHARED | MAP_NORESERVE, page = (long)klogger_module.page;
	long before = ((long)control->slots_at + page - 1) & ~(page - 1);
	char *map = (char *)at;

	if (!at) {
		map = (char *)syscall(SYS_mmap, NULL, control->size, PROT_NONE, flags, fd, 0L);
		if (map != MAP_FAILED && syscall(SYS_mprotect, map, before, PROT_READ | PROT_WRITE))
			return MAP_FAILED;
		return map;
	}
	if ((void *)syscall(SYS_mmap, map, before, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd,
			    0L) == MAP_FAILED)
		return MAP_FAILED;
	return (void *)syscall(SYS_mmap, map + before, control->size - before, PROT_NONE,
			       flags | MAP_FIXED, fd, before) == MAP_FAILED
		       ? MAP_FAILED
		       : at;
}

/*
 * Makes the file and maps it: at `at`, in place of what is there, or anywhere. Async-signal-safe.
 */
KLOGGER_SLOW void *klogger_make_file(int folder, const char *dir, struct klogger_control *control,
				     void *at)
{
	char path[64];
	void *map = MAP_FAILED;
	int fd;

	klogger_put_number(
		klogger_put(klogger_put_number(klogger_put(path, "."), control->pid, 10), "."),
		control->image, 16);
	fd = (int)syscall(SYS_openat, folder, path,
			  O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return MAP_FAILED;
	if (!syscall(SYS_ftruncate, fd, control->size) &&
	    syscall(SYS_pwrite64, fd, control, sizeof(*control), 0) == (long)sizeof(*control) &&
	    !klogger_write_texts(fd, control))
		map = klogger_map(fd, control, at);
	if (map == MAP_FAILED) {
		syscall(SYS_unlinkat, folder, path, 0);
	} else if (syscall(SYS_renameat2, folder, path, folder, path + 1, 0)) {
		/*
		 * No recorder will find it, so nothing is logged. The mapping stays, because it may
		 * be in the place of a parent's file.
		 */
		syscall(SYS_unlinkat, folder, path, 0);
		memset(((struct klogger_control *)map)->on, 0, KLOGGER_EVENTS_MAX);
	} else {
		klogger_put(klogger_put(klogger_put(klogger_module.path, dir), "/"), path + 1);
	}
	syscall(SYS_close, fd);
	return map;
}

KLOGGER_C_END

#endif
