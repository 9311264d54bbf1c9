// SPDX-License-Identifier: GPL-2.0
/*
 * symbols.c - finds the driver's unexported functions.
 *
 * kallsyms_lookup_name() itself is not exported to modules; a kprobe on it, set and
 * removed at once, yields its address.
 */
#include <linux/kprobes.h>
#include <linux/mmu_notifier.h>
#include "kfdsim.h"
#include "symbols.h"

struct real_functions real;

static unsigned long (*lookup_name)(const char *name);

static const struct {
	const char *name;
	void *slot;
} wanted[] = {
	{ "kgd2kfd_probe", &real.probe },
	{ "kgd2kfd_device_init", &real.device_init },
	{ "kgd2kfd_device_exit", &real.device_exit },
	{ "kgd2kfd_pre_reset", &real.pre_reset },
	{ "kgd2kfd_post_reset", &real.post_reset },
	{ "kgd2kfd_suspend", &real.suspend },
	{ "kgd2kfd_resume", &real.resume },
	{ "kgd2kfd_interrupt", &real.interrupt },
	{ "kgd2kfd_quiesce_mm", &real.quiesce_mm },
	{ "kgd2kfd_resume_mm", &real.resume_mm },
	{ "kgd2kfd_schedule_evict_and_restore_process", &real.schedule_evict },
	{ "kfd_lookup_process_by_mm", &real.lookup_process_by_mm },
	{ "kfd_unref_process", &real.unref_process },
	{ "amdgpu_amdkfd_fence_create", &real.fence_create },
#if SIM_HAS_RESET_DOMAIN
	{ "amdgpu_reset_create_reset_domain", &real.create_reset_domain },
#endif
};

unsigned long symbol_address(const char *name)
{
	return lookup_name(name);
}

int symbols_resolve(void)
{
	struct kprobe finder = { .symbol_name = "kallsyms_lookup_name" };
	int i, err = register_kprobe(&finder);

	if (err) {
		pr_err("kprobe on kallsyms_lookup_name: %d\n", err);
		return err;
	}
	lookup_name = (void *)finder.addr;
	unregister_kprobe(&finder);

	for (i = 0; i < ARRAY_SIZE(wanted); i++) {
		unsigned long address = lookup_name(wanted[i].name);

		if (!address) {
			pr_err("no symbol %s: is amdgpu loaded?\n", wanted[i].name);
			return -ENOENT;
		}
		*(unsigned long *)wanted[i].slot = address;
	}
	return 0;
}

struct kfd_dev *real_probe(struct amdgpu_device *adev)
{
#if SIM_HAS_PROBE_BY_TYPE
	return real.probe(adev, adev->pdev, adev->asic_type, false);
#else
	return real.probe(adev, false);
#endif
}

bool real_device_init(struct kfd_dev *kfd, struct amdgpu_device *adev,
		      const struct kgd2kfd_shared_resources *res)
{
#if SIM_HAS_INIT_WITH_DRM
	return real.device_init(kfd, &adev->ddev, res);
#else
	return real.device_init(kfd, res);
#endif
}

void real_device_exit(struct kfd_dev *kfd)
{
	atomic_t *locked = (void *)symbol_address("kfd_locked");
	int before = locked ? atomic_read(locked) : 0;

	real.device_exit(kfd);
	/* 5.10 suspends the device in it, and nothing would ever unlock KFD for the other ones */
	if (locked && atomic_read(locked) != before)
		atomic_set(locked, before);
}

int real_processes_gone(void)
{
	struct hlist_head *table = (void *)symbol_address("kfd_processes_table");
	struct workqueue_struct **ends = (void *)symbol_address("kfd_process_wq");
	int i;

	if (!table || !ends)
		return -ENOENT;
	for (i = 0; i < 1 << KFD_PROCESS_TABLE_SIZE; i++)
		if (!hlist_empty(&table[i]))
			return -EBUSY;
	/* out of the table it still has its devices, until a work item of its last reference */
	mmu_notifier_synchronize();
	flush_workqueue(*ends);
	return 0;
}

int real_reset_domain(struct amdgpu_device *adev)
{
#if SIM_HAS_RESET_DOMAIN
	adev->reset_domain = real.create_reset_domain(SINGLE_DEVICE, "kfdsim-reset");
	return adev->reset_domain ? 0 : -ENOMEM;
#else
	init_rwsem(&adev->reset_sem);
	return 0;
#endif
}

int real_pre_reset(struct kfd_dev *kfd, struct amdgpu_device *adev)
{
#if SIM_HAS_RESET_CONTEXT
	struct amdgpu_reset_context context = {
		.method = AMD_RESET_METHOD_NONE,
		.reset_req_dev = adev,
	};

	return real.pre_reset(kfd, &context);
#else
	return real.pre_reset(kfd);
#endif
}

/* the flag was run_pm before it became suspend_proc and resume_proc */
void real_suspend(struct kfd_dev *kfd)
{
#if SIM_HAS_SUSPEND_FORCE
	real.suspend(kfd, SIM_HAS_SUSPEND_PROC, true);
#else
	real.suspend(kfd, SIM_HAS_SUSPEND_PROC);
#endif
}

int real_resume(struct kfd_dev *kfd)
{
#if SIM_HAS_RESUME_SYNC
	return real.resume(kfd, SIM_HAS_SUSPEND_PROC, false);
#else
	return real.resume(kfd, SIM_HAS_SUSPEND_PROC);
#endif
}

int real_quiesce(struct mm_struct *mm, u32 trigger)
{
#if SIM_HAS_EVICT_TRIGGER
	return real.quiesce_mm(mm, trigger);
#else
	return real.quiesce_mm(mm);
#endif
}

/* an eviction fence of the mm's primary process */
struct amdgpu_amdkfd_fence *real_fence_create(struct mm_struct *mm)
{
	u64 context = dma_fence_context_alloc(1);

	return real.fence_create(context, mm
#if SIM_HAS_FENCE_OF_SVM
				 , NULL
#endif
#if SIM_HAS_CONTEXTS
				 , (u16)-1
#endif
				 );
}

int real_schedule_evict(struct kfd_process *p, struct mm_struct *mm)
{
	struct dma_fence *fence = (struct dma_fence *)p->ef;

#if SIM_HAS_CONTEXTS
	return real.schedule_evict(mm, p->context_id, fence);
#else
	return real.schedule_evict(mm, fence);
#endif
}
