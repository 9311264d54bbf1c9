// SPDX-License-Identifier: GPL-2.0
/*
 * control.c - debugfs kfdsim/: triggers what a GPU, TTM or a debugger would cause.
 *
 * A write is a number, optionally followed by others, separated by spaces:
 * PID to resume or evict; PID [TRIGGER] to quiesce; PID [NODE [PAGE]] to vmfault;
 * PID [0|1] to debug; GPU [0|1] to reset or suspend; 0|1 [GPU] to hang; GPU [0..3] to
 * give_up; MS [ERRNO] to mes.
 * "gfx=G xccs=X parts=P gpus=N sched_policy=S" to shape creates other GPUs.
 */
#include <linux/debugfs.h>
#include <linux/sched/mm.h>
#include "kfdsim.h"
#include "symbols.h"
#include "soc15_ih_clientid.h"

enum control { QUIESCE, RESUME, EVICT, VMFAULT, DEBUG, RESET, SUSPEND, HANG, GIVE_UP, MES };

static const char * const names[] = {
	[QUIESCE] = "quiesce", [RESUME] = "resume", [EVICT] = "evict", [VMFAULT] = "vmfault",
	[DEBUG] = "debug", [RESET] = "reset", [SUSPEND] = "suspend", [HANG] = "hang",
	[GIVE_UP] = "give_up", [MES] = "mes",
};

/* no such number was written */
#define UNSAID	U32_MAX

/* KFD_QUEUE_EVICTION_TRIGGER_USERPTR, which not every driver has */
#define TRIGGER_USERPTR	1

/* of the ring id in an interrupt of a VM fault (event_interrupt_wq_v9) */
#define PROT_VALID	0x08
#define PROT_WRITE	0x20

/* the way TTM evicts: a fence is requested to signal, then KFD's delayed work */
static int evict(struct kfd_process *p, struct mm_struct *mm)
{
	int err = process_make_evictable(p, mm);

	return err ? err : real_schedule_evict(p, mm);
}

/*
 * As in the interrupt ring: client VMC, type of the fault, a VMID; PASID and the id of
 * the node; 36 bits of the page's number.
 */
static int vmfault(struct kfd_process *p, u32 node, u64 page)
{
	u32 entry[8] = { };
	struct kfd_process_device *pdd;

	pdd = sim_pdd(p, node);
	if (!pdd || !*sim_pdd_vm(pdd))
		return -ENODEV;
	entry[0] = SOC15_IH_CLIENTID_VMC | (PROT_VALID | PROT_WRITE) << 16 |
		   pdd->dev->vm_info.first_vmid_kfd << 24;
	entry[3] = sim_pasid(pdd) | sim_interrupt_node(pdd) << 16;
	entry[4] = lower_32_bits(page);
	entry[5] = upper_32_bits(page) & 0xf;
	real.interrupt(sim_of(sim_adev(pdd->dev))->kfd, entry);
	return 0;
}

/*
 * Before 6.12 the driver takes a queue out of sysfs ahead of destroying it, and does so
 * again once the queue really goes: on an object that is gone, which the kernel warns of.
 */
static int republish_queues(struct kfd_process *p)
{
	struct process_queue_node *node;
	int err = 0;

	list_for_each_entry(node, &p->pqm.queues, process_queue_list) {
		struct queue *q = node->q;
		typeof(q->kobj.ktype) type;

		if (err || !q || q->kobj.state_in_sysfs)
			continue;
		type = q->kobj.ktype;
		memset(&q->kobj, 0, sizeof(q->kobj));
		err = kobject_init_and_add(&q->kobj, type, p->kobj_queues, "%u",
					   q->properties.queue_id);
	}
	return err;
}

/*
 * The state in which a debugger holds a process: with the hardware scheduler
 * DESTROY_QUEUE is refused with EBUSY (destroy_queue_cpsch) and the queue still exists.
 */
static int debug(struct kfd_process *p, bool on)
{
	struct kfd_process_device *pdd;
	int i, err;

	mutex_lock(&p->mutex);
	for_each_pdd(pdd, p, i)
		pdd->qpd.is_debug = on;
	err = on ? 0 : republish_queues(p);
	mutex_unlock(&p->mutex);
	return err;
}

static int control_process(enum control op, struct mm_struct *mm, u32 more, u64 page)
{
	struct kfd_process *p;
	int err;

	if (op == QUIESCE)
		return real_quiesce(mm, more == UNSAID ? TRIGGER_USERPTR : more);
	if (op == RESUME)
		return real.resume_mm(mm);
	p = real.lookup_process_by_mm(mm);
	if (!p)
		return -ESRCH;
	if (op == EVICT)
		err = evict(p, mm);
	else if (op == VMFAULT)
		err = vmfault(p, more == UNSAID ? 0 : more, page);
	else
		err = debug(p, more);
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

static int control_pid(enum control op, u32 pid, u32 more, u64 page)
{
	struct mm_struct *mm = mm_of_pid(pid);
	int err;

	if (!mm)
		return -ESRCH;
	err = control_process(op, mm, more, page);
	mmput(mm);
	return err;
}

static int control_gpu(enum control op, u32 value, u32 more)
{
	if (op == HANG) {
		if (more != UNSAID && more >= nsims)
			return -EINVAL;
		cp_hang(!value ? CP_NONE : more == UNSAID ? CP_ALL : more);
		return 0;
	}
	if (value >= nsims)
		return -EINVAL;
	if (op == SUSPEND)
		return sim_suspend(&sims[value], more);
	if (op == GIVE_UP)
		return give_up(&sims[value], more == UNSAID ? GIVE_UP_QUEUE : more);
	/* as where the runtime's power management wakes the GPU up: in the caller's context */
	if (more == 1)
		sim_reset_work(&sims[value].reset);
	else
		schedule_work(&sims[value].reset);
	return 0;
}

static ssize_t control_write(struct file *file, const char __user *from, size_t length,
			     loff_t *pos)
{
	enum control op = (long)file->private_data;
	u32 value, more = UNSAID;
	char text[40] = "";
	u64 page = 0;
	int err;

	if (length >= sizeof(text) || copy_from_user(text, from, length))
		return -EINVAL;
	if (sscanf(text, "%u %u %llu", &value, &more, &page) < 1)
		return -EINVAL;
	if (op == MES)
		err = mes_set(value, more == UNSAID ? 0 : more);
	else if (op == HANG || op == GIVE_UP || op == RESET || op == SUSPEND)
		err = control_gpu(op, value, more);
	else
		err = control_pid(op, value, more, page);
	pr_info("%s %s: %d\n", names[op], strim(text), err);
	return err ? err : length;
}

static const struct file_operations control_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = control_write,
};

static ssize_t shape_write(struct file *file, const char __user *from, size_t length,
			   loff_t *pos)
{
	struct shape shape;
	char text[80] = "";
	int sched_policy, err;

	if (length >= sizeof(text) || copy_from_user(text, from, length))
		return -EINVAL;
	if (sscanf(text, "gfx=%d xccs=%d parts=%d gpus=%d sched_policy=%d", &shape.gfx,
		   &shape.xccs, &shape.parts, &shape.gpus, &sched_policy) != 5)
		return -EINVAL;
	err = sim_reshape(&shape, sched_policy);
	pr_info("shape %s: %d\n", strim(text), err);
	return err ? err : length;
}

static const struct file_operations shape_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = shape_write,
};

void control_init(void)
{
	struct dentry *dir = debugfs_create_dir("kfdsim", NULL);
	long op;

	for (op = 0; op < ARRAY_SIZE(names); op++)
		debugfs_create_file(names[op], 0200, dir, (void *)op, &control_fops);
	debugfs_create_file("shape", 0200, dir, NULL, &shape_fops);
	debugfs_create_file("mes_calls", 0400, dir, NULL, &mes_calls_fops);
}
