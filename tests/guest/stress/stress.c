// SPDX-License-Identifier: GPL-2.0-only
/*
 * Logs from threads, softirqs, hard interrupts and NMIs of all CPUs at once, at random points of
 * each other.
 *
 * Each CPU and context has its own sequence 1, 2, 3, ..., so that a reader of the log sees what is
 * missing and what is torn. Writing a number N to /sys/module/stress/parameters/run makes the
 * thread of each CPU log N events; interrupts of the other kinds come as long as that takes.
 * Reading it returns how many events each sequence has: one line for each CPU.
 */
#include <linux/completion.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <asm/apic.h>
#include <asm/nmi.h>
#define KLOGGER_DEFINE
#include "stress.klogger.h"

enum { THREAD, SOFTIRQ, INTERRUPT, NMI, CONTEXTS };

struct stress {
	u64 n[CONTEXTS];
	u64 random[CONTEXTS];
	struct hrtimer timer;
	struct tasklet_struct tasklet;
	struct task_struct *thread;
	struct completion done;
	u64 wanted;
	int nmi;		/* requested and not yet handled */
	bool stop;
};

static DEFINE_PER_CPU(struct stress, stress);
static char stress_letters[97];	/* 96 times x */

/* Each context has its own state, so that none disturbs another one's (xorshift). */
static u32 stress_random(struct stress *s, int context, u32 below)
{
	u64 *x = &s->random[context];

	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return (u32)(*x >> 32) % below;
}

static void stress_log(struct stress *s, int context)
{
	u64 n = ++s->n[context];
	u16 cpu = raw_smp_processor_id();
	u64 check = (n << 8 | context << 4 | cpu) * 0x9e3779b97f4a7c15ull;

	if (n % 5)
		klogger(STRESS, n, check, cpu, context);
	else
		klogger(STRESS_TEXT, n, check, cpu, context, stress_letters + 96 - n % 97);
}

static void stress_burst(struct stress *s, int context)
{
	u32 i, count = 1 + stress_random(s, context, 4);

	for (i = 0; i < count; i++)
		stress_log(s, context);
}

static int stress_on_nmi(unsigned int type, struct pt_regs *regs)
{
	struct stress *s = this_cpu_ptr(&stress);

	if (!xchg(&s->nmi, 0))
		return NMI_DONE;
	stress_burst(s, NMI);
	return NMI_HANDLED;
}

static void stress_send_nmi(int cpu)
{
	if (!xchg(&per_cpu_ptr(&stress, cpu)->nmi, 1))
		apic->send_IPI(cpu, NMI_VECTOR);
}

static void stress_in_softirq(struct tasklet_struct *tasklet)
{
	stress_burst(this_cpu_ptr(&stress), SOFTIRQ);
}

static enum hrtimer_restart stress_in_interrupt(struct hrtimer *timer)
{
	struct stress *s = container_of(timer, struct stress, timer);

	stress_burst(s, INTERRUPT);
	if (!stress_random(s, INTERRUPT, 2))
		tasklet_schedule(&s->tasklet);
	if (!stress_random(s, INTERRUPT, 3))
		stress_send_nmi(cpumask_any(cpu_online_mask));
	if (READ_ONCE(s->stop))
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, ns_to_ktime(20000 + stress_random(s, INTERRUPT, 100000)));
	return HRTIMER_RESTART;
}

static int stress_in_thread(void *data)
{
	struct stress *s = this_cpu_ptr(&stress);
	u64 i;

	hrtimer_start(&s->timer, ns_to_ktime(50000), HRTIMER_MODE_REL_PINNED_HARD);
	for (i = 0; i < s->wanted; i++) {
		stress_log(s, THREAD);
		if (!stress_random(s, THREAD, 50))
			stress_send_nmi(smp_processor_id());
		if (!(i % 4096))
			cond_resched();
	}
	WRITE_ONCE(s->stop, true);
	hrtimer_cancel(&s->timer);
	tasklet_kill(&s->tasklet);
	complete(&s->done);
	return 0;
}

static int stress_begin(int cpu, u64 wanted)
{
	struct stress *s = per_cpu_ptr(&stress, cpu);
	int i;

	s->wanted = wanted;
	s->stop = false;
	for (i = 0; i < CONTEXTS; i++) {
		s->n[i] = 0;
		s->random[i] = 0x9e3779b97f4a7c15ull * (1 + CONTEXTS * cpu + i);
	}
	init_completion(&s->done);
	tasklet_setup(&s->tasklet, stress_in_softirq);
	hrtimer_init(&s->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	s->timer.function = stress_in_interrupt;
	s->thread = kthread_create(stress_in_thread, NULL, "stress/%d", cpu);
	if (IS_ERR(s->thread))
		return PTR_ERR(s->thread);
	kthread_bind(s->thread, cpu);
	return 0;
}

static int stress_run(const char *text, const struct kernel_param *parameter)
{
	u64 wanted;
	int cpu, error = kstrtou64(text, 10, &wanted);

	if (error)
		return error;
	for_each_online_cpu(cpu) {
		error = stress_begin(cpu, wanted);
		if (error)
			return error;
	}
	for_each_online_cpu(cpu)
		wake_up_process(per_cpu_ptr(&stress, cpu)->thread);
	/* In parts, because the kernel warns about threads that wait for long. */
	for_each_online_cpu(cpu)
		while (!wait_for_completion_timeout(&per_cpu_ptr(&stress, cpu)->done, 10 * HZ))
			;
	/* Waits for the last NMIs. */
	for_each_online_cpu(cpu)
		while (READ_ONCE(per_cpu_ptr(&stress, cpu)->nmi))
			cond_resched();
	return 0;
}

static int stress_tell(char *text, const struct kernel_param *parameter)
{
	int cpu, i, done = 0;

	for_each_online_cpu(cpu) {
		done += sysfs_emit_at(text, done, "%d", cpu);
		for (i = 0; i < CONTEXTS; i++)
			done += sysfs_emit_at(text, done, " %llu", per_cpu_ptr(&stress, cpu)->n[i]);
		done += sysfs_emit_at(text, done, "\n");
	}
	return done;
}

static const struct kernel_param_ops stress_parameter = { .set = stress_run, .get = stress_tell };
module_param_cb(run, &stress_parameter, NULL, 0600);

static int __init stress_init(void)
{
	int error = klogger_register(&klogger_unit_stress);

	memset(stress_letters, 'x', sizeof(stress_letters) - 1);
	if (error)
		return error;
	error = register_nmi_handler(NMI_LOCAL, stress_on_nmi, 0, "stress");
	if (error)
		klogger_unregister(&klogger_unit_stress);
	return error;
}

static void __exit stress_exit(void)
{
	unregister_nmi_handler(NMI_LOCAL, "stress");
	klogger_unregister(&klogger_unit_stress);
}

module_init(stress_init);
module_exit(stress_exit);
MODULE_LICENSE("GPL");
