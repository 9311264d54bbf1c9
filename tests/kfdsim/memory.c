// SPDX-License-Identifier: GPL-2.0
/*
 * memory.c - kernel memory instead of TTM buffer objects.
 *
 * KFD keeps MQDs, the HIQ, runlists and fences in GTT memory.  Nothing but the driver
 * and cp.c ever reads them here, so vmalloc memory and an invented GPU address do.
 */
#include <linux/vmalloc.h>
#include "kfdsim.h"

/* half way up the GPU's 47-bit space: far from where mmap puts a client's rings */
static atomic64_t next_gpu_address = ATOMIC64_INIT(0x400000000000ULL);

struct fake_gtt {
	void *cpu;
};

u64 sim_gpu_address(size_t size)
{
	return atomic64_fetch_add(ALIGN(size, SZ_64K), &next_gpu_address);
}

int sim_make_gtt(size_t size, void **mem, uint64_t *gpu, void **cpu)
{
	struct fake_gtt *g = kzalloc(sizeof(*g), GFP_KERNEL);

	if (!g)
		return -ENOMEM;
	g->cpu = vzalloc(PAGE_ALIGN(size));
	if (!g->cpu) {
		kfree(g);
		return -ENOMEM;
	}
	*mem = g;
	*gpu = sim_gpu_address(size);
	*cpu = g->cpu;
	return 0;
}

static void release_gtt(struct fake_gtt *g)
{
	if (g)
		vfree(g->cpu);
	kfree(g);
}

#if SIM_HAS_FREE_BY_ADDRESS
static void free_gtt(struct amdgpu_device *adev, void **mem)
{
	release_gtt(*mem);
	*mem = NULL;
}
#else
static void free_gtt(struct amdgpu_device *adev, void *mem)
{
	release_gtt(mem);
}
#endif

/* GWS is a buffer object that KFD passes around and never reads. */
static int alloc_gws(struct amdgpu_device *adev, size_t size, void **mem)
{
	*mem = kvzalloc(sizeof(struct amdgpu_bo), GFP_KERNEL);
	return *mem ? 0 : -ENOMEM;
}

static void free_gws(struct amdgpu_device *adev, void *mem)
{
	kvfree(mem);
}

static int add_gws_to_process(void *info, void *gws, struct kgd_mem **mem)
{
	*mem = gws;
	return 0;
}

#if SIM_HAS_KERNEL_MEM
static int alloc_kernel_mem(struct amdgpu_device *adev, size_t size, u32 domain, void **mem,
			    uint64_t *gpu, void **cpu, bool mqd_gfx9)
{
	return sim_make_gtt(size, mem, gpu, cpu);
}
#else
static int alloc_gtt(struct amdgpu_device *adev, size_t size, void **mem, uint64_t *gpu,
#if SIM_HAS_GTT_USWC
		     void **cpu, bool mqd_gfx9, bool uncached)
#else
		     void **cpu, bool mqd_gfx9)
#endif
{
	return sim_make_gtt(size, mem, gpu, cpu);
}
#endif

#if SIM_HAS_FLUSH_HDP
/* a debugger's suspend: there is no host data path whose writes could be late */
static void flush_hdp(struct amdgpu_device *adev, struct amdgpu_ring *ring)
{
}
#endif

struct redirect memory_redirects[] = {
#if SIM_HAS_FLUSH_HDP
	REDIRECT(amdgpu_device_flush_hdp, flush_hdp),
#endif
#if SIM_HAS_KERNEL_MEM
	REDIRECT(amdgpu_amdkfd_alloc_kernel_mem, alloc_kernel_mem),
	REDIRECT(amdgpu_amdkfd_free_kernel_mem, free_gtt),
#else
	REDIRECT(amdgpu_amdkfd_alloc_gtt_mem, alloc_gtt),
	REDIRECT(amdgpu_amdkfd_free_gtt_mem, free_gtt),
#endif
	REDIRECT(amdgpu_amdkfd_alloc_gws, alloc_gws),
	REDIRECT(amdgpu_amdkfd_free_gws, free_gws),
	REDIRECT(amdgpu_amdkfd_add_gws_to_process, add_gws_to_process),
	{ "amdgpu_amdkfd_remove_gws_from_process", sim_nothing },
	{ }
};
