// SPDX-License-Identifier: GPL-2.0-only
/* Another file of the same module: it only includes the header. */
#include "my.klogger.h"
#include "request.h"

void my_request(unsigned int number)
{
	klogger(REQUEST, 8ull * number, 4096);
	klogger(DONE, number % 2 ? -EIO : 0, "a device");
}
