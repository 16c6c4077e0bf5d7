// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The other file of first.c: made with the same header or, in a test, with that of another version.
#include "other.klogger.h"

void second(int value);

void second(int value)
{
#ifdef NEWER
	klogger(OTHER, value, value);
#else
	klogger(OTHER, value);
#endif
}
