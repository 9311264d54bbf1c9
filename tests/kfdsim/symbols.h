/* SPDX-License-Identifier: GPL-2.0 */
/*
 * symbols.h - the driver's own functions that kfdsim calls.
 *
 * amdgpu exports none of them; symbols_resolve() finds them by name.  Where the
 * parameters differ between drivers a wrapper unifies them.
 */
#ifndef KFDSIM_SYMBOLS_H
#define KFDSIM_SYMBOLS_H

#include "compat.h"

struct real_functions {
	typeof(kgd2kfd_probe) *probe;
	typeof(kgd2kfd_device_init) *device_init;
	typeof(kgd2kfd_device_exit) *device_exit;
	typeof(kgd2kfd_pre_reset) *pre_reset;
	typeof(kgd2kfd_post_reset) *post_reset;
	typeof(kgd2kfd_suspend) *suspend;
	typeof(kgd2kfd_resume) *resume;
	typeof(kgd2kfd_interrupt) *interrupt;
	typeof(kgd2kfd_quiesce_mm) *quiesce_mm;
	typeof(kgd2kfd_resume_mm) *resume_mm;
	typeof(kgd2kfd_schedule_evict_and_restore_process) *schedule_evict;
	typeof(kfd_lookup_process_by_mm) *lookup_process_by_mm;
	typeof(kfd_unref_process) *unref_process;
	typeof(amdgpu_amdkfd_fence_create) *fence_create;
#if SIM_HAS_RESET_DOMAIN
	typeof(amdgpu_reset_create_reset_domain) *create_reset_domain;
#endif
};

extern struct real_functions real;

int symbols_resolve(void);
/* The address of a kernel or module symbol, 0 if there is none. */
unsigned long symbol_address(const char *name);

struct kfd_dev *real_probe(struct amdgpu_device *adev);
bool real_device_init(struct kfd_dev *kfd, struct amdgpu_device *adev,
		      const struct kgd2kfd_shared_resources *res);
void real_device_exit(struct kfd_dev *kfd);
/*
 * EBUSY while a process has KFD open; else 0, after the ends that KFD has queued. Not
 * while one is on its way to that queue: wait before until none is in sysfs.
 */
int real_processes_gone(void);
/* What a reset of the GPU takes for writing. */
int real_reset_domain(struct amdgpu_device *adev);
int real_pre_reset(struct kfd_dev *kfd, struct amdgpu_device *adev);
/* As when the machine suspends and resumes: the processes, too. */
void real_suspend(struct kfd_dev *kfd);
int real_resume(struct kfd_dev *kfd);
/* Without the trigger where the driver takes none. */
int real_quiesce(struct mm_struct *mm, u32 trigger);
struct amdgpu_amdkfd_fence *real_fence_create(struct mm_struct *mm);
int real_schedule_evict(struct kfd_process *p, struct mm_struct *mm);

#endif
