// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Arms with LTTng-UST.
#define _GNU_SOURCE
#include "cost.h"
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng.h"

LOOP(empty, )
LOOP(two_ints, lttng_ust_tracepoint(cost, two_ints, (int)i, 7))

const struct arm arms[] = { { "empty", empty }, { "two_ints", two_ints }, { 0, 0 } };
