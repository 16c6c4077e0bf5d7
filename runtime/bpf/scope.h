/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Maintains the scope: which threads are followed, because their parent is, and which of these are
 * chosen by their name, user and cgroup.
 *
 * Whether a thread is chosen is one bit, as the scope is, so that events test nothing else. It is
 * decided when the thread is made, when its name changes, and whenever it runs into a probe of this
 * recording: so it is right for each thread that has just run, however its user or its cgroup was
 * changed.
 */
#ifndef KLOGGER_BPF_SCOPE_H
#define KLOGGER_BPF_SCOPE_H

#include "filter.h"
#include "kernel.h"

static __always_inline int klogger_name_is_chosen(const char *comm)
{
	const volatile struct klogger_choice *choice = &klogger_config.choice;
	__u64 name[2] = {};

	if (!choice->comms)
		return 1;
	bpf_probe_read_kernel_str(name, sizeof(name), comm);
	for (__u32 i = 0; i < KLOGGER_CHOICES && i < choice->comms; i++)
		if (choice->comm[i][0] == name[0] && choice->comm[i][1] == name[1])
			return 1;
	return 0;
}

static __always_inline int klogger_user_is_chosen(struct task_struct___klogger_choice *p)
{
	const volatile struct klogger_choice *choice = &klogger_config.choice;
	__u32 user;

	if (!choice->users)
		return 1;
	user = p->cred->euid.val;
	for (__u32 i = 0; i < KLOGGER_CHOICES && i < choice->users; i++)
		if (choice->user[i] == user)
			return 1;
	return 0;
}

static __always_inline int klogger_is_chosen_cgroup(__u64 id)
{
	const volatile struct klogger_choice *choice = &klogger_config.choice;

	for (__u32 i = 0; i < KLOGGER_CHOICES && i < choice->cgroups; i++)
		if (choice->cgroup[i] == id && choice->controller[i] == KLOGGER_CONTROLLER_NONE)
			return 1;
	return 0;
}

/* Its cgroup of version 1, or an ancestor of that. */
static __always_inline int klogger_v1_cgroup_is_chosen(void *task)
{
	const volatile struct klogger_choice *choice = &klogger_config.choice;

	for (__u32 i = 0; i < KLOGGER_CHOICES && i < choice->cgroups; i++)
		if (choice->controller[i] != KLOGGER_CONTROLLER_NONE &&
		    klogger_is_in_v1_cgroup(task, choice->controller[i], choice->cgroup[i]))
			return 1;
	return 0;
}

/* Its cgroup of version 2, or an ancestor of that; or one of version 1. */
static __always_inline int klogger_cgroup_is_chosen(struct task_struct___klogger_choice *p)
{
	struct cgroup_subsys_state___klogger *state;

	if (!klogger_config.choice.cgroups)
		return 1;
	if (!__builtin_preserve_field_info(p->cgroups, 2 /* does it exist? */))
		return 0;
	if (klogger_v1_cgroup_is_chosen(p))
		return 1;
	state = &p->cgroups->dfl_cgrp->self;
	for (int i = 0; i < KLOGGER_CGROUP_DEPTH && state; i++) {
		if (klogger_is_chosen_cgroup(state->cgroup->kn->id))
			return 1;
		state = state->parent;
	}
	return 0;
}

/* Decides whether a thread is chosen. `comm`: the name that it has now. */
static __noinline int klogger_choose(struct task_struct___klogger_choice *p, const char *comm)
{
	int builtin = klogger_config.choice.builtin;
	__u64 *followed = builtin ? klogger_scope : klogger_other_scope;
	__u64 *bits = builtin ? klogger_other_scope : klogger_scope;
	__u32 tid = p->pid;
	int chosen = (klogger_config.choice.all || klogger_has_bit(followed, tid)) &&
		     klogger_name_is_chosen(comm) && klogger_user_is_chosen(p) &&
		     klogger_cgroup_is_chosen(p);

	if (chosen == klogger_has_bit(bits, tid))
		return 0;
	if (chosen)
		klogger_set_bit(bits, tid);
	else
		klogger_clear_bit(bits, tid);
	return 0;
}

/* At the beginning of a hit. */
static __always_inline void klogger_choose_current(void)
{
	struct task_struct___klogger_choice *p = (void *)bpf_get_current_task_btf();

	klogger_choose(p, p->comm);
}

/* What follows is for the built-in probes. */
static __always_inline int klogger_chooses(void)
{
	return klogger_config.beginning >= KLOGGER_CHOOSES;
}

static __always_inline void klogger_scope_choose(void *task, const char *comm)
{
	if (klogger_chooses())
		klogger_choose(task, comm);
}

/* The thread is not chosen any more: it has ended, or has another id. */
static __always_inline void klogger_scope_forget(__u32 tid)
{
	if (klogger_chooses() && klogger_has_bit(klogger_other_scope, tid))
		klogger_clear_bit(klogger_other_scope, tid);
}

/*
 * A child is in scope if its parent is. Otherwise the child's bit is cleared, because its number
 * may have belonged to a thread in scope whose memory has not been freed yet.
 */
static __always_inline void klogger_scope_fork(__u32 parent, __u32 child)
{
	if (!klogger_config.scoped)
		return;
	if (klogger_in_scope(parent))
		klogger_set_bit(klogger_scope, child);
	else if (klogger_in_scope(child))
		klogger_clear_bit(klogger_scope, child);
}

/*
 * If a thread other than the first calls exec, it takes over the id of the first one, which has
 * just ended.
 */
static __always_inline void klogger_scope_exec(__u32 tid, __u32 old_tid)
{
	if (klogger_config.scoped && tid != old_tid && klogger_in_scope(old_tid)) {
		klogger_set_bit(klogger_scope, tid);
		klogger_clear_bit(klogger_scope, old_tid);
	}
	if (tid != old_tid)
		klogger_scope_forget(old_tid);
}

static __always_inline void klogger_scope_free(__u32 tid)
{
	if (klogger_config.scoped && klogger_in_scope(tid))
		klogger_clear_bit(klogger_scope, tid);
	klogger_scope_forget(tid);
}

#endif
