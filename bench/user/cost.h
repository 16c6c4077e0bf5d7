// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What cost.c and the files with arms share.
#ifndef COST_H
#define COST_H

struct arm {
	const char *name;
	void (*run)(unsigned n);
};

/* Ends with an arm without a name. */
extern const struct arm arms[];

/* A loop of whose body nothing may be left out. */
#define LOOP(name, ...)                                        \
	static __attribute__((noinline)) void name(unsigned n) \
	{                                                      \
		unsigned i;                                    \
                                                               \
		for (i = 0; i < n; i++) {                      \
			__VA_ARGS__;                           \
			__asm__ volatile("" : : : "memory");   \
		}                                              \
	}

#endif
