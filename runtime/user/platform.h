/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What of libc and the compiler the user engine needs, whatever standard a program is compiled for.
 */
#ifndef KLOGGER_USER_PLATFORM_H
#define KLOGGER_USER_PLATFORM_H

#if !defined(__linux__) || __SIZEOF_POINTER__ != 8
#error "klogger's user engine needs a 64-bit Linux; compile with -DKLOGGER_OFF elsewhere"
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#ifdef __cplusplus
#define KLOGGER_C_BEGIN extern "C" {
#define KLOGGER_C_END }
#define KLOGGER_NOTHING {}
#else
#define KLOGGER_C_BEGIN
#define KLOGGER_C_END
#define KLOGGER_NOTHING { 0 }
#endif
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* -std=c11 hides these, although every libc of Linux has them. */
#if defined(__STRICT_ANSI__) && !defined(__cplusplus) && !defined(_GNU_SOURCE)
extern long syscall(long number, ...);
extern int clock_gettime(int clock, struct timespec *ts);
#endif
#ifndef CLOCK_MONOTONIC
#define CLOCK_MONOTONIC 1
#endif
#ifndef AT_FDCWD
#define AT_FDCWD -100
#endif
#ifndef O_CLOEXEC
#define O_CLOEXEC __O_CLOEXEC
#endif
#ifndef O_NOFOLLOW
#define O_NOFOLLOW __O_NOFOLLOW
#endif
#ifndef O_DIRECTORY
#define O_DIRECTORY __O_DIRECTORY
#endif
#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS 0x20
#endif
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0x4000
#endif
#define KLOGGER_MADV_WIPEONFORK 18
#define KLOGGER_MADV_DONTDUMP 16
#define KLOGGER_MADV_POPULATE_WRITE 23	/* Linux 5.14 */
#define KLOGGER_FUTEX_WAKE 1
#define KLOGGER_FIRST_PID_NS 0xeffffffcu	/* the kernel's number for it */
#define KLOGGER_RLIMIT_FSIZE 1
#define KLOGGER_RLIMIT_AS 9

#define klogger_likely(x) __builtin_expect(!!(x), 1)
#define klogger_unlikely(x) __builtin_expect(!!(x), 0)
#define klogger_barrier() __asm__ volatile("" ::: "memory")
#define KLOGGER_VOLATILE(x) (*(volatile __typeof__(x) *)&(x))
#define KLOGGER_SHARED __attribute__((weak, visibility("hidden")))
#define KLOGGER_SLOW __attribute__((weak, visibility("hidden"), noinline, cold))
#define KLOGGER_SLOW_CALL __attribute__((unused, noinline, cold))

#endif
