// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Arms with klogger.
#define _GNU_SOURCE
#include "cost.h"
#include "cost.klogger.h"

LOOP(empty, )
LOOP(two_ints, klogger(TWO_INTS, (int)i, 7))
LOOP(eight_ints, klogger(EIGHT_INTS, (int)i, 1, 2, 3, 4, 5, 6, 7))
LOOP(string_16, klogger(STRING_16, "fifteen letters"))

const struct arm arms[] = {{"empty", empty},
			   {"two_ints", two_ints},
			   {"eight_ints", eight_ints},
			   {"string_16", string_16},
			   {0, 0}};
