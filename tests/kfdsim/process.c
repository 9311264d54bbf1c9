// SPDX-License-Identifier: GPL-2.0
/*
 * process.c - what a client's memory would have set up.
 *
 * ROCr hands its render node to KFD by ACQUIRE_VM, which ties a GPU VM to the process.
 * There is no render node here, so a kprobe sets up a VM for each process just before KFD
 * binds it to the device (kfd_bind_process_to_device, first thing in CREATE_QUEUE): on
 * every GPU, as a runtime that takes all that it sees, or with each_vm=1 on this one.
 *
 * CRIU_OP names a render node per GPU and works on the process's buffers: any open file
 * does for the node, and there are no buffers.
 */
#include <linux/file.h>
#include <linux/kprobes.h>
#include <linux/sched/mm.h>
#include "kfdsim.h"
#include "symbols.h"

/* replaces amdkfd_process_info: passed only to the redirects below */
struct sim_process_info {
	struct mm_struct *mm;
	struct pid *pid;
	/* the process names its render nodes itself, one GPU after the other */
	bool acquires;
	/* between CRIU_OP's RESTORE and RESUME */
	bool notifications_blocked;
	struct work_struct resume;
};

static void acquire_vm(struct sim *s, struct kfd_process_device *pdd)
{
	struct sim_vm *vm = &s->vms[s->next_vm++ % SIM_VMS];

	sim_assign_pasid(pdd);
	/* read by the SMI events of a VM fault and, since 7.2, of a process's end */
	sim_set_task_info(&vm->fpriv->vm, &vm->info, pdd->process->lead_thread);
	sim_map_pasid(s->adev, sim_pasid(pdd), vm->fpriv);
	*sim_pdd_vm(pdd) = SIM_HAS_DRM_PRIV ? (void *)&vm->file : &vm->fpriv->vm;
}

/* kfd_bind_process_to_device(node, process); its caller holds the process's mutex */
static int before_bind(struct kprobe *kp, struct pt_regs *regs)
{
	struct kfd_process *p = (void *)regs->si;
	struct sim_process_info *info = p->kgd_process_info;
	/* without nodes KFD restores through a null pointer where a process has no VM */
	bool each = SIM_HAS_NODES && READ_ONCE(sim_each_vm);
	struct kfd_process_device *pdd;
	int i;

	if (info && info->acquires)
		return 0;
	for_each_pdd(pdd, p, i) {
		struct sim *s = sim_of(sim_adev(pdd->dev));

		if (each && (void *)pdd->dev != (void *)regs->di)
			continue;
		if (s && !*sim_pdd_vm(pdd))
			acquire_vm(s, pdd);
	}
	return 0;
}

static struct kprobe bind_probe = {
	.symbol_name = "kfd_bind_process_to_device",
	.pre_handler = before_bind,
};

/* pqm_init(pqm, process): what its return has to know */
static int before_pqm_init(struct kretprobe_instance *call, struct pt_regs *regs)
{
	*(struct process_queue_manager **)call->data = (void *)regs->di;
	return 0;
}

/* the driver takes the lowest id that is free (find_available_queue_slot) */
static int after_pqm_init(struct kretprobe_instance *call, struct pt_regs *regs)
{
	struct process_queue_manager *pqm = *(struct process_queue_manager **)call->data;

	if (!regs_return_value(regs))
		bitmap_set(pqm->queue_slot_bitmap, 0,
			   min(READ_ONCE(sim_first_queue), KFD_MAX_NUM_OF_QUEUES_PER_PROCESS / 2U));
	return 0;
}

static struct kretprobe pqm_probe = {
	.kp.symbol_name = "pqm_init",
	.entry_handler = before_pqm_init,
	.handler = after_pqm_init,
	.data_size = sizeof(struct process_queue_manager *),
	.maxactive = 64,
};

int process_init(void)
{
	int err = register_kprobe(&bind_probe);

	if (err)
		return err;
	err = register_kretprobe(&pqm_probe);
	if (err)
		unregister_kprobe(&bind_probe);
	return err;
}

int sim_vms_init(struct sim *s)
{
	struct amdgpu_bo *root = kvzalloc(sizeof(*root), GFP_KERNEL);
	int i;

	if (!root)
		return -ENOMEM;
	/* CREATE_QUEUE reserves it while it looks up the buffers of the queue */
	root->tbo.bdev = &s->adev->mman.bdev;
	dma_resv_init(&root->tbo.base._resv);
	root->tbo.base.resv = &root->tbo.base._resv;
	s->page_directory = root;

	for (i = 0; i < SIM_VMS; i++) {
		struct amdgpu_fpriv *fpriv = kvzalloc(sizeof(*fpriv), GFP_KERNEL);

		if (!fpriv)
			return -ENOMEM;
		*sim_root(&fpriv->vm) = root;
		/* part of the runlist: never read back, but one per process */
		fpriv->vm.pd_phys_addr = 0x100000000ULL * (i + 1);
		s->vms[i].fpriv = fpriv;
		s->vms[i].file.driver_priv = fpriv;
	}
	return 0;
}

/* replaces the moving back of a process's buffers after an eviction */
static int restore_process_bos(void *info, struct dma_fence __rcu **ef)
{
	struct sim_process_info *process_info = info;
	struct amdgpu_amdkfd_fence *fence;

	/* older drivers call this at a resume, also for one that was never made evictable */
	if (!process_info)
		return 0;
	fence = real_fence_create(process_info->mm);
	if (!fence)
		return -ENOMEM;
	/* the next eviction needs an unsignaled one */
	rcu_assign_pointer(*ef, &fence->base);
	return 0;
}

/* the real one moves user memory back before this (restore_userptr_work) */
static void resume_work(struct work_struct *work)
{
	struct sim_process_info *info = container_of(work, struct sim_process_info, resume);
	struct task_struct *task = get_pid_task(info->pid, PIDTYPE_PID);
	struct mm_struct *mm = task ? get_task_mm(task) : NULL;

	if (mm) {
		real.resume_mm(mm);
		mmput(mm);
	}
	if (task)
		put_task_struct(task);
}

#if SIM_HAS_CRIU
static void block_mmu_notifications(void *info)
{
	struct sim_process_info *process_info = info;

	WRITE_ONCE(process_info->notifications_blocked, true);
}

static int criu_resume(void *info)
{
	struct sim_process_info *process_info = info;

	/* a process that nothing was restored to may have no VM either */
	if (!process_info || !READ_ONCE(process_info->notifications_blocked))
		return -EINVAL;
	WRITE_ONCE(process_info->notifications_blocked, false);
	schedule_work(&process_info->resume);
	return 0;
}
#endif

/*
 * kfd_process_device_init_vm: of ACQUIRE_VM and CRIU_OP; takes over the reference to the file.
 * Of old drivers' CREATE_QUEUE, too, without a file: before_bind() has set up the VM.
 */
static int init_vm(struct kfd_process_device *pdd, struct file *render)
{
	struct kfd_process *p = pdd->process;
	struct sim *s = sim_of(sim_adev(pdd->dev));
	struct sim_process_info *info;
	int err;

	if (*sim_pdd_vm(pdd))
		return render ? -EBUSY : 0;
	if (!s || !render)
		return -EINVAL;
	err = process_make_evictable(p, p->mm);
	if (err)
		return err;
	info = p->kgd_process_info;
	info->acquires = true;
	acquire_vm(s, pdd);
	/* pdd->drm_file stays NULL: its release would search for a VM of TTM's */
	fput(render);
	return 0;
}

int process_make_evictable(struct kfd_process *p, struct mm_struct *mm)
{
	struct sim_process_info *info;

	if (p->kgd_process_info)
		return 0;
	info = kzalloc(sizeof(*info), GFP_KERNEL);
	if (!info)
		return -ENOMEM;
	info->mm = mm;
	info->pid = get_task_pid(p->lead_thread, PIDTYPE_PID);
	INIT_WORK(&info->resume, resume_work);
	p->kgd_process_info = info;
	return restore_process_bos(info, (void *)&p->ef);
}

struct redirect process_redirects[] = {
	REDIRECT(amdgpu_amdkfd_gpuvm_restore_process_bos, restore_process_bos),
	REDIRECT(kfd_process_device_init_vm, init_vm),
#if SIM_HAS_CRIU
	REDIRECT(amdgpu_amdkfd_block_mmu_notifications, block_mmu_notifications),
	REDIRECT(amdgpu_amdkfd_criu_resume, criu_resume),
#endif
	/* called when memory is mapped or unmapped, and without HWS when a process gets a VMID */
#if SIM_HAS_FLUSH_OF_VM
	{ "amdgpu_vm_flush_compute_tlb", sim_nothing },
#else
	{ "kfd_flush_tlb", sim_nothing },
#endif
#if !SIM_HAS_DRM_PRIV
	/* KFD takes a VM without a file for one that it made itself */
	{ "amdgpu_amdkfd_gpuvm_destroy_process_vm", sim_nothing },
#endif
	{ }
};
