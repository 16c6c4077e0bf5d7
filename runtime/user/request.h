/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Requests in the environment, KLOGGER_RECORD and KLOGGER_FLIGHT, and messages if they cannot be
 * fulfilled.
 */
#ifndef KLOGGER_USER_REQUEST_H
#define KLOGGER_USER_REQUEST_H

#include "file.h"

KLOGGER_C_BEGIN

/*
 * Whether `name` is in the list up to `end`, whose words are separated by commas; "*" matches all.
 */
static inline int klogger_is_listed(const char *list, const char *end, const char *name)
{
	size_t length = strlen(name);

	if (end - list == 1 && *list == '*')
		return 1;
	while (list < end) {
		const char *stop = list;

		while (stop < end && *stop != ',')
			stop++;
		if ((size_t)(stop - list) == length && !memcmp(list, name, length))
			return 1;
		list = stop + 1;
	}
	return 0;
}

/*
 * Turns on what KLOGGER_RECORD names: schemata and, after a colon, events of these which stay off.
 */
KLOGGER_SLOW void klogger_select(struct klogger_control *control, const char *list)
{
	const char *end = strchr(list, ':');
	const char *off, *name;
	struct klogger_unit *unit;
	__u32 i;

	if (!end)
		end = list + strlen(list);
	off = *end ? end + 1 : end;
	for (unit = klogger_module.units; unit; unit = unit->next) {
		if (!klogger_is_listed(list, end, unit->name))
			continue;
		for (i = 0, name = unit->names; i < unit->events; i++, name += strlen(name) + 1)
			control->on[unit->base + i] =
				!klogger_is_listed(off, off + strlen(off), name);
	}
	control->on[KLOGGER_MARK_ID] = 1;
}

/* Whether a process of this number has ended, as far as can be known. */
KLOGGER_SLOW int klogger_is_dead(const struct klogger_control *control, __u32 pid)
{
	return control->pid_ns == KLOGGER_FIRST_PID_NS && syscall(SYS_kill, (pid_t)pid, 0) &&
	       errno == ESRCH;
}

/* 1:TOKEN:PID:RING:SLOTS:CLOCK:SCHEMATA:OFF, as a recorder gives it to its command. */
KLOGGER_SLOW void klogger_apply_record(struct klogger_control *control)
{
	const char *value = getauxval(AT_SECURE) ? NULL : getenv("KLOGGER_RECORD");
	__u64 number[5];
	char *end;
	int i;

	if (!value || strncmp(value, "1:", 2))
		return;
	value += 2;
	for (i = 0; i < 5; i++) {
		number[i] = strtoull(value, &end, i ? 10 : 16);
		if (*end != ':')
			return;
		value = end + 1;
	}
	if (number[2] < KLOGGER_USER_RING_MIN || number[2] > KLOGGER_USER_RING_MAX ||
	    (number[2] & (number[2] - 1)))
		return;
	/*
	 * The environment may outlive the recording. In a pid namespace the number of a process
	 * outside is invalid.
	 */
	if (klogger_is_dead(control, (__u32)number[1]))
		return;
	control->token = number[0];
	control->armed = (__u32)number[1];
	control->ring_size = (__u32)number[2];
	control->slots_allowed = (__u32)number[3];
	control->clock = control->clock && number[4] ? KLOGGER_CLOCK_TSC : KLOGGER_CLOCK_MONOTONIC;
	klogger_select(control, value);
}

/* KLOGGER_FLIGHT=BYTES: log always, and keep the newest events for a rescue after a crash. */
KLOGGER_SLOW void klogger_apply_flight(struct klogger_control *control)
{
	const char *value = getauxval(AT_SECURE) ? NULL : getenv("KLOGGER_FLIGHT");
	unsigned long long size = value ? strtoull(value, NULL, 10) : 0;
	__u32 ring = 1u << 17;

	if (!size || control->armed)
		return;
	while (ring < size && ring < KLOGGER_USER_RING_MAX)
		ring *= 2;
	control->ring_size = ring;
	control->flight = 1;
	klogger_select(control, "*");
}

/* Printed on stderr, once, if this program's events were requested and cannot be logged. */
KLOGGER_SLOW void klogger_complain(const char *what, const char *why)
{
	char text[256], *end;

	if (getauxval(AT_SECURE) || (!getenv("KLOGGER_RECORD") && !getenv("KLOGGER_FLIGHT")))
		return;
	end = klogger_put(klogger_put(klogger_put(text, "klogger: "), what), ": ");
	end = klogger_put(end, strlen(why) < 64 ? why : "an error with a long name");
	end = klogger_put(end, "\n");
	if (syscall(SYS_write, 2, text, end - text) < 0)
		return;
}

KLOGGER_C_END

#endif
