/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where struct pt_regs has what functions are called with, as words of it: the context of programs
 * of kprobes, of programs in user space, of samples. One block for each architecture.
 */
#ifndef KLOGGER_BPF_REGISTERS_H
#define KLOGGER_BPF_REGISTERS_H

#if defined(__TARGET_ARCH_arm64)
/* The first arguments are in registers, the others on the stack. */
#define KLOGGER_IN_REGISTERS 8
#define KLOGGER_WORD_OF(n) (n)
#define KLOGGER_WORD_OF_RESULT 0
#define KLOGGER_WORD_OF_STACK 31
#define KLOGGER_ON_STACK(n) (8 * ((n) - KLOGGER_IN_REGISTERS))
#define KLOGGER_WORD_OF_IP 32
/* Whether the registers are those of a program: of user space, not of the kernel. */
#define KLOGGER_WORD_OF_MODE 33 /* pstate */
#define KLOGGER_IS_USER(mode) (((mode) & 15) == 0)
#define KLOGGER_REGISTERS 34
#else /* x86 */
#define KLOGGER_IN_REGISTERS 6
/* rdi, rsi, rdx, rcx, r8, r9 */
#define KLOGGER_WORD_OF(n) ((n) == 3 ? 11 : (n) == 4 ? 9 : (n) == 5 ? 8 : 14 - (n))
#define KLOGGER_WORD_OF_RESULT 10
#define KLOGGER_WORD_OF_STACK 19
/* After the address to return to. */
#define KLOGGER_ON_STACK(n) (8 * ((n) - KLOGGER_IN_REGISTERS + 1))
#define KLOGGER_WORD_OF_IP 16
#define KLOGGER_WORD_OF_MODE 17 /* cs */
#define KLOGGER_IS_USER(mode) (((mode) & 3) == 3)
#define KLOGGER_REGISTERS 21
#endif

#endif
