// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// player HOGS SECONDS: a decoder sends frames over a pipe to a display, 25 a second, beside so many
// loops.
//
// Decoding takes 14 ms of CPU time a frame and showing it 8 ms: together 55 % of a CPU. The pipe
// has room for one frame. A frame that is not shown within its 40 ms is lost; for one whose time is
// over, no thread works any more.
#include "study.h"
#include <fcntl.h>

#define PERIOD (40 * MS)
#define DECODE (14 * MS)
#define SHOW (8 * MS)

static char frame[4096];

static void decode(int out, int frames, long long begin)
{
	int decoded = 0;

	for (int n = 0; n < frames; n++) {
		if (now() > begin + (n + 1) * PERIOD)
			continue;
		work(DECODE);
		decoded++;
		memcpy(frame, &n, sizeof(n));
		if (write(out, frame, sizeof(frame)) != sizeof(frame))
			_exit(1);
	}
	report("decoder", decoded);
}

static void show(int in, int frames, long long begin)
{
	int lost = frames;

	for (int n; read(in, frame, sizeof(frame)) == sizeof(frame);) {
		memcpy(&n, frame, sizeof(n));
		if (now() > begin + (n + 1) * PERIOD)
			continue;
		sleep_until(begin + n * PERIOD);
		work(SHOW);
		lost -= now() <= begin + (n + 1) * PERIOD;
	}
	report("display", lost);
}

int main(int argc, char **argv)
{
	int hogs = argc == 3 ? atoi(argv[1]) : -1,
	    frames = argc == 3 ? atof(argv[2]) * SECOND / PERIOD : 0, ends[2], players[2];
	int hog[256], ok = 1, status;
	volatile long long turns = 0;
	long long begin;

	if (hogs < 0 || hogs > 256 || frames < 1)
		return fprintf(stderr, "player: HOGS SECONDS\n"), 2;
	report_machine();
	for (int i = 0; i < hogs; i++) {
		if ((hog[i] = child("hog")) == 0) {
			for (;;)
				turns++;
		}
	}
	// The hogs came first, as in the paper: they have found their CPUs when the film begins.
	// They must not hold the pipe.
	if (pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, sizeof(frame)) < 0)
		die("pipe");
	begin = now() + 200 * MS;
	if ((players[0] = child("decoder")) == 0) {
		close(ends[0]);
		sleep_until(begin - PERIOD);
		decode(ends[1], frames, begin);
		_exit(0);
	}
	if ((players[1] = child("display")) == 0) {
		close(ends[1]);
		show(ends[0], frames, begin);
		_exit(0);
	}
	close(ends[0]);
	close(ends[1]);
	for (int i = 0; i < 2; i++)
		ok &= waitpid(players[i], &status, 0) == players[i] && status == 0;
	report_machine();
	for (int i = 0; i < hogs; i++)
		kill(hog[i], SIGKILL);
	while (wait(NULL) > 0)
		;
	return !ok;
}
