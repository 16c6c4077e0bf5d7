/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All differences between kernels, one entry each, behind a getter. Everything else is free of
 * kernel versions. A type with a `___suffix` stands for the kernel's type of that name as it is on
 * the kernels named here.
 */
#ifndef KLOGGER_BPF_KERNEL_H
#define KLOGGER_BPF_KERNEL_H

/*
 * sched_switch passes prev_state by value since 5.18 (fa2c3254d7cf, "sched/tracing: Don't re-read
 * p->state when emitting sched_switch event"); schemata name that parameter. `preempt` tells that
 * the thread was pushed off its CPU between deciding to sleep and sleeping: its state is then not
 * 0, but it is still runnable.
 */
#define klogger_switch_state(preempt, prev_state) ((preempt) ? 0 : (prev_state))

/* The thread that was running, perhaps interrupted, when the probe was hit. */
#define klogger_current() bpf_get_current_task_btf()

/* Of the running thread, for `context prio` and `context ppid`. */
struct task_struct___klogger {
	int prio;
	int tgid;
	struct task_struct___klogger *real_parent;
} __attribute__((preserve_access_index));

#define klogger_context_prio() (((struct task_struct___klogger *)bpf_get_current_task_btf())->prio)
#define klogger_context_ppid() \
	(((struct task_struct___klogger *)bpf_get_current_task_btf())->real_parent->tgid)

/* What threads are chosen by: see scope.h. `cgroups` exists with CONFIG_CGROUPS. */
struct cred___klogger {
	struct {
		unsigned int val;
	} euid;
} __attribute__((preserve_access_index));

struct kernfs_node___klogger {
	__u64 id;
} __attribute__((preserve_access_index));

struct cgroup___klogger;

struct cgroup_subsys_state___klogger {
	struct cgroup___klogger *cgroup;
	struct cgroup_subsys_state___klogger *parent;
} __attribute__((preserve_access_index));

struct cgroup___klogger {
	struct cgroup_subsys_state___klogger self;
	struct kernfs_node___klogger *kn;
} __attribute__((preserve_access_index));

struct css_set___klogger {
	struct cgroup___klogger *dfl_cgrp;
} __attribute__((preserve_access_index));

struct task_struct___klogger_choice {
	int pid;
	char comm[16];
	const struct cred___klogger *cred;
	struct css_set___klogger *cgroups;
} __attribute__((preserve_access_index));

/* A thread's name, ids, and when it started: in ns, not counting the time the machine slept. */
struct task_struct___klogger_name {
	int pid;
	int tgid;
	unsigned long long start_time;
	char comm[16];
} __attribute__((preserve_access_index));

/*
 * Since 5.16 (bcf9033e5449, "sched: move CPU field back into thread_info") the CPU of a thread is
 * here.
 */
struct thread_info___klogger {
	unsigned int cpu;
} __attribute__((preserve_access_index));

struct task_struct___klogger_cpu {
	struct thread_info___klogger thread_info;
} __attribute__((preserve_access_index));

#define klogger_task_cpu(task) (((struct task_struct___klogger_cpu *)(task))->thread_info.cpu)

/* What many schemata log of a thread, a file or a block request. */
#define klogger_task_ppid(task) (((const struct task_struct___klogger *)(task))->real_parent->tgid)
#define klogger_task_cgroup(task) \
	(((const struct task_struct___klogger_choice *)(task))->cgroups->dfl_cgrp->kn->id)

struct super_block___klogger {
	unsigned int s_dev;
} __attribute__((preserve_access_index));

struct inode___klogger {
	unsigned long i_ino;
	struct super_block___klogger *i_sb;
} __attribute__((preserve_access_index));

struct qstr___klogger {
	const unsigned char *name;
} __attribute__((preserve_access_index));

struct dentry___klogger {
	struct qstr___klogger d_name;
} __attribute__((preserve_access_index));

struct path___klogger {
	struct dentry___klogger *dentry;
} __attribute__((preserve_access_index));

struct file___klogger {
	struct inode___klogger *f_inode;
	struct path___klogger f_path;
} __attribute__((preserve_access_index));

#define klogger_file_ino(file) (((const struct file___klogger *)(file))->f_inode->i_ino)
#define klogger_file_dev(file) (((const struct file___klogger *)(file))->f_inode->i_sb->s_dev)
#define klogger_file_name(file) \
	((const char *)((const struct file___klogger *)(file))->f_path.dentry->d_name.name)

struct block_device___klogger {
	unsigned int bd_dev;
} __attribute__((preserve_access_index));

struct gendisk___klogger {
	struct block_device___klogger *part0;
} __attribute__((preserve_access_index));

struct request_queue___klogger {
	struct gendisk___klogger *disk;
} __attribute__((preserve_access_index));

struct request___klogger {
	struct request_queue___klogger *q;
	unsigned long long __sector;
	unsigned int __data_len;
} __attribute__((preserve_access_index));

/* A request without a disk, of a driver for its own use, has device 0, as NULL reads as 0. */
#define klogger_request_dev(rq) (((const struct request___klogger *)(rq))->q->disk->part0->bd_dev)
#define klogger_request_sector(rq) (((const struct request___klogger *)(rq))->__sector)
#define klogger_request_bytes(rq) (((const struct request___klogger *)(rq))->__data_len)

/* A run queue, which is private to the scheduler. */
struct rq___klogger {
	unsigned int nr_running;
	int cpu;
	unsigned long long prev_steal_time_rq;
} __attribute__((preserve_access_index));

#define klogger_rq_cpu(rq) (((const struct rq___klogger *)(rq))->cpu)
#define klogger_rq_nr_running(rq) (((const struct rq___klogger *)(rq))->nr_running)

struct cfs_rq___klogger {
	struct rq___klogger *rq;
} __attribute__((preserve_access_index));

struct sched_entity___klogger {
	struct cfs_rq___klogger *cfs_rq;
} __attribute__((preserve_access_index));

struct task_struct___klogger_steal {
	struct sched_entity___klogger se;
} __attribute__((preserve_access_index));

/*
 * The time that the hypervisor has taken from this CPU, in ns: what the scheduler's clock has left
 * out until the last tick. 0 on kernels that do not count it (CONFIG_PARAVIRT_TIME_ACCOUNTING).
 */
static __always_inline __u64 klogger_steal_ns(void)
{
	struct task_struct___klogger_steal *p = (void *)bpf_get_current_task_btf();

	if (!__builtin_preserve_field_info(p->se.cfs_rq, 2 /* does it exist? */) ||
	    !__builtin_preserve_field_info(p->se.cfs_rq->rq, 2) ||
	    !__builtin_preserve_field_info(p->se.cfs_rq->rq->prev_steal_time_rq, 2))
		return 0;
	return p->se.cfs_rq->rq->prev_steal_time_rq;
}

#endif
