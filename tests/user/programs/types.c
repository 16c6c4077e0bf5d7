// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One event of each type, and strings that must be cut.
#include <limits.h>
#include <string.h>
#include "types.klogger.h"

int main(void)
{
	unsigned short triple[3] = { 1, 2, 65535 };
	long long pair[2] = { LLONG_MIN, LLONG_MAX };
	char text[301], path[4001];

	klogger(NOTHING);
	klogger(NUMBERS, 1, SCHAR_MIN, UCHAR_MAX, SHRT_MIN, USHRT_MAX, INT_MIN, UINT_MAX, LONG_MIN,
		ULONG_MAX, LLONG_MIN, ULLONG_MAX);
	klogger(NUMBERS, 0, SCHAR_MAX, 0, SHRT_MAX, 0, INT_MAX, 0, LONG_MAX, 0, LLONG_MAX, 0);
	klogger(PADDED, 1, 0x0123456789abcdefull, 2, 0x89abcdef, 3, 0xfedc);
	klogger(SHAPES, triple, pair, "four", "fifteen letters");
	klogger(SHAPES, triple, pair, "more than four", "more than fifteen letters");
	klogger(SHAPES, triple, pair, "", NULL);
	memset(text, 'x', sizeof(text) - 1);
	text[300] = 0;
	memset(path, 'p', sizeof(path) - 1);
	path[4000] = 0;
	klogger(TEXT, 1, text, 2);
	klogger(TEXT, 3, text + 45, 4);
	klogger(TEXT, 5, text + 46, 6);
	klogger(TEXT, 7, "", 8);
	klogger(TEXT, 9, NULL, 10);
	klogger(TEXTS, "one", 1, "", "three");
	klogger(TEXTS, NULL, 2, path, NULL);
	klogger(TEXTS, path, 3, path + 1001, path);
	klogger(MARK, -1, "a word");
	return 0;
}
