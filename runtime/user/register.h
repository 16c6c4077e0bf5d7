/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Registration before main(): the module's schemata and its file; and their end. */
#ifndef KLOGGER_USER_REGISTER_H
#define KLOGGER_USER_REGISTER_H

#include "fork.h"

KLOGGER_C_BEGIN

/* Whether the TSC runs at a constant rate, according to CPUID. A recorder may override this. */
static inline __u32 klogger_tsc_is_invariant(void)
{
#ifdef __x86_64__
	unsigned a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d >> 8 & 1);
#else
	return 0;
#endif
}

/*
 * Gives each schema its ids and the place of its text; returns the bytes of all texts, or 0: too
 * many.
 */
KLOGGER_SLOW __u32 klogger_describe(struct klogger_control *control)
{
	__u32 base = KLOGGER_LOCAL_BASE, bytes = 0, at;
	struct klogger_unit *unit;

	for (unit = klogger_module.units; unit; unit = unit->next)
		bytes += unit->length;
	at = bytes <= sizeof(control->first_texts) ? offsetof(struct klogger_control, first_texts)
						   : sizeof(*control);
	for (unit = klogger_module.units; unit; unit = unit->next) {
		struct klogger_module_schema *schema = &control->schema[control->schemata];

		if (control->schemata == KLOGGER_SCHEMATA_MAX || bytes > KLOGGER_TEXT_MAX ||
		    base + unit->events > KLOGGER_EVENTS_MAX ||
		    strlen(unit->name) >= sizeof(schema->name)) {
			errno = E2BIG;
			return 0;
		}
		schema->base = unit->base = base;
		schema->events = unit->events;
		schema->text = at;
		schema->length = unit->length;
		klogger_put(schema->name, unit->name);
		control->schemata++;
		at += unit->length;
		base += unit->events;
	}
	return bytes;
}

/*
 * The end of the memory for all slots, or of fewer if the program may not have as much; 0 if not
 * even one fits.
 */
KLOGGER_SLOW int klogger_measure(struct klogger_control *control)
{
	__u64 slots = control->slots_allowed > 512 ? control->slots_allowed : 512,
	      allowed = klogger_bytes_allowed();

	if (slots > KLOGGER_SLOTS_MAX)
		slots = KLOGGER_SLOTS_MAX;
	control->slots_at = KLOGGER_SLOTS_AT;
	control->slot_stride = KLOGGER_SLOT_BYTES((__u64)control->ring_size);
	while (slots && control->slots_at + slots * control->slot_stride > allowed)
		slots /= 2;
	control->slots = (__u32)slots;
	control->size = control->slots_at + slots * control->slot_stride;
	if (!slots)
		errno = EFBIG;
	return slots != 0;
}

/* Memory that is empty in a forked child, however it was forked. */
KLOGGER_SLOW int klogger_make_cells(__u32 slots)
{
	size_t bytes = (slots + 1) * sizeof(*klogger_module.cells);
	void *map = (void *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);

	if (map == MAP_FAILED)
		return -1;
	syscall(SYS_madvise, map, bytes, KLOGGER_MADV_WIPEONFORK);
	klogger_module.cells = (struct klogger_ring **)map;
	klogger_module.same = klogger_module.cells + slots;
	*klogger_module.same = (struct klogger_ring *)map;
	return 0;
}

/* Without a key, threads do not free their slots; the recorder does when they have ended. */
KLOGGER_SLOW void klogger_make_key(void)
{
	klogger_module.has_key = !pthread_key_create(&klogger_module.key, klogger_end_thread);
	/*
	 * glibc allocates memory for the values of later keys, which is not allowed in a signal
	 * handler.
	 */
	if (klogger_module.has_key && klogger_module.key >= 32) {
		pthread_key_delete(klogger_module.key);
		klogger_module.has_key = 0;
	}
}

/* Called before main(), or when the library is opened: makes the module known to recorders. */
KLOGGER_SLOW void klogger_register(void)
{
	struct klogger_control control;
	char dir[256];
	void *map = MAP_FAILED;
	int folder, error = errno;

	if (klogger_module.control || !klogger_module.units)
		return;
	memset(&control, 0, sizeof(control));
	control.magic = KLOGGER_CONTROL_MAGIC;
	control.version = KLOGGER_CONTROL_VERSION;
	control.pid = (__u32)syscall(SYS_getpid);
	control.pid_ns = klogger_pid_ns();
	control.image = klogger_monotonic();
	control.ring_size = 1u << 20;
	control.clock = klogger_tsc_is_invariant() ? KLOGGER_CLOCK_TSC : KLOGGER_CLOCK_MONOTONIC;
	klogger_module.page = getauxval(AT_PAGESZ);
	folder = klogger_find_folder(dir, sizeof(dir));
	if (folder >= 0 && klogger_describe(&control)) {
		klogger_apply_record(&control);
		klogger_apply_flight(&control);
		klogger_sweep(folder, control.pid_ns);
		if (klogger_measure(&control) && !klogger_make_cells(control.slots))
			map = klogger_make_file(folder, dir, &control, NULL);
	}
	if (map == MAP_FAILED) {
		klogger_complain("this program's events are not logged", strerror(errno));
	} else {
		syscall(SYS_madvise, map, control.size, KLOGGER_MADV_DONTDUMP);
		klogger_make_key();
		pthread_atfork(NULL, NULL, klogger_fork_child);
		klogger_use_file(map);
	}
	if (folder >= 0)
		syscall(SYS_close, folder);
	errno = error;
}

/*
 * Called at exit, or by dlclose(). If the program is recorded, the recorder removes the file when
 * it has drained it.
 */
KLOGGER_SLOW void klogger_unregister(void)
{
	const struct klogger_control *control = klogger_module.control;

	if (!control || klogger_module.pid != (__u32)syscall(SYS_getpid))
		return;
	if (klogger_module.has_key)
		pthread_key_delete(klogger_module.key);
	klogger_module.has_key = 0;
	if (!KLOGGER_VOLATILE(control->armed) && !control->flight)
		syscall(SYS_unlinkat, AT_FDCWD, klogger_module.path, 0);
}

/*
 * Adds a schema. In C the linker merges units with the same text; each crate of a Rust program has
 * its own. A unit with the same name and another text stays off: its header must be generated
 * again.
 */
KLOGGER_SLOW void klogger_link(struct klogger_unit *unit)
{
	struct klogger_unit *other = klogger_find_unit(unit->name), **list = &klogger_module.units;

	if (unit->linked)
		return;
	unit->linked = 1;
	/*
	 * This function and all that it reads are of one version; the code of its callers may be of
	 * another.
	 */
	if (unit->runtime != KLOGGER_RUNTIME) {
		klogger_complain(
			"a schema is not logged: its header is from another version of klogger; "
			"generate all headers again",
			unit->name);
		return;
	}
	if (other) {
		if (other->length != unit->length ||
		    memcmp(other->text, unit->text, unit->length)) {
			klogger_complain(
				"two versions of a schema in one program, one is not logged; "
				"generate its headers again",
				unit->name);
			return;
		}
		list = &klogger_module.twins;
	}
	unit->next = *list;
	*list = unit;
}

static __attribute__((constructor(102))) void klogger_start(void)
{
	klogger_register();
}

static __attribute__((destructor(102))) void klogger_end(void)
{
	klogger_unregister();
}

KLOGGER_C_END

#endif
