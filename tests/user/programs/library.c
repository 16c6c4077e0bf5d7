// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A shared library with its own schema.
#include "other.klogger.h"

void library_log(int value);

void library_log(int value)
{
	klogger(OTHER, value);
}
