// SPDX-License-Identifier: GPL-2.0
/*
 * give_up.c - a preemption that is confirmed, though a queue could not be taken off.
 *
 * The firmware names such a queue in the MQD of the HIQ (check_preemption_failed()), or the
 * registers of SDMA show it (sdma_has_hang()).  The driver then resets that queue alone, if it
 * knows how to and finds it in a hardware slot, else the whole GPU.
 */
#include "kfdsim.h"
#include "kfd_kernel_queue.h"
#include "v9_structs.h"

/* The newest compute queue of the newest process on this node: the driver knows it by its ring. */
static void give_up_some(struct sim *s, struct device_queue_manager *dqm)
{
	struct device_process_node *node;
	struct drm_file *file;
	struct queue *q;

	list_for_each_entry(node, &dqm->queues, list) {
		list_for_each_entry(q, &node->qpd->queues_list, list) {
			if (q->properties.type != KFD_QUEUE_TYPE_COMPUTE)
				continue;
			file = *sim_pdd_vm(qpd_to_pdd(node->qpd));
			s->given_up_vm = file->driver_priv;
			s->given_up_address = q->properties.queue_address;
			return;
		}
	}
}

/* the GPU's own engine of SDMA is not fabricated: its reset is refused */
static void refuse_resets(struct sim *s, bool refused)
{
#if SIM_HAS_SDMA_DOORBELL
	s->adev->debug_disable_gpu_ring_reset = refused;
#endif
}

/* in the context of the driver, which holds the lock of the queue manager */
void give_up_now(struct sim *s, struct device_queue_manager *dqm)
{
	struct v9_mqd *hiq = sim_packets(dqm)->priv_queue->queue->mqd;

	s->given_up = xchg(&s->giving_up, GIVE_UP_NOTHING);
	s->given_up_address = 0;
	if (s->given_up == GIVE_UP_RESETTABLE)
		give_up_some(s, dqm);
	if (s->given_up == GIVE_UP_QUEUE || s->given_up == GIVE_UP_RESETTABLE)
		hiq->queue_doorbell_id0 = 1;
	refuse_resets(s, s->given_up == GIVE_UP_SDMA);
}

void give_up_after_reset(struct sim *s)
{
	s->given_up = GIVE_UP_NOTHING;
	refuse_resets(s, false);
}

#if SIM_HAS_HQD_RESET
/* it is in the first slot, of each XCC */
static uint64_t ring_in_slot(struct amdgpu_device *adev, uint32_t pipe, uint32_t queue,
			     uint32_t xcc)
{
	return pipe || queue ? 0 : sim_of(adev)->given_up_address;
}

static uint64_t reset_slot(struct amdgpu_device *adev, uint32_t pipe, uint32_t queue,
			   uint32_t xcc, unsigned int timeout)
{
	return ring_in_slot(adev, pipe, queue, xcc);
}

/* asked for the name of the process whose queue was reset: a pdd has no file here (process.c) */
static int file_to_fpriv(struct file *file, struct amdgpu_fpriv **fpriv)
{
	int gpu;

	for (gpu = 0; gpu < nsims; gpu++) {
		if (!sims[gpu].given_up_address)
			continue;
		*fpriv = sims[gpu].given_up_vm;
		return 0;
	}
	return -EINVAL;
}
#endif

static struct redirect redirects[] = {
#if SIM_HAS_HQD_RESET
	REDIRECT(amdgpu_file_to_fpriv, file_to_fpriv),
#endif
	{ }
};

int give_up(struct sim *s, u32 what)
{
	int err = 0;

	if (what > GIVE_UP_SDMA)
		return -EINVAL;
	if (sim_is_mes() || (what == GIVE_UP_RESETTABLE && !SIM_HAS_HQD_RESET) ||
	    (what == GIVE_UP_SDMA && !SIM_HAS_SDMA_DOORBELL))
		return -EOPNOTSUPP;
	/* on demand, as those of MES (hook_mes()) */
	if (what == GIVE_UP_RESETTABLE && !(redirects[0].ops.flags & FTRACE_OPS_FL_ENABLED))
		err = redirects_install(redirects);
	if (!err)
		WRITE_ONCE(s->giving_up, what);
	return err;
}

#if SIM_HAS_SDMA_DOORBELL
static uint32_t sdma_doorbell(struct amdgpu_device *adev, int engine, int queue)
{
	return sim_of(adev)->given_up == GIVE_UP_SDMA;
}
#endif

void give_up_fill_stubs(struct kfd2kgd_calls *calls)
{
#if SIM_HAS_HQD_RESET
	calls->hqd_get_pq_addr = ring_in_slot;
	calls->hqd_reset = reset_slot;
#endif
#if SIM_HAS_SDMA_DOORBELL
	calls->hqd_sdma_get_doorbell = sdma_doorbell;
#endif
}
