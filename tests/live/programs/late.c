// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A library that `places` opens when it has run for a while.
__attribute__((noipa)) long late_step(long n)
{
	return n * n;
}
