// SPDX-License-Identifier: GPL-2.0
/*
 * doorbell.c - doorbell pages and queue buffers.
 *
 * In newer drivers doorbells are buffer objects of a TTM domain of their own, and
 * CREATE_QUEUE looks up the buffer objects behind the ring and its pointers.  Older ones
 * work with bare offsets into the BAR and need none of this.
 */
#include <linux/idr.h>
#include <linux/vmalloc.h>
#include "kfdsim.h"

#if SIM_HAS_DOORBELL_BOS
/* a process's doorbell frame is two pages */
#define SLOT_SIZE	(2 * PAGE_SIZE)

struct fake_doorbell_bo {
	struct amdgpu_bo bo;
	int slot;
	void *cpu;
};

static DEFINE_IDA(slots);

static int bo_create_kernel(struct amdgpu_device *adev, unsigned long size, int align, u32 domain,
			    struct amdgpu_bo **bo, u64 *gpu, void **cpu)
{
	struct fake_doorbell_bo *f;

	if (*bo)
		return 0;
	f = kvzalloc(sizeof(*f), GFP_KERNEL);
	if (!f)
		return -ENOMEM;
	f->cpu = vzalloc(PAGE_ALIGN(size));
	f->slot = ida_alloc_max(&slots, SIM_DOORBELL_BAR / SLOT_SIZE - 1, GFP_KERNEL);
	if (!f->cpu || f->slot < 0) {
		if (f->slot >= 0)
			ida_free(&slots, f->slot);
		vfree(f->cpu);
		kvfree(f);
		return -ENOMEM;
	}
	/* amdgpu_ttm_adev() leads from it to the device */
	f->bo.tbo.bdev = &adev->mman.bdev;
	if (cpu)
		*cpu = f->cpu;
	if (gpu)
		*gpu = sim_gpu_address(size);
	*bo = &f->bo;
	return 0;
}

static void bo_free_kernel(struct amdgpu_bo **bo, u64 *gpu, void **cpu)
{
	struct fake_doorbell_bo *f;

	if (!*bo)
		return;
	f = container_of(*bo, struct fake_doorbell_bo, bo);
	ida_free(&slots, f->slot);
	vfree(f->cpu);
	kvfree(f);
	*bo = NULL;
	if (cpu)
		*cpu = NULL;
}

/* in dwords from the start of the BAR */
static uint32_t doorbell_index_on_bar(struct amdgpu_device *adev, struct amdgpu_bo *bo,
				      uint32_t index, uint32_t size)
{
	struct fake_doorbell_bo *f = container_of(bo, struct fake_doorbell_bo, bo);

	return f->slot * SLOT_SIZE / sizeof(u32) + index * DIV_ROUND_UP(size, 4);
}
#endif

#if SIM_HAS_QUEUE_BUFFERS
/*
 * Ring, pointers, EOP and save area are mapped to no GPU here: there is no object to hold.
 * With MES the driver wants to know where the write pointer is: mes.c looks at no object.
 */
static int queue_buffer_get(struct amdgpu_vm *vm, void __user *addr, struct amdgpu_bo **pbo,
			    u64 size)
{
	*pbo = sim_is_mes() ? *sim_root(vm) : NULL;
	return 0;
}
#endif

struct redirect doorbell_redirects[] = {
#if SIM_HAS_DOORBELL_BOS
	REDIRECT(amdgpu_bo_create_kernel, bo_create_kernel),
	REDIRECT(amdgpu_bo_free_kernel, bo_free_kernel),
	REDIRECT(amdgpu_doorbell_index_on_bar, doorbell_index_on_bar),
#endif
#if SIM_HAS_QUEUE_BUFFERS
	REDIRECT(kfd_queue_buffer_get, queue_buffer_get),
#endif
	{ }
};
