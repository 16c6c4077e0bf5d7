/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations shared by the parts of the core module. */
#ifndef KLOGGER_CORE_H
#define KLOGGER_CORE_H

#include <linux/kref.h>
#include <linux/mutex.h>
#include <klogger/device.h>
#include "klogger.kernel.h"

#undef pr_fmt
#define pr_fmt(fmt) "klogger: " fmt

#define KLOGGER_UNITS_MAX 64
#define KLOGGER_BUFFER_MIN (16u << 10)
#define KLOGGER_BUFFER_MAX (256u << 20)

/* The rings of all CPUs. Reference-counted: by mappings, and by the recording that uses them. */
struct klogger_rings {
	struct kref kref;
	u64 size;		/* of a main ring */
	u64 stride;		/* of a CPU's two rings */
	u32 cpus;
	bool mapped;		/* has ever been mapped */
	void *none;		/* the page for all CPUs that were offline */
	struct klogger_ring *of[];	/* NULL: that CPU was offline */
};

/* ring.c */
extern u64 *klogger_ringless;	/* by event id */
extern struct klogger_fired_at *klogger_fired;	/* by the number of a trigger - 1 */
extern bool klogger_overwriting;
int klogger_rings_begin(void);
void klogger_choose_clock(void);
void klogger_rings_end(void);
struct klogger_rings *klogger_rings_make(u64 size, u32 lowwater, bool overwrite);
void klogger_rings_put(struct klogger_rings *rings);
void klogger_rings_use(struct klogger_rings *rings);
void klogger_rings_mark(struct klogger_rings *rings, u32 lowwater);
struct page *klogger_rings_page(struct klogger_rings *rings, u64 offset);
struct klogger_ring *klogger_ring_make(u64 size);
bool klogger_has_room(void);
u64 klogger_rings_stride(u64 size);
struct klogger_ring *klogger_nested_of(struct klogger_ring *main);

/* writer.c */
void klogger_wake_ups_begin(void);
void klogger_wake_ups_end(void);

/* core.c: everything here is called with klogger_mutex held */
extern struct mutex klogger_mutex;
extern struct klogger_unit klogger_unit_klogger;
extern int klogger_enable;
struct klogger_rings *klogger_current_rings(void);
struct klogger_rings *klogger_get_rings(u64 bytes);	/* this one without klogger_mutex */
void klogger_set_lowwater(u32 lowwater);
int klogger_use_unit(const struct klogger_use *use);
int klogger_begin(struct klogger_start *start);
int klogger_resize(u64 size);
void klogger_attach(void);
void klogger_detach(void);
void klogger_forget(void);
void klogger_finish(void);
void klogger_update_events(void);
void klogger_update_unit(struct klogger_unit *unit);
void klogger_detach_unit(struct klogger_unit *unit);
int klogger_want(u32 id, bool on);
u64 klogger_text_digest(const struct klogger_unit *unit);

/* schemata.c */
extern struct klogger_unit *klogger_unit_at[KLOGGER_UNITS_MAX];	/* NULL: free; by klogger_mutex */

/* probe.c */
int klogger_point_attach(struct klogger_attach_point *point);
void klogger_point_detach(struct klogger_attach_point *point);
u64 klogger_point_missed(const struct klogger_attach_point *point);

/* stack.c */
extern struct klogger_stacks *klogger_stacks;	/* NULL: no schema asks for stacks */
int klogger_stacks_make(void);
void klogger_stacks_free(void);

/* device.c */
int klogger_device_begin(void);
void klogger_device_end(void);
void klogger_device_call(int cpu);
void klogger_device_resized(void);

/* map.c */
struct file;
struct vm_area_struct;
int klogger_mmap(struct file *file, struct vm_area_struct *vma);
void klogger_anchors_free(void);

/* benchmark.c */
int klogger_bench(struct klogger_unit *unit, u32 index, u32 iterations, u64 *mean);

/* sysctl.c */
extern unsigned int klogger_buffer_mb, klogger_lowwater;
int klogger_sysctl_begin(void);
void klogger_sysctl_end(void);
int klogger_sysctl_add(struct klogger_unit *unit);
void klogger_sysctl_remove(struct klogger_unit *unit);

#endif
