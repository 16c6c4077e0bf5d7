// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What gcc calls at the beginning and the end of each function under -finstrument-functions; itself
// compiled without.
#include "cost.klogger.h"

void __cyg_profile_func_enter(void *fn, void *call);
void __cyg_profile_func_exit(void *fn, void *call);

void __cyg_profile_func_enter(void *fn, void *call)
{
	klogger(FUNC, (unsigned long)fn, (unsigned long)call, 1);
}

void __cyg_profile_func_exit(void *fn, void *call)
{
	klogger(FUNC, (unsigned long)fn, (unsigned long)call, 0);
}
