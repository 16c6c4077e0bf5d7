// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/framebuffer: mapped, it is the memory of the VGA window, as that of a display's driver. What
 * remap_pfn_range() maps is I/O and is not dumped.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>

#define WINDOW 0xa0000ul

static int map(struct file *file, struct vm_area_struct *area)
{
	unsigned long length = area->vm_end - area->vm_start;

	if (length > 0x20000)
		return -EINVAL;
	return remap_pfn_range(area, area->vm_start, WINDOW >> PAGE_SHIFT, length,
			       pgprot_noncached(area->vm_page_prot));
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.mmap = map,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "framebuffer",
	.fops = &operations,
};

module_misc_device(device);
MODULE_DESCRIPTION("A display's memory for a test of klogger");
MODULE_LICENSE("GPL");
