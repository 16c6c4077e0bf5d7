// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What `nothing` tells `starts`.
struct said {
	long long main_ns, faults;
};
