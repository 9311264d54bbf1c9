/* SPDX-License-Identifier: GPL-2.0 */
/*
 * symbols.h - the driver's own functions that kfdsim calls.
 *
 * amdgpu exports none of them; symbols_resolve() finds them by name.  Where the
 * parameters differ between kernels a wrapper unifies them.
 */
#ifndef KFDSIM_SYMBOLS_H
#define KFDSIM_SYMBOLS_H

#include "compat.h"
#include "amdgpu_amdkfd.h"
#include "amdgpu_reset.h"

struct real_functions {
	struct kfd_dev *(*probe)(struct amdgpu_device *adev, bool vf);
#if SIM_HAS_NODES
	bool (*device_init)(struct kfd_dev *kfd, const struct kgd2kfd_shared_resources *res);
	int (*pre_reset)(struct kfd_dev *kfd, struct amdgpu_reset_context *context);
#else
	bool (*device_init)(struct kfd_dev *kfd, struct drm_device *ddev,
			    const struct kgd2kfd_shared_resources *res);
	int (*pre_reset)(struct kfd_dev *kfd);
#endif
	void (*device_exit)(struct kfd_dev *kfd);
	int (*post_reset)(struct kfd_dev *kfd);
	/* the flag: 7.2 with the processes, before without the runtime's power management */
	void (*suspend)(struct kfd_dev *kfd, bool flag);
	int (*resume)(struct kfd_dev *kfd, bool flag);
	void (*interrupt)(struct kfd_dev *kfd, const void *ih_ring_entry);
	struct amdgpu_reset_domain *(*create_reset_domain)(enum amdgpu_reset_domain_type type,
							   char *wq_name);
	int (*quiesce_mm)(struct mm_struct *mm, uint32_t trigger);
	int (*resume_mm)(struct mm_struct *mm);
	struct kfd_process *(*lookup_process_by_mm)(const struct mm_struct *mm);
	void (*unref_process)(struct kfd_process *p);
#if SIM_HAS_CONTEXTS
	struct amdgpu_amdkfd_fence *(*fence_create)(u64 context, struct mm_struct *mm,
						    struct svm_range_bo *svm_bo, u16 context_id);
	int (*schedule_evict)(struct mm_struct *mm, u16 context_id, struct dma_fence *fence);
#else
	struct amdgpu_amdkfd_fence *(*fence_create)(u64 context, struct mm_struct *mm,
						    struct svm_range_bo *svm_bo);
	int (*schedule_evict)(struct mm_struct *mm, struct dma_fence *fence);
#endif
};

extern struct real_functions real;

int symbols_resolve(void);
/* The address of a kernel or module symbol, 0 if there is none. */
unsigned long symbol_address(const char *name);

bool real_device_init(struct kfd_dev *kfd, struct amdgpu_device *adev,
		      const struct kgd2kfd_shared_resources *res);
/*
 * EBUSY while a process has KFD open; else 0, after the ends that KFD has queued. Not
 * while one is on its way to that queue: wait before until none is in sysfs.
 */
int real_processes_gone(void);
int real_pre_reset(struct kfd_dev *kfd, struct amdgpu_device *adev);
/* As when the machine suspends and resumes: the processes, too. */
void real_suspend(struct kfd_dev *kfd);
int real_resume(struct kfd_dev *kfd);
struct amdgpu_amdkfd_fence *real_fence_create(struct mm_struct *mm);
int real_schedule_evict(struct kfd_process *p, struct mm_struct *mm);

#endif
