// SPDX-License-Identifier: GPL-2.0
/*
 * stubs.c - the register accesses, doing nothing.
 *
 * KFD reaches the GPU's registers only through kfd2kgd_calls.  With HWS most queue
 * work is packets on the HIQ (cp.c) and few of these run; hqd_* serve sched_policy=2.
 * Left NULL, because KFD checks: get_iq_wait_times, get_cu_occupancy, hqd_dump
 * (debugfs kfd/hqds must not be read).
 */
#include "kfdsim.h"

static void sh_mem_settings(struct amdgpu_device *adev, uint32_t vmid, uint32_t config,
			    uint32_t ape1_base, uint32_t ape1_limit, uint32_t bases SIM_XCC_PARAM)
{
}

static int set_pasid_vmid_mapping(struct amdgpu_device *adev, u32 pasid,
				  unsigned int vmid SIM_XCC_PARAM)
{
	return 0;
}

static int init_interrupts(struct amdgpu_device *adev, uint32_t pipe SIM_XCC_PARAM)
{
	return 0;
}

static int hiq_mqd_load(struct amdgpu_device *adev, void *mqd, uint32_t pipe, uint32_t queue,
			uint32_t doorbell SIM_XCC_PARAM)
{
	return 0;
}

static int hqd_load(struct amdgpu_device *adev, void *mqd, uint32_t pipe, uint32_t queue,
		    uint32_t __user *wptr, uint32_t wptr_shift, uint32_t wptr_mask,
		    struct mm_struct *mm SIM_XCC_PARAM)
{
	return 0;
}

static int hqd_sdma_load(struct amdgpu_device *adev, void *mqd, uint32_t __user *wptr,
			 struct mm_struct *mm)
{
	return 0;
}

static int hqd_destroy(struct amdgpu_device *adev, void *mqd, enum kfd_preempt_type type,
		       unsigned int timeout, uint32_t pipe, uint32_t queue SIM_XCC_PARAM)
{
	return 0;
}

static bool hqd_is_occupied(struct amdgpu_device *adev, uint64_t address, uint32_t pipe,
			    uint32_t queue SIM_XCC_PARAM)
{
	return false;
}

static bool hqd_sdma_is_occupied(struct amdgpu_device *adev, void *mqd)
{
	return false;
}

static int hqd_sdma_destroy(struct amdgpu_device *adev, void *mqd, unsigned int timeout)
{
	return 0;
}

/* no VMID is mapped by the GPU itself: nothing for KFD to clean up */
static bool get_atc_vmid_pasid_mapping_info(struct amdgpu_device *adev, uint8_t vmid,
					    uint16_t *pasid)
{
	return false;
}

static void set_vm_context_page_table_base(struct amdgpu_device *adev, uint32_t vmid,
					   uint64_t base)
{
}

static void fill_common(struct kfd2kgd_calls *calls)
{
	calls->program_sh_mem_settings = sh_mem_settings;
	calls->set_pasid_vmid_mapping = set_pasid_vmid_mapping;
	calls->init_interrupts = init_interrupts;
	calls->hiq_mqd_load = hiq_mqd_load;
	calls->hqd_load = hqd_load;
	calls->hqd_sdma_load = hqd_sdma_load;
	calls->hqd_destroy = hqd_destroy;
	calls->hqd_is_occupied = hqd_is_occupied;
	calls->hqd_sdma_is_occupied = hqd_sdma_is_occupied;
	calls->hqd_sdma_destroy = hqd_sdma_destroy;
	calls->get_atc_vmid_pasid_mapping_info = get_atc_vmid_pasid_mapping_info;
	calls->set_vm_context_page_table_base = set_vm_context_page_table_base;
}

#if SIM_HAS_NODES
static uint64_t hqd_get_pq_addr(struct amdgpu_device *adev, uint32_t pipe, uint32_t queue,
				uint32_t xcc)
{
	return 0;
}

/* gfx 9.4.3 turns the debug trap of a VMID off whenever a process opens the device */
static uint32_t debug_trap(struct amdgpu_device *adev, bool restore, uint32_t vmid)
{
	return 0;
}

static int validate_trap_override_request(struct amdgpu_device *adev, uint32_t trap_override,
					  uint32_t *trap_mask_supported)
{
	return 0;
}

static uint32_t set_wave_launch_trap_override(struct amdgpu_device *adev, uint32_t vmid,
					      uint32_t trap_override, uint32_t mask_bits,
					      uint32_t mask_request, uint32_t *mask_prev,
					      uint32_t mask_cntl)
{
	return 0;
}

static uint32_t set_wave_launch_mode(struct amdgpu_device *adev, uint8_t mode, uint32_t vmid)
{
	return 0;
}

static uint32_t set_address_watch(struct amdgpu_device *adev, uint64_t address, uint32_t mask,
				  uint32_t id, uint32_t mode, uint32_t vmid, uint32_t inst)
{
	return 0;
}

static uint32_t clear_address_watch(struct amdgpu_device *adev, uint32_t id)
{
	return 0;
}

/* the real one reads adev->reg_offset, which was not discovered here */
static void build_wait_packet(struct amdgpu_device *adev, uint32_t wait_times, uint32_t grace,
#if SIM_HAS_CONTEXTS
			      uint32_t queue_sleep,
#endif
			      uint32_t *reg_offset, uint32_t *reg_data)
{
	*reg_offset = 0;
	*reg_data = wait_times;
}

#if SIM_HAS_CONTEXTS
/* asked at every unmap: does an SDMA queue hang? 0 names no queue */
static uint32_t hqd_sdma_get_doorbell(struct amdgpu_device *adev, int engine, int queue)
{
	return 0;
}
#endif

static void fill_newer(struct kfd2kgd_calls *calls)
{
	calls->hqd_get_pq_addr = hqd_get_pq_addr;
	calls->enable_debug_trap = debug_trap;
	calls->disable_debug_trap = debug_trap;
	calls->validate_trap_override_request = validate_trap_override_request;
	calls->set_wave_launch_trap_override = set_wave_launch_trap_override;
	calls->set_wave_launch_mode = set_wave_launch_mode;
	calls->set_address_watch = set_address_watch;
	calls->clear_address_watch = clear_address_watch;
#if SIM_HAS_CONTEXTS
	calls->build_dequeue_wait_counts_packet_info = build_wait_packet;
	calls->hqd_sdma_get_doorbell = hqd_sdma_get_doorbell;
#else
	calls->build_grace_period_packet_info = build_wait_packet;
#endif
}
#else
static void fill_newer(struct kfd2kgd_calls *calls)
{
}
#endif

void sim_fill_stubs(struct kfd2kgd_calls *calls)
{
	fill_common(calls);
	fill_newer(calls);
}
