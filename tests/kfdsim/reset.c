// SPDX-License-Identifier: GPL-2.0
/*
 * reset.c - a GPU reset as KFD sees it: its own pre_reset and post_reset, around nothing.
 *
 * The real path runs amdgpu_device_gpu_recover() on every IP block between the two.
 */
#include "kfdsim.h"
#include "symbols.h"

void sim_reset_work(struct work_struct *work)
{
	struct sim *s = container_of(work, struct sim, reset);
	struct rw_semaphore *sem = &s->adev->reset_domain->sem;

	/* held as by the real recovery: KFD sends no packets meanwhile (unmap_queues_cpsch) */
	down_write(sem);
	pr_info("GPU %d: pre_reset %d\n", s->index, real_pre_reset(s->kfd, s->adev));
	cp_after_reset(s->index);
	pr_info("GPU %d: post_reset %d\n", s->index, real.post_reset(s->kfd));
	up_write(sem);
}

/* KFD asks for a reset when a preemption timed out; it may hold locks, hence the work item */
static void gpu_reset(struct amdgpu_device *adev)
{
	struct sim *s = sim_of(adev);

	pr_info("GPU reset asked for by KFD\n");
	if (s)
		schedule_work(&s->reset);
}

struct redirect reset_redirects[] = {
	{ "amdgpu_amdkfd_gpu_reset", gpu_reset },
	{ }
};
