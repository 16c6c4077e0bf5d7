// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A call of one event, or two, compiled with -DCALL='klogger(INT_4, value)', for the size of its
// code.
#include "shapes.klogger.h"

void first(int value, const char *text, const unsigned long long *values);
void second(int value, const char *text, const unsigned long long *values);

void first(int value, const char *text, const unsigned long long *values)
{
	(void)value, (void)text, (void)values;
	CALL;
}

#ifdef TWICE
void second(int value, const char *text, const unsigned long long *values)
{
	(void)value, (void)text, (void)values;
	CALL;
}
#endif
