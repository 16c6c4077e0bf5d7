// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The loads of the schema locking, for its tests.
#include "../../schemata/locking/workload.c"
