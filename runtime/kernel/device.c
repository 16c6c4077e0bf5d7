// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/klogger: the recorder's interface. klogger/device.h describes the requests and their order.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/nospec.h>
#include <linux/poll.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include "core.h"

/* The queue of rings that have passed their low-water marks, and whether there are new rings. */
static DECLARE_WAIT_QUEUE_HEAD(klogger_readers);
static struct cpumask klogger_called;
static bool klogger_resized;
static bool klogger_is_open;

/* Called from an irq_work. */
void klogger_device_call(int cpu)
{
	cpumask_set_cpu(cpu, &klogger_called);
	wake_up_interruptible(&klogger_readers);
}

void klogger_device_resized(void)
{
	WRITE_ONCE(klogger_resized, true);
	wake_up_interruptible(&klogger_readers);
}

static bool klogger_has_calls(void)
{
	return READ_ONCE(klogger_resized) || !cpumask_empty(&klogger_called);
}

static int klogger_open(struct inode *inode, struct file *file)
{
	int error = 0;

	mutex_lock(&klogger_mutex);
	if (klogger_is_open)
		error = -EBUSY;
	klogger_is_open = true;
	mutex_unlock(&klogger_mutex);
	return error ?: stream_open(inode, file);
}

/* Also called when the recorder was killed. Its mappings are gone by now. */
static int klogger_release(struct inode *inode, struct file *file)
{
	mutex_lock(&klogger_mutex);
	klogger_finish();
	klogger_anchors_free();
	cpumask_clear(&klogger_called);
	klogger_resized = false;
	klogger_is_open = false;
	mutex_unlock(&klogger_mutex);
	return 0;
}

static ssize_t klogger_read_calls(struct file *file, char __user *to, size_t size, loff_t *at)
{
	u32 number = KLOGGER_CALL_RESIZED;
	size_t done = 0;
	int cpu;

	if (size < sizeof(number))
		return -EINVAL;
	if (!klogger_has_calls() && file->f_flags & O_NONBLOCK)
		return -EAGAIN;
	if (wait_event_interruptible(klogger_readers, klogger_has_calls()))
		return -ERESTARTSYS;
	if (xchg(&klogger_resized, false)) {
		if (copy_to_user(to, &number, sizeof(number)))
			return -EFAULT;
		done += sizeof(number);
	}
	for_each_possible_cpu(cpu) {
		if (done + sizeof(number) > size)
			break;
		if (!cpumask_test_and_clear_cpu(cpu, &klogger_called))
			continue;
		number = cpu;
		if (copy_to_user(to + done, &number, sizeof(number)))
			return -EFAULT;
		done += sizeof(number);
	}
	return done;
}

static __poll_t klogger_poll(struct file *file, struct poll_table_struct *table)
{
	poll_wait(file, &klogger_readers, table);
	return klogger_has_calls() ? EPOLLIN | EPOLLRDNORM : 0;
}

/* ---- Requests ---- */

static int klogger_say_about(void __user *to)
{
	struct klogger_about about = {
		.version = KLOGGER_DEVICE_VERSION,
		.clock = static_branch_unlikely(&klogger_slow_clock)
				 ? KLOGGER_KERNEL_CLOCK_MONOTONIC
				 : KLOGGER_KERNEL_CLOCK_COUNTER,
		.cpus = nr_cpu_ids,
	};
	u32 i;

	for (i = 0; i < KLOGGER_UNITS_MAX; i++)
		if (klogger_unit_at[i])
			about.schemata = i + 1;
	return copy_to_user(to, &about, sizeof(about)) ? -EFAULT : 0;
}

static struct klogger_unit *klogger_unit_of(u32 index)
{
	return index < KLOGGER_UNITS_MAX
		       ? klogger_unit_at[array_index_nospec(index, KLOGGER_UNITS_MAX)]
		       : NULL;
}

static int klogger_say_schema(void __user *to)
{
	struct klogger_schema_about about;
	struct klogger_unit *unit;

	if (copy_from_user(&about, to, sizeof(about)))
		return -EFAULT;
	unit = klogger_unit_of(about.index);
	if (!unit)
		return -ENOENT;
	about.events = unit->events;
	about.probes = unit->points;
	about.text_length = unit->length;
	about.text_digest = klogger_text_digest(unit);
	memset(about.name, 0, sizeof(about.name));
	strscpy(about.name, unit->name, sizeof(about.name));
	return copy_to_user(to, &about, sizeof(about)) ? -EFAULT : 0;
}

static int klogger_say_probe(void __user *to)
{
	struct klogger_probe_about about;
	const struct klogger_attach_point *point;
	struct klogger_unit *unit;

	if (copy_from_user(&about, to, sizeof(about)))
		return -EFAULT;
	unit = klogger_unit_of(about.index);
	if (!unit || about.place >= unit->points)
		return -ENOENT;
	point = &unit->point[array_index_nospec(about.place, unit->points)];
	about.probe = point->probe;
	about.target = point->target;
	about.error = -point->error;
	about.attached = point->attached;
	about.missed = klogger_point_missed(point);
	memset(about.name, 0, sizeof(about.name));
	strscpy(about.name, point->name, sizeof(about.name));
	return copy_to_user(to, &about, sizeof(about)) ? -EFAULT : 0;
}

static int klogger_say_rings(void __user *to)
{
	const struct klogger_rings *rings = klogger_current_rings();
	struct klogger_rings_about about = {};

	if (!rings)
		return -ENODATA;
	about.ring_size = rings->size;
	about.stride = rings->stride;
	return copy_to_user(to, &about, sizeof(about)) ? -EFAULT : 0;
}

static int klogger_do_use(const void __user *from)
{
	struct klogger_use use;

	return copy_from_user(&use, from, sizeof(use)) ? -EFAULT : klogger_use_unit(&use);
}

static int klogger_do_start(void __user *both)
{
	struct klogger_start start;
	int error;

	if (copy_from_user(&start, both, sizeof(start)))
		return -EFAULT;
	error = klogger_begin(&start);
	if (error)
		return error;
	return copy_to_user(both, &start, sizeof(start)) ? -EFAULT : 0;
}

static int klogger_do_event(const void __user *from)
{
	struct klogger_event_on event;

	return copy_from_user(&event, from, sizeof(event)) ? -EFAULT
							   : klogger_want(event.id, event.on);
}

static int klogger_do_attach(void)
{
	if (!klogger_current_rings())
		return -ENODATA;
	klogger_attach();
	return 0;
}

static int klogger_do_forget(void)
{
	if (!klogger_current_rings())
		return -ENODATA;
	klogger_forget();
	return 0;
}

static long klogger_request(unsigned int request, void __user *argument)
{
	switch (request) {
	case KLOGGER_IOC_ABOUT:
		return klogger_say_about(argument);
	case KLOGGER_IOC_SCHEMA:
		return klogger_say_schema(argument);
	case KLOGGER_IOC_PROBE:
		return klogger_say_probe(argument);
	case KLOGGER_IOC_RINGS:
		return klogger_say_rings(argument);
	case KLOGGER_IOC_USE:
		return klogger_do_use(argument);
	case KLOGGER_IOC_START:
		return klogger_do_start(argument);
	case KLOGGER_IOC_EVENT:
		return klogger_do_event(argument);
	case KLOGGER_IOC_ATTACH:
		return klogger_do_attach();
	case KLOGGER_IOC_DETACH:
		klogger_detach();
		return 0;
	case KLOGGER_IOC_FORGET:
		return klogger_do_forget();
	default:
		return -ENOTTY;
	}
}

static long klogger_ioctl(struct file *file, unsigned int request, unsigned long argument)
{
	long result;

	mutex_lock(&klogger_mutex);
	result = klogger_request(request, (void __user *)argument);
	mutex_unlock(&klogger_mutex);
	return result;
}

static const struct file_operations klogger_operations = {
	.owner = THIS_MODULE,
	.open = klogger_open,
	.release = klogger_release,
	.read = klogger_read_calls,
	.poll = klogger_poll,
	.unlocked_ioctl = klogger_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = klogger_mmap,
	.llseek = no_llseek,
};

static struct miscdevice klogger_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "klogger",
	.mode = 0600,
	.fops = &klogger_operations,
};

int klogger_device_begin(void)
{
	return misc_register(&klogger_device);
}

void klogger_device_end(void)
{
	misc_deregister(&klogger_device);
}
