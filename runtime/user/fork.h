/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A forked child gets a file of its own. */
#ifndef KLOGGER_USER_FORK_H
#define KLOGGER_USER_FORK_H

#include "request.h"
#include "reserve.h"

KLOGGER_C_BEGIN

/*
 * The most bytes that the shared file may have: exceeding RLIMIT_FSIZE would raise a signal that
 * ends the program.
 */
KLOGGER_SLOW __u64 klogger_bytes_allowed(void)
{
	struct { __u64 soft, hard; } file = { ~0ull, ~0ull }, space = { ~0ull, ~0ull };

	syscall(SYS_prlimit64, 0, KLOGGER_RLIMIT_FSIZE, NULL, &file);
	syscall(SYS_prlimit64, 0, KLOGGER_RLIMIT_AS, NULL, &space);
	return file.soft < space.soft / 4 ? file.soft : space.soft / 4;
}

KLOGGER_SLOW struct klogger_unit *klogger_find_unit(const char *name)
{
	struct klogger_unit *unit = klogger_module.units;

	while (unit && strcmp(unit->name, name))
		unit = unit->next;
	return unit;
}

KLOGGER_SLOW void klogger_use_file(void *map)
{
	struct klogger_control *control = (struct klogger_control *)map;
	struct klogger_unit *unit;

	klogger_module.rest = (struct klogger_control_rest *)(control + 1);
	klogger_module.slots = (char *)map + control->slots_at;
	klogger_module.mask = control->ring_size - 1;
	klogger_module.tsc = control->clock == KLOGGER_CLOCK_TSC;
	klogger_module.pid = control->pid;
	klogger_module.control = control;
	for (unit = klogger_module.units; unit; unit = unit->next)
		__atomic_store_n(&unit->on, control->on + unit->base, __ATOMIC_RELEASE);
	for (unit = klogger_module.twins; unit; unit = unit->next) {
		unit->base = klogger_find_unit(unit->name)->base;
		__atomic_store_n(&unit->on, control->on + unit->base, __ATOMIC_RELEASE);
	}
	klogger_own.on = control->on + klogger_own.base;
}

/*
 * In a forked child: makes a separate file, in the place of its parent's, so that no address
 * changes. If a signal handler forked in the middle of an event, the rest of that event goes into a
 * slot without a reader. `off`: the child logs no events.
 */
KLOGGER_SLOW void klogger_forked(int off)
{
	struct klogger_control control = *klogger_module.control;
	__u32 number = klogger_thread.slot, i;
	char dir[256];
	int folder;
	void *map = MAP_FAILED;

	klogger_thread.ring = klogger_thread.slow = &klogger_no_ring;
	klogger_thread.slot = 0;
	for (i = 0; klogger_module.used && i < control.slots; i++)
		klogger_module.cells[i] = NULL;
	*klogger_module.same = (struct klogger_ring *)klogger_module.cells;
	klogger_module.used = 0;
	control.parent = control.pid;
	control.pid = (__u32)syscall(SYS_getpid);
	control.image = klogger_monotonic();
	control.pid_ns = klogger_pid_ns();
	control.failed = control.call = 0;
	/* This recorder does not know the child yet, so its death would not be noted here. */
	control.keeper = 0;
	control.abandoned = 0;
	if (off || (control.armed && klogger_is_dead(&control, control.armed)))
		memset(control.on, 0, sizeof(control.on));
	folder = klogger_find_folder(dir, sizeof(dir));
	if (folder >= 0 && control.size > klogger_bytes_allowed()) {
		syscall(SYS_close, folder);
		folder = -1;
		errno = EFBIG;
	}
	if (folder >= 0) {
		klogger_sweep(folder, control.pid_ns);
		map = klogger_make_file(folder, dir, &control, klogger_module.control);
		syscall(SYS_close, folder);
	}
	if (map == MAP_FAILED) {
		/* The parent's recorder reports it; the child's events are not logged. */
		klogger_module.control->failed = (__u32)errno;
		syscall(SYS_mmap, klogger_module.control, control.size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0L);
		return;
	}
	klogger_use_file(map);
	if (!number)
		return;
	klogger_reach_slot(number - 1);
	if (!klogger_populate(&klogger_module.rest->slot[number - 1], sizeof(struct klogger_slot)))
		klogger_module.rest->slot[number - 1].use = 1;
}

/* Called by pthread_atfork(). A fork during the search for a slot makes a child without events. */
KLOGGER_SLOW void klogger_fork_child(void)
{
	int error = errno;

	if (!klogger_module.control)
		return;
	klogger_forked(klogger_thread.busy);
	errno = error;
}

KLOGGER_C_END

#endif
