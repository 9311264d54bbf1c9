/* SPDX-License-Identifier: GPL-2.0 */
/*
 * compat.h - what differs between the driver of 6.1, of 6.12 and of 7.2.
 *
 * Two changes cause nearly everything: before 6.12 a KFD device became a set of
 * nodes (one per spatial partition) whose register callbacks take an XCC, and by
 * 7.2 one mm may own several kfd_process (contexts), each with a PASID per device.
 * The other files name these two facts and leave the rest to the functions here;
 * the signatures of the driver's functions are in symbols.h.
 */
#ifndef KFDSIM_COMPAT_H
#define KFDSIM_COMPAT_H

#include <linux/ftrace.h>
#include <linux/version.h>
#include "amdgpu.h"
#include "kfd_priv.h"
#include "kfd_device_queue_manager.h"

#define SIM_HAS_NODES		(LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0))
#define SIM_HAS_CONTEXTS	(LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0))

/* the queue manager of node @n, NULL past the last node */
static inline struct device_queue_manager *sim_dqm(struct kfd_dev *kfd, int n)
{
#if SIM_HAS_NODES
	return n < kfd->num_nodes ? kfd->nodes[n]->dqm : NULL;
#else
	return n ? NULL : kfd->dqm;
#endif
}

/* requested later by a hang of the scheduler (kfd_process_hw_exception) */
static inline void sim_flush_resets(struct device_queue_manager *dqm)
{
#if !SIM_HAS_CONTEXTS
	flush_work(&dqm->hw_exception_work);
#endif
}

/* the active CUs of a shader engine, the same in every XCC */
static inline void sim_set_cu_bitmap(struct amdgpu_cu_info *cu, int engine, u32 cus)
{
#if SIM_HAS_NODES
	int xcc;

	for (xcc = 0; xcc < AMDGPU_MAX_GC_INSTANCES; xcc++)
		cu->bitmap[xcc][engine][0] = cus;
#else
	cu->bitmap[engine][0] = cus;
#endif
}

static inline u32 sim_pasid(struct kfd_process_device *pdd)
{
#if SIM_HAS_CONTEXTS
	return pdd->pasid;
#else
	return pdd->process->pasid;
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

/*
 * ACQUIRE_VM copies the VM's PASID to the pdd where processes do not have one of
 * their own: a counter, because two contexts of one task need different ones.
 */
static inline void sim_assign_pasid(struct kfd_process_device *pdd)
{
#if SIM_HAS_CONTEXTS
	static atomic_t next;

	pdd->pasid = 0x8000 + (atomic_inc_return(&next) & 0x3fff);
#endif
}

static inline void sim_set_task_info(struct amdgpu_task_info *info, struct task_struct *lead)
{
	memset(info, 0, sizeof(*info));
	kref_init(&info->refcount);
	info->tgid = lead->tgid;
	strscpy(info->process_name, lead->comm, sizeof(info->process_name));
#if SIM_HAS_CONTEXTS
	info->task.pid = lead->pid;
	strscpy(info->task.comm, lead->comm, sizeof(info->task.comm));
#else
	info->pid = lead->pid;
	strscpy(info->task_name, lead->comm, sizeof(info->task_name));
#endif
}

static inline void sim_set_instruction_pointer(struct ftrace_regs *fregs, void *to)
{
#if SIM_HAS_NODES
	ftrace_regs_set_instruction_pointer(fregs, (unsigned long)to);
#else
	ftrace_instruction_pointer_set(fregs, (unsigned long)to);
#endif
}

#endif
