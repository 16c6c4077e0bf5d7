/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fixed-width types where no system header may be included: BPF objects are compiled without any.
 */
#ifndef KLOGGER_TYPES_H
#define KLOGGER_TYPES_H

#ifdef __bpf__
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
#else
#include <linux/types.h>
#endif

#endif
