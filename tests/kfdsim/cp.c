// SPDX-License-Identifier: GPL-2.0
/*
 * cp.c - the fake command processor.
 *
 * With HWS the driver writes packets (map runlist, unmap queues, query status) to a
 * ring of its own, the HIQ, and waits for a fence word that the GPU writes.  Here every
 * packet is done at once, which is all that KFD checks: as the driver builds the one
 * that announces a fence, all before it are read and the fence is written.  Unanswered,
 * each queue operation would end in a preemption timeout and a GPU reset.
 */
#include <linux/kprobes.h>
#include "kfdsim.h"
#include "kfd_kernel_queue.h"

static int hanging = CP_NONE;

static bool is_of(int which, struct sim *s)
{
	return which == CP_ALL || (s && which == s->index);
}

static void cp_answer(struct packet_manager *pm)
{
	struct kernel_queue *hiq = pm->priv_queue;
	uint64_t *fence = pm->dqm->fence_addr;

	/* the write pointer counts dwords for ever, the read pointer within the ring */
	*hiq->rptr_kernel = *hiq->wptr64_kernel % (hiq->queue->properties.queue_size / 4);
	if (READ_ONCE(*fence) == KFD_FENCE_INIT)
		WRITE_ONCE(*fence, KFD_FENCE_COMPLETED);
}

/* pm_query_status_v9(pm, buffer, address, value): the fence is armed before (unmap_queues_cpsch) */
static int before_query(struct kprobe *kp, struct pt_regs *regs)
{
	struct packet_manager *pm = (void *)regs->di;
	struct sim *s = sim_of(sim_adev(pm->dqm->dev));

	/* after the fence is armed, see cp_hang() */
	smp_mb();
	if (is_of(READ_ONCE(hanging), s))
		return 0;
	if (s)
		give_up_now(s, pm->dqm);
	cp_answer(pm);
	return 0;
}

static struct kprobe query_probe = {
	.symbol_name = "pm_query_status_v9",
	.pre_handler = before_query,
};

int cp_start(void)
{
	return register_kprobe(&query_probe);
}

void cp_hang(int which)
{
	struct device_queue_manager *dqm;
	int gpu, node, before = xchg(&hanging, which);

	/* the driver may wait for one that hung until now; xchg is a full barrier */
	for (gpu = 0; gpu < nsims; gpu++) {
		struct sim *s = &sims[gpu];

		if (!is_of(before, s) || is_of(which, s) || !sim_works(s))
			continue;
		for (node = 0; (dqm = sim_dqm(s->kfd, node)); node++)
			if (dqm->sched_running && sim_packets(dqm)->priv_queue)
				cp_answer(sim_packets(dqm));
	}
}

void cp_after_reset(int gpu)
{
	if (is_of(READ_ONCE(hanging), &sims[gpu]))
		cp_hang(CP_NONE);
	give_up_after_reset(&sims[gpu]);
}
