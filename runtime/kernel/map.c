// SPDX-License-Identifier: GPL-2.0-only
/* Mappings of /dev/klogger. klogger/device.h has the offsets. */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/vmalloc.h>
#include "core.h"

/*
 * The recorder's anchors in kernel memory. The lock is taken with the mmap_lock of a process held.
 */
static DEFINE_MUTEX(klogger_anchor_mutex);
static void *klogger_anchor[KLOGGER_ANCHORS_MAX];
static u32 klogger_anchors;
static u64 klogger_anchor_bytes;

void klogger_anchors_free(void)
{
	mutex_lock(&klogger_anchor_mutex);
	while (klogger_anchors) {
		void *anchor = klogger_anchor[--klogger_anchors];

		/* It is invalid from now on, and must not be found in a memory image. */
		memset(anchor, 0, PAGE_SIZE);
		vfree(anchor);
	}
	klogger_anchor_bytes = 0;
	mutex_unlock(&klogger_anchor_mutex);
}

static void *klogger_anchor_make(u64 size)
{
	void *anchor = ERR_PTR(-ENOSPC);

	mutex_lock(&klogger_anchor_mutex);
	if (klogger_anchors < KLOGGER_ANCHORS_MAX &&
	    size <= KLOGGER_ANCHOR_MAX - klogger_anchor_bytes)
		anchor = __vmalloc(size,
				   GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN | __GFP_RETRY_MAYFAIL)
				 ?: ERR_PTR(-ENOMEM);
	if (!IS_ERR(anchor)) {
		klogger_anchor[klogger_anchors++] = anchor;
		klogger_anchor_bytes += size;
	}
	mutex_unlock(&klogger_anchor_mutex);
	return anchor;
}

static void klogger_map_open(struct vm_area_struct *vma)
{
	struct klogger_rings *rings = vma->vm_private_data;

	kref_get(&rings->kref);
}

static void klogger_map_close(struct vm_area_struct *vma)
{
	klogger_rings_put(vma->vm_private_data);
}

static vm_fault_t klogger_map_ring(struct vm_fault *fault)
{
	struct page *page =
		klogger_rings_page(fault->vma->vm_private_data, (u64)fault->pgoff << PAGE_SHIFT);

	get_page(page);
	fault->page = page;
	return 0;
}

static const struct vm_operations_struct klogger_ring_pages = {
	.open = klogger_map_open,
	.close = klogger_map_close,
	.fault = klogger_map_ring,
};

/* Memory that belongs to the core, and lives as long as the file is open. */
static vm_fault_t klogger_map_own(struct vm_fault *fault)
{
	/* By the file's offset, because the beginning of a mapping may have been unmapped. */
	u64 offset = (u64)fault->pgoff << PAGE_SHIFT & (KLOGGER_MAP_SCOPE - 1);
	struct page *page = vmalloc_to_page(fault->vma->vm_private_data + offset);

	get_page(page);
	fault->page = page;
	return 0;
}

static const struct vm_operations_struct klogger_own_pages = {
	.fault = klogger_map_own,
};

static int klogger_map_area(struct vm_area_struct *vma, u64 offset, u64 size)
{
	struct klogger_rings *rings;
	void *anchor;

	switch (offset) {
	case KLOGGER_MAP_RINGS:
		rings = klogger_get_rings(size);
		if (IS_ERR(rings))
			return PTR_ERR(rings);
		vma->vm_private_data = rings;
		vma->vm_ops = &klogger_ring_pages;
		return 0;
	case KLOGGER_MAP_SCOPE:
		vma->vm_private_data = klogger_scope;
		vma->vm_ops = &klogger_own_pages;
		return size == KLOGGER_SCOPE_BYTES ? 0 : -EINVAL;
	case KLOGGER_MAP_RINGLESS:
		vma->vm_private_data = klogger_ringless;
		vma->vm_ops = &klogger_own_pages;
		return size == sizeof(u64) * KLOGGER_EVENTS_MAX ? 0 : -EINVAL;
	case KLOGGER_MAP_FIRED:
		vma->vm_private_data = klogger_fired;
		vma->vm_ops = &klogger_own_pages;
		return size == PAGE_ALIGN(KLOGGER_FIRED_BYTES) ? 0 : -EINVAL;
	case KLOGGER_MAP_STACKS:
		if (!klogger_stacks)
			return -ENODATA;
		vma->vm_private_data = klogger_stacks;
		vma->vm_ops = &klogger_own_pages;
		return size == sizeof(*klogger_stacks) ? 0 : -EINVAL;
	case KLOGGER_MAP_ANCHOR:
		anchor = klogger_anchor_make(size);
		if (IS_ERR(anchor))
			return PTR_ERR(anchor);
		vma->vm_private_data = anchor;
		vma->vm_ops = &klogger_own_pages;
		return 0;
	default:
		return -EINVAL;
	}
}

/* Shared, not executable, complete. A child of the recorder does not inherit it. */
int klogger_mmap(struct file *file, struct vm_area_struct *vma)
{
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EPERM;
	klogger_vm_flags(vma, VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY, VM_MAYEXEC);
	return klogger_map_area(vma, (u64)vma->vm_pgoff << PAGE_SHIFT, vma->vm_end - vma->vm_start);
}
