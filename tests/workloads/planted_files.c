// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Makes planted numbers of calls for files, in the folder that it is given, and prints how many of
 * each it made with which result: one line for each, "CALL ERRNO TIMES"; then "io READ WRITTEN",
 * the bytes that /proc/self/io counted from the first to the second time that it read this file.
 *
 * Usage: planted_files FOLDER
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char buffer[70000];

/* `times` calls, all of which have this result: 0, or an error number. */
#define PLANT(name, times, wanted, call)                                         \
    do {                                                                         \
        for (int i = 0; i < (times); i++) {                                      \
            errno = 0;                                                           \
            long result = (call);                                                \
            if ((result < 0 ? errno : 0) != (wanted)) {                          \
                fprintf(stderr, "%s: %s\n", name, strerror(errno));              \
                exit(1);                                                         \
            }                                                                    \
        }                                                                        \
        snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s %d %d\n", \
                 name, wanted, times);                                           \
    } while (0)

/* What the kernel has counted for this process, before this call. */
static void counted(unsigned long long *got, unsigned long long *put)
{
    static char io[4096];
    int file = open("/proc/self/io", O_RDONLY);

    if (file < 0 || read(file, io, sizeof(io) - 1) <= 0 ||
        sscanf(io, "rchar: %llu\nwchar: %llu", got, put) != 2)
        exit(1);
    close(file);
}

int main(int argc, char **argv)
{
    static char said[10000];
    unsigned long long got, put, got_first, put_first;
    struct stat stat;
    int file, folder;

    if (argc != 2 || chdir(argv[1])) {
        fprintf(stderr, "usage: planted_files FOLDER\n");
        return 2;
    }
    counted(&got_first, &put_first);
    PLANT("mkdir", 3, EEXIST, syscall(SYS_mkdir, ".", 0700));
    PLANT("openat", 1, 0, file = syscall(SYS_openat, AT_FDCWD, "file", O_RDWR | O_CREAT, 0600));
    PLANT("openat", 101, ENOENT, syscall(SYS_openat, AT_FDCWD, "absent", O_RDONLY));
    PLANT("openat", 7, ENOTDIR, syscall(SYS_openat, AT_FDCWD, "file/below", O_RDONLY));
    PLANT("openat", 5, EEXIST, syscall(SYS_openat, AT_FDCWD, "file", O_CREAT | O_EXCL, 0600));
    PLANT("open", 13, ENOENT, syscall(SYS_open, "absent", O_RDONLY));
    PLANT("stat", 211, 0, syscall(SYS_stat, "file", &stat));
    PLANT("lstat", 17, ENOENT, syscall(SYS_lstat, "absent", &stat));
    PLANT("fstat", 19, 0, syscall(SYS_fstat, file, &stat));
    PLANT("fstat", 2, EBADF, syscall(SYS_fstat, 999, &stat));
    PLANT("statx", 23, 0, syscall(SYS_statx, AT_FDCWD, "file", 0, STATX_ALL, buffer));
    PLANT("access", 29, ENOENT, syscall(SYS_access, "absent", R_OK));
    PLANT("faccessat2", 31, 0, syscall(SYS_faccessat2, AT_FDCWD, "file", R_OK, 0));
    PLANT("readlink", 37, EINVAL, syscall(SYS_readlink, "file", buffer, 99));
    PLANT("stat", 3, EFAULT, syscall(SYS_stat, (char *)8, &stat));
    PLANT("unlink", 41, ENOENT, syscall(SYS_unlink, "absent"));
    PLANT("rename", 1, 0, syscall(SYS_rename, "file", "other"));
    PLANT("rename", 1, 0, syscall(SYS_rename, "other", "file"));
    PLANT("write", 43, 0, write(file, buffer, 65537));
    PLANT("pwrite64", 47, 0, pwrite(file, buffer, 11, 0));
    PLANT("pread64", 53, 0, pread(file, buffer, 13, 0));
    PLANT("read", 59, 0, read(file, buffer, 99));
    PLANT("preadv", 61, 0,
          preadv(file, &(struct iovec){ .iov_base = buffer, .iov_len = 17 }, 1, 0));
    PLANT("mmap", 67, 0, (long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0) > 0 ? 0 : -1);
    PLANT("openat", 1, 0, folder = syscall(SYS_openat, AT_FDCWD, ".", O_DIRECTORY | O_RDONLY));
    PLANT("getdents64", 2, 0, syscall(SYS_getdents64, folder, buffer, sizeof(buffer)));
    PLANT("newfstatat", 71, 0, syscall(SYS_newfstatat, folder, "file", &stat, 0));
    PLANT("dup", 83, EBADF, syscall(SYS_dup, 999));
    PLANT("dup2", 79, 0, syscall(SYS_dup2, file, 400));
    PLANT("dup3", 89, 0, syscall(SYS_dup3, file, 401, O_CLOEXEC));
    PLANT("fcntl", 97, EINVAL, syscall(SYS_fcntl, file, F_DUPFD, -1));
    PLANT("close", 1, 0, close(folder));
    PLANT("close", 73, EBADF, close(folder));
    PLANT("unlinkat", 1, 0, syscall(SYS_unlinkat, AT_FDCWD, "file", 0));

    counted(&got, &put);
    printf("%sio %llu %llu\n", said, got - got_first, put - put_first);
    return 0;
}
