// SPDX-License-Identifier: GPL-2.0
/*
 * reset.c - a GPU reset as KFD sees it: its own pre_reset and post_reset, around nothing.
 * And a GPU's part in the machine's sleep: its own suspend and resume.
 *
 * The real paths act on every IP block between the two (amdgpu_device_gpu_recover(),
 * amdgpu_device_suspend() and _resume()).
 */
#include "kfdsim.h"
#include "symbols.h"

void sim_reset_work(struct work_struct *work)
{
	struct sim *s = container_of(work, struct sim, reset);
	struct rw_semaphore *sem = sim_reset_sem(s->adev);

	/* held as by the real recovery: KFD sends no packets meanwhile (unmap_queues_cpsch) */
	down_write(sem);
	pr_info("GPU %d: pre_reset %d\n", s->index, real_pre_reset(s->kfd, s->adev));
	cp_after_reset(s->index);
	mes_after_reset();
	pr_info("GPU %d: post_reset %d\n", s->index, real.post_reset(s->kfd));
	up_write(sem);
}

int sim_suspend(struct sim *s, bool on)
{
	/* KFD would unlock and restore what was never locked and evicted */
	if (s->suspended == on)
		return -EALREADY;
	s->suspended = on;
	if (on) {
		real_suspend(s->kfd);
		return 0;
	}
	return real_resume(s->kfd);
}

/* KFD requests a reset when a preemption timed out; it may hold locks, hence the work item */
static void gpu_reset(struct amdgpu_device *adev)
{
	struct sim *s = sim_of(adev);

	pr_info("GPU reset requested by KFD\n");
	if (s)
		schedule_work(&s->reset);
}

struct redirect reset_redirects[] = {
	REDIRECT(amdgpu_amdkfd_gpu_reset, gpu_reset),
	{ }
};
