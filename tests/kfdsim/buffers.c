// SPDX-License-Identifier: GPL-2.0
/*
 * buffers.c - the memory that processes allocate, without memory.
 *
 * ALLOC_MEMORY_OF_GPU, FREE_MEMORY_OF_GPU, IMPORT_DMABUF and those that map are KFD's own, with
 * their handles and their counts of VRAM (kfd_chardev.c); only what amdgpu would do for them with
 * TTM is ours. As there (amdgpu_amdkfd_gpuvm.c), sizes are those of whole pages, a ring that is
 * mapped twice has half of its size, a buffer that is freed reports its size only if it is VRAM of
 * its own, mapping again does nothing, and what is not mapped cannot be unmapped, nor what is freed.
 */
#include <linux/xarray.h>
#include "kfdsim.h"

struct sim_mem {
	/* KFD passes it around, and reads it in CRIU_OP alone */
	struct kgd_mem mem;
	u64 counted;
	/* the VMs that it is mapped in, by their addresses */
	struct xarray vms;
};

static struct sim_mem *sim_mem(struct kgd_mem *mem)
{
	return container_of(mem, struct sim_mem, mem);
}

static int make(u64 counted, struct kgd_mem **mem)
{
	struct sim_mem *m = kzalloc(sizeof(*m), GFP_KERNEL);

	if (!m)
		return -ENOMEM;
	m->counted = counted;
	xa_init(&m->vms);
	*mem = &m->mem;
	return 0;
}

static int alloc_memory(struct amdgpu_device *adev, uint64_t va, uint64_t size, void *vm,
			struct kgd_mem **mem, uint64_t *offset,
#if SIM_HAS_ALLOC_FOR_CRIU
			uint32_t flags, bool criu_resume)
#else
			uint32_t flags)
#endif
{
	if (flags & KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM)
		size >>= 1;
	return make(flags & KFD_IOC_ALLOC_MEM_FLAGS_VRAM ? PAGE_ALIGN(size) : 0, mem);
}

static int free_memory(struct amdgpu_device *adev, struct kgd_mem *mem,
#if SIM_HAS_FREE_OF_VM
		       void *vm, uint64_t *size)
#else
		       uint64_t *size)
#endif
{
	struct sim_mem *m = sim_mem(mem);

	if (!xa_empty(&m->vms))
		return -EBUSY;
	if (size)
		*size = m->counted;
	kfree(m);
	return 0;
}

static int map_memory(struct amdgpu_device *adev, struct kgd_mem *mem, void *vm)
{
	return xa_err(xa_store(&sim_mem(mem)->vms, (unsigned long)vm, vm, GFP_KERNEL));
}

/* also at the end of a process, from each of its GPUs */
static int unmap_memory(struct amdgpu_device *adev, struct kgd_mem *mem, void *vm)
{
	return xa_erase(&sim_mem(mem)->vms, (unsigned long)vm) ? 0 : -EINVAL;
}

#if SIM_HAS_IMPORT_OF_FD
static int import_dmabuf(struct amdgpu_device *adev, int fd, uint64_t va, void *vm,
			 struct kgd_mem **mem, uint64_t *size, uint64_t *mmap_offset)
{
	return make(0, mem);
}
#endif

struct redirect buffer_redirects[] = {
	REDIRECT(amdgpu_amdkfd_gpuvm_alloc_memory_of_gpu, alloc_memory),
	REDIRECT(amdgpu_amdkfd_gpuvm_free_memory_of_gpu, free_memory),
#if SIM_HAS_IMPORT_OF_FD
	REDIRECT(amdgpu_amdkfd_gpuvm_import_dmabuf_fd, import_dmabuf),
#endif
	REDIRECT(amdgpu_amdkfd_gpuvm_map_memory_to_gpu, map_memory),
	REDIRECT(amdgpu_amdkfd_gpuvm_unmap_memory_from_gpu, unmap_memory),
	/* page tables, which nobody has written */
	{ "amdgpu_amdkfd_gpuvm_sync_memory", sim_nothing },
#if SIM_HAS_DMAUNMAP
	{ "amdgpu_amdkfd_gpuvm_dmaunmap_mem", sim_nothing },
#endif
	{ }
};
