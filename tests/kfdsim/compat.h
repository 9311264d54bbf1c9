/* SPDX-License-Identifier: GPL-2.0 */
/*
 * compat.h - what differs between drivers: the one place that knows how each names it.
 *
 * SIM_HAS_* are read from the driver's headers (facts.sh).  The other files name only those
 * that decide what there is to simulate: nodes, contexts, doorbell and queue buffers, CRIU.
 * The signatures of the driver's functions are in symbols.c.
 */
#ifndef KFDSIM_COMPAT_H
#define KFDSIM_COMPAT_H

/* the one opaque type of old drivers: always an amdgpu_device, so let the compiler know */
#define kgd_dev amdgpu_device

#include <linux/ftrace.h>
#include "amdgpu.h"
#include "amdgpu_amdkfd.h"
#if SIM_HAS_RESET_DOMAIN
#include "amdgpu_reset.h"
#endif
#include "kfd_priv.h"
#include "kfd_device_queue_manager.h"

/* the GPU of a KFD node or device */
#if SIM_HAS_KGD
#define sim_adev(dev)	((dev)->kgd)
#else
#define sim_adev(dev)	((dev)->adev)
#endif

/* the queue manager of node @n, NULL past the last node */
static inline struct device_queue_manager *sim_dqm(struct kfd_dev *kfd, int n)
{
#if SIM_HAS_NODES
	return n < kfd->num_nodes ? kfd->nodes[n]->dqm : NULL;
#else
	return n ? NULL : kfd->dqm;
#endif
}

static inline struct packet_manager *sim_packets(struct device_queue_manager *dqm)
{
#if SIM_HAS_PACKET_MGR
	return &dqm->packet_mgr;
#else
	return &dqm->packets;
#endif
}

/* requested later by a hang of the scheduler (kfd_process_hw_exception) */
static inline void sim_flush_resets(struct device_queue_manager *dqm)
{
#if SIM_HAS_HW_EXCEPTION_WORK
	/* without the hardware scheduler it was never initialized */
	if (dqm->hw_exception_work.func)
		flush_work(&dqm->hw_exception_work);
#endif
}

/* the active CUs of four shader engines, the same in every XCC */
static inline void sim_set_cu_bitmap(struct amdgpu_cu_info *cu, const u32 cus[4])
{
	u32 (*engine)[4] = (void *)cu->bitmap;
	int i;

	for (i = 0; i < sizeof(cu->bitmap) / sizeof(*engine); i++)
		engine[i][0] = cus[i % 4];
}

/* without it a 9.4.3 has no cache of level 1 in the topology, and there alone is which CUs it has */
static inline void sim_set_cu_cache(struct amdgpu_gfx_config *config)
{
#if SIM_HAS_CU_CACHE
	config->gc_tcp_size_per_cu = 32;
#endif
}

/* MES schedules the queues of users, and a queue has the buffers that it asks for */
#define SIM_HAS_MES	(SIM_HAS_NODES && SIM_HAS_QUEUE_BUFFERS)

/* who the GPU is: the node's name, doorbell capability */
static inline void sim_set_asic(struct amdgpu_device *adev, int gfx)
{
	adev->asic_type = CHIP_VEGA10;
	adev->family = AMDGPU_FAMILY_AI;
#if SIM_HAS_MES
	if (gfx == 1100) {
		adev->asic_type = CHIP_IP_DISCOVERY;
		adev->family = AMDGPU_FAMILY_GC_11_0_0;
	}
#endif
}

/* the same, where the type alone does not say it */
static inline void sim_set_ip_versions(struct amdgpu_device *adev, int gfx)
{
#if SIM_HAS_IP_VERSIONS
	u32 gc = IP_VERSION(9, 0, 1), sdma = IP_VERSION(4, 0, 0);

	if (gfx == 943) {
		gc = IP_VERSION(9, 4, 3);
		sdma = IP_VERSION(4, 4, 2);
	} else if (gfx == 1100) {
		gc = IP_VERSION(11, 0, 0);
		sdma = IP_VERSION(6, 0, 0);
	}
	adev->ip_versions[GC_HWIP][0] = gc;
	adev->ip_versions[SDMA0_HWIP][0] = sdma;
#endif
}

/* taken by a reset for writing */
static inline struct rw_semaphore *sim_reset_sem(struct amdgpu_device *adev)
{
#if SIM_HAS_RESET_DOMAIN
	return &adev->reset_domain->sem;
#else
	return &adev->reset_sem;
#endif
}

/* a process's part on its @n-th GPU node, NULL past the last one */
static inline struct kfd_process_device *sim_pdd(struct kfd_process *p, int n)
{
#if SIM_HAS_PDD_ARRAY
	return n < p->n_pdds ? p->pdds[n] : NULL;
#else
	struct kfd_process_device *pdd;

	/* each was put at the head of the list */
	list_for_each_entry_reverse(pdd, &p->per_device_data, per_device_list)
		if (!n--)
			return pdd;
	return NULL;
#endif
}

#define for_each_pdd(pdd, p, i)	for (i = 0; ((pdd) = sim_pdd(p, i)); i++)

/* where a pdd has its VM, or the file that stands for it */
static inline void **sim_pdd_vm(struct kfd_process_device *pdd)
{
#if SIM_HAS_DRM_PRIV
	return &pdd->drm_priv;
#else
	return &pdd->vm;
#endif
}

static inline u32 sim_pasid(struct kfd_process_device *pdd)
{
#if SIM_HAS_PDD_PASID
	return pdd->pasid;
#else
	return pdd->process->pasid;
#endif
}

/*
 * ACQUIRE_VM copies the VM's PASID to the pdd where processes do not have one of
 * their own: a counter, because two contexts of one task need different ones.
 */
static inline void sim_assign_pasid(struct kfd_process_device *pdd)
{
#if SIM_HAS_PDD_PASID
	static atomic_t next;

	pdd->pasid = 0x8000 + (atomic_inc_return(&next) & 0x3fff);
#endif
}

/* which interrupts of a GPU are for this node: bit N of its map is node id N of the ring entry */
static inline u32 sim_interrupt_node(struct kfd_process_device *pdd)
{
#if SIM_HAS_NODES
	return pdd->dev->interrupt_bitmap ? __ffs(pdd->dev->interrupt_bitmap) : 0;
#else
	return 0;
#endif
}

static inline struct amdgpu_bo **sim_root(struct amdgpu_vm *vm)
{
#if SIM_HAS_ROOT_IN_BASE
	return &vm->root.base.bo;
#else
	return &vm->root.bo;
#endif
}

/* @own: room for it where the VM only points to it */
static inline void sim_set_task_info(struct amdgpu_vm *vm, struct amdgpu_task_info *own,
				     struct task_struct *lead)
{
	struct amdgpu_task_info *info = own;

#if SIM_HAS_TASK_INFO_POINTER
	memset(info, 0, sizeof(*info));
	kref_init(&info->refcount);
	vm->task_info = info;
#else
	info = &vm->task_info;
#endif
	info->tgid = lead->tgid;
	strscpy(info->process_name, lead->comm, sizeof(info->process_name));
#if SIM_HAS_TASK_IN_TASK_INFO
	info->task.pid = lead->pid;
	strscpy(info->task.comm, lead->comm, sizeof(info->task.comm));
#else
	info->pid = lead->pid;
	strscpy(info->task_name, lead->comm, sizeof(info->task_name));
#endif
}

/* what ftrace hands to a callback */
#if SIM_HAS_FTRACE_REGS
#define SIM_FTRACE_FLAGS	FTRACE_OPS_FL_RECURSION
typedef struct ftrace_regs sim_ftrace_regs;
#define sim_pt_regs(fregs)	ftrace_get_regs(fregs)
#else
#define SIM_FTRACE_FLAGS	0
typedef struct pt_regs sim_ftrace_regs;
#define sim_pt_regs(fregs)	(fregs)
#endif

#endif
