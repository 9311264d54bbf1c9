// SPDX-License-Identifier: GPL-2.0
/*
 * cp.c - the fake command processor.
 *
 * With HWS the driver writes packets (map runlist, unmap queues, query status) to a
 * ring of its own, the HIQ, and waits for a fence word that the GPU writes.  This
 * thread takes every packet as done, which is all that KFD looks at; without it each
 * queue operation would end in a preemption timeout and a GPU reset.
 *
 * The driver spins while it waits, and each look of this thread is a timer of the
 * guest, which costs its emulator far more than the look: so it looks often from the
 * packet on that announces such a wait, and else hardly ever.
 */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/wait.h>
#include "kfdsim.h"
#include "kfd_kernel_queue.h"

/* between two looks while the driver waits, and how many without a new packet end that */
#define CP_AWAKE_US	10
#define CP_AWAKE_LOOKS	50
/* between two looks while it does not: it may have set its packet functions anew */
#define CP_REST		(HZ / 20)

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

/* What the driver's own packet functions are, and the same with ours: all fake GPUs are of one family. */
static const struct packet_manager_funcs *packets;
static struct packet_manager_funcs announcing;
static DECLARE_WAIT_QUEUE_HEAD(announced);
static atomic_t announcements = ATOMIC_INIT(0);

static int cp_query_status(struct packet_manager *pm, uint32_t *buffer, uint64_t fence_address,
			   uint64_t fence_value)
{
	int ret = packets->query_status(pm, buffer, fence_address, fence_value);

	atomic_inc(&announcements);
	wake_up_all(&announced);
	return ret;
}

/* At each look: the driver sets them anew when it starts its scheduler again. */
static void cp_listen(struct device_queue_manager *dqm)
{
	const struct packet_manager_funcs *have = dqm ? READ_ONCE(dqm->packet_mgr.pmf) : NULL;

	if (!have || have == &announcing)
		return;
	if (!packets) {
		announcing = *have;
		announcing.query_status = cp_query_status;
		packets = have;
	}
	if (have == packets)
		smp_store_release(&dqm->packet_mgr.pmf, &announcing);
}

/* Whether any GPU had something to do. */
static bool cp_look(void)
{
	bool worked = false;
	int gpu, node;

	for (gpu = 0; gpu < nsims; gpu++) {
		for (node = 0; !hangs(gpu) && sim_dqm(sims[gpu].kfd, node); node++) {
			struct device_queue_manager *dqm = sim_dqm(sims[gpu].kfd, node);

			cp_listen(dqm);
			worked |= cp_step(dqm);
		}
	}
	return worked;
}

static int cp_thread(void *unused)
{
	int heard = 0, idle = 0;

	while (!kthread_should_stop()) {
		int now = atomic_read(&announcements);

		idle = cp_look() || now != heard ? 0 : idle + 1;
		heard = now;
		if (idle < CP_AWAKE_LOOKS)
			usleep_range(CP_AWAKE_US, 2 * CP_AWAKE_US);
		else
			wait_event_timeout(announced, atomic_read(&announcements) != heard, CP_REST);
	}
	return 0;
}

/* Before all programs: hardware does not wait for its turn on a CPU, so programs that keep all of them busy are no hang. */
int cp_start(void)
{
	struct task_struct *thread = kthread_run(cp_thread, NULL, "kfdsim-cp");

	if (IS_ERR(thread))
		return PTR_ERR(thread);
	sched_set_fifo(thread);
	return 0;
}
