// SPDX-License-Identifier: GPL-2.0
/*
 * buffers.c - the memory that processes allocate, without memory.
 *
 * ALLOC_MEMORY_OF_GPU, FREE_MEMORY_OF_GPU and IMPORT_DMABUF are KFD's own, with their handles and
 * their counts of VRAM (kfd_chardev.c); only what amdgpu would do for them with TTM is ours. As
 * there, sizes are those of whole pages, a ring that is mapped twice has half of its size, and a
 * buffer that is freed reports its size only if it is VRAM of its own.
 */
#include "kfdsim.h"

struct sim_mem {
	/* KFD passes it around, and reads it in CRIU_OP alone */
	struct kgd_mem mem;
	u64 counted;
};

static int make(u64 counted, struct kgd_mem **mem)
{
	struct sim_mem *m = kzalloc(sizeof(*m), GFP_KERNEL);

	if (!m)
		return -ENOMEM;
	m->counted = counted;
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
	struct sim_mem *m = container_of(mem, struct sim_mem, mem);

	if (size)
		*size = m->counted;
	kfree(m);
	return 0;
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
	/* at the end of a process, from each of its GPUs */
	{ "amdgpu_amdkfd_gpuvm_unmap_memory_from_gpu", sim_nothing },
	{ }
};
