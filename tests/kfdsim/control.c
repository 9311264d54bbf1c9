// SPDX-License-Identifier: GPL-2.0
/*
 * control.c - debugfs kfdsim/: makes happen what a GPU or TTM would cause.
 *
 * Write a PID to quiesce, resume, evict or vmfault; a GPU number to reset; 0 or 1 to hang.
 */
#include <linux/debugfs.h>
#include <linux/sched/mm.h>
#include "kfdsim.h"
#include "symbols.h"
#include "soc15_ih_clientid.h"

enum control { QUIESCE, RESUME, EVICT, VMFAULT, RESET, HANG };

static const char * const names[] = {
	[QUIESCE] = "quiesce", [RESUME] = "resume", [EVICT] = "evict",
	[VMFAULT] = "vmfault", [RESET] = "reset", [HANG] = "hang",
};

/* the way TTM evicts: a fence asked to signal, then KFD's delayed work */
static int evict(struct kfd_process *p, struct mm_struct *mm)
{
	int err = process_make_evictable(p, mm);

	return err ? err : real_schedule_evict(p, mm);
}

/* as the interrupt ring tells it: client VMC, VMID 8 (the first of KFD), PASID */
static int vmfault(struct kfd_process *p)
{
	struct kfd_process_device *pdd = p->pdds[0];
	u32 entry[8] = { SOC15_IH_CLIENTID_VMC | 8 << 24, 0, 0, sim_pasid(pdd) };

	real.interrupt(sim_of(pdd->dev->adev)->kfd, entry);
	return 0;
}

static int control_process(enum control op, struct mm_struct *mm)
{
	struct kfd_process *p;
	int err;

	if (op == QUIESCE)
		return real.quiesce_mm(mm, KFD_QUEUE_EVICTION_TRIGGER_USERPTR);
	if (op == RESUME)
		return real.resume_mm(mm);
	p = real.lookup_process_by_mm(mm);
	if (!p)
		return -ESRCH;
	err = op == EVICT ? evict(p, mm) : vmfault(p);
	real.unref_process(p);
	return err;
}

static struct mm_struct *mm_of_pid(pid_t nr)
{
	struct task_struct *task;
	struct mm_struct *mm;

	rcu_read_lock();
	task = pid_task(find_vpid(nr), PIDTYPE_PID);
	mm = task ? get_task_mm(task) : NULL;
	rcu_read_unlock();
	return mm;
}

static int control_write(void *data, u64 value)
{
	enum control op = (long)data;
	struct mm_struct *mm;
	int err;

	if (op == HANG) {
		cp_hang(value);
		return 0;
	}
	if (op == RESET) {
		if (value >= nsims)
			return -EINVAL;
		schedule_work(&sims[value].reset);
		return 0;
	}
	mm = mm_of_pid(value);
	if (!mm)
		return -ESRCH;
	err = control_process(op, mm);
	mmput(mm);
	pr_info("%s of pid %llu: %d\n", names[op], value, err);
	return err;
}
DEFINE_DEBUGFS_ATTRIBUTE(control_fops, NULL, control_write, "%llu\n");

void control_init(void)
{
	struct dentry *dir = debugfs_create_dir("kfdsim", NULL);
	long op;

	for (op = 0; op < ARRAY_SIZE(names); op++)
		debugfs_create_file_unsafe(names[op], 0200, dir, (void *)op, &control_fops);
}
