// SPDX-License-Identifier: GPL-2.0
/*
 * cp.c - the fake command processor.
 *
 * With HWS the driver writes packets (map runlist, unmap queues, query status) to a
 * ring of its own, the HIQ, and waits for a fence word that the GPU writes.  This
 * thread takes every packet as done, which is all that KFD looks at; without it each
 * queue operation would end in a preemption timeout and a GPU reset.
 */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include "kfdsim.h"
#include "kfd_kernel_queue.h"

/* After packets more of them come at once, and the driver spins until they are answered. */
#define CP_AWAKE_US 10u

static int hanging = CP_NONE;

void cp_hang(int gpu)
{
	WRITE_ONCE(hanging, gpu);
}

static bool hangs(int gpu)
{
	int which = READ_ONCE(hanging);

	return which == gpu || which == CP_ALL;
}

void cp_after_reset(int gpu)
{
	if (hangs(gpu))
		cp_hang(CP_NONE);
}

/* Whether there was something to do. */
static bool cp_step(struct device_queue_manager *dqm)
{
	struct kernel_queue *hiq;
	u32 written;
	bool new;

	if (!dqm || !dqm->sched_running)
		return false;
	hiq = READ_ONCE(dqm->packet_mgr.priv_queue);
	if (!hiq || !hiq->rptr_kernel || !hiq->queue)
		return false;
	/* the write pointer counts dwords for ever, the read pointer within the ring */
	written = *hiq->wptr64_kernel % (hiq->queue->properties.queue_size / 4);
	new = written != *hiq->rptr_kernel;
	*hiq->rptr_kernel = written;
	if (READ_ONCE(*dqm->fence_addr) == KFD_FENCE_INIT)
		WRITE_ONCE(*dqm->fence_addr, KFD_FENCE_COMPLETED);
	return new;
}

static int cp_thread(void *unused)
{
	unsigned int rest = sim_rest_us;

	while (!kthread_should_stop()) {
		bool worked = false;
		int gpu, node;

		for (gpu = 0; gpu < nsims; gpu++)
			for (node = 0; !hangs(gpu) && sim_dqm(sims[gpu].kfd, node); node++)
				worked |= cp_step(sim_dqm(sims[gpu].kfd, node));
		rest = worked ? CP_AWAKE_US : min(2 * rest, sim_rest_us);
		usleep_range(rest, 2 * rest);
	}
	return 0;
}

/*
 * One on each CPU, before all programs: hardware does not wait for its turn on a CPU, so programs that keep it busy are no hang.
 * An emulated CPU that waits may lose a timer interrupt; the driver waits on one that runs.
 */
int cp_start(void)
{
	int cpu;

	for_each_online_cpu(cpu) {
		struct task_struct *thread = kthread_create(cp_thread, NULL, "kfdsim-cp/%d", cpu);

		if (IS_ERR(thread))
			return PTR_ERR(thread);
		kthread_bind(thread, cpu);
		sched_set_fifo(thread);
		wake_up_process(thread);
	}
	return 0;
}
