/* SPDX-License-Identifier: GPL-2.0 */
/*
 * kfdsim.h - what the parts of the module share: the fake GPU and each part's entry.
 */
#ifndef KFDSIM_H
#define KFDSIM_H

#include <linux/ftrace.h>
#include <linux/pci.h>
#include "compat.h"

/* after the driver's headers, which set their own */
#undef pr_fmt
#define pr_fmt(fmt) "kfdsim: " fmt

#define SIM_MAX_GPUS	4
/* processes of one GPU that can be alive together with a VM of their own */
#define SIM_VMS		64
#define SIM_MAX_PARTS	8
/* of the BAR, no more than this is taken for doorbells */
#define SIM_DOORBELL_BAR	SZ_8M

/* what ACQUIRE_VM would have left in a pdd (process.c) */
struct sim_vm {
	struct drm_file file;
	struct amdgpu_fpriv *fpriv;
	struct amdgpu_task_info info;
};

struct sim {
	int index;
	struct pci_dev *pdev;
	int doorbell_bar;
	struct amdgpu_device *adev;
	struct kfd_dev *kfd;
	struct kfd2kgd_calls stubs;
	struct kgd2kfd_shared_resources res;
	struct drm_minor render;
	struct amdgpu_gfx_funcs gfx_funcs;	/* all NULL: every caller checks */
	struct work_struct reset;
	bool suspended;
	int giving_up;				/* an enum given_up, by the next preemption */
	int given_up;				/* ... by the last one */
	u64 given_up_address;			/* of the ring of that queue, if it can be reset */
	struct amdgpu_fpriv *given_up_vm;	/* of its process */

	struct amdgpu_bo *page_directory;	/* one for all VMs: only looked at */
	struct sim_vm vms[SIM_VMS];
	unsigned int next_vm;

	struct drm_device part_ddev[SIM_MAX_PARTS];
	struct drm_minor part_render[SIM_MAX_PARTS];
};

/* main.c */
extern struct sim sims[SIM_MAX_GPUS];
extern int nsims;
extern bool sim_hws, sim_each_vm;
extern unsigned int sim_first_queue;
/* What the GPUs are, as the module parameters name it. */
extern struct shape {
	int gfx, xccs, parts, gpus;
} sim_shape;
/* Takes all GPUs away and makes others, while no process has KFD open; sched_policy is amdgpu's. */
int sim_reshape(const struct shape *shape, int sched_policy);
/* MES schedules their queues: there is no runlist, and no packet for cp.c. */
static inline bool sim_is_mes(void)
{
	return sim_shape.gfx == 1100;
}
/* KFD made a device of it: nothing of one that it gave up halfway may be read. */
static inline bool sim_works(struct sim *s)
{
	return s->kfd && s->kfd->init_complete;
}
/* The fake GPU behind a device of the driver, NULL for any other. */
struct sim *sim_of(struct amdgpu_device *adev);

/* redirect.c: a driver function replaced by one of ours; a table ends with an empty row */
struct redirect {
	const char *name;
	void *to;
	struct ftrace_ops ops;
};

/* A row of it. The compiler compares the type of ours with what the driver's headers declare. */
#define REDIRECT(real, ours) \
	{ #real, (void *)(ours) + BUILD_BUG_ON_ZERO(!__same_type(real, ours)) }

int redirects_install(struct redirect *table);
void redirects_remove(struct redirect *table);
extern struct redirect memory_redirects[], doorbell_redirects[], process_redirects[],
	reset_redirects[], mes_redirects[], buffer_redirects[];

/* memory.c: the next stretch of fake GPU address space, and memory behind it */
u64 sim_gpu_address(size_t size);
int sim_make_gtt(size_t size, void **mem, uint64_t *gpu, void **cpu);

/* device.c */
int sim_build(struct sim *s, struct pci_dev *pdev);
void sim_take_away(struct sim *s);

/* partition.c: XCCs and KFD nodes */
int sim_partition(struct sim *s);

/* stubs.c */
u64 sim_nothing(void);
void sim_fill_stubs(struct kfd2kgd_calls *calls, const struct kfd2kgd_calls *real);

/* cp.c */
#define CP_NONE	(-1)
#define CP_ALL	(-2)
int cp_start(void);
/* From now on the processor of one GPU, of all or of none hangs. */
void cp_hang(int which);
/* A reset ends the hang of its GPU, and one of all. */
void cp_after_reset(int gpu);

/* give_up.c: what a preemption cannot take off; a queue that cannot be reset either, one that can, one of SDMA */
enum given_up { GIVE_UP_NOTHING, GIVE_UP_QUEUE, GIVE_UP_RESETTABLE, GIVE_UP_SDMA };
/* In the next preemption of the GPU. */
int give_up(struct sim *s, u32 what);
/* A preemption is done, and this has been given up. */
void give_up_now(struct sim *s, struct device_queue_manager *dqm);
void give_up_after_reset(struct sim *s);
/* Registers that show such a queue, in the place of stubs. */
void give_up_fill_stubs(struct kfd2kgd_calls *calls);

/* mes.c */
extern const struct file_operations mes_calls_fops;
int mes_start(struct sim *s);
/* From now on each answer takes this long, and is this errno; 0 is success. */
int mes_set(u32 ms, u32 error);
/* A reset ends its failures. */
void mes_after_reset(void);

/* process.c */
int process_init(void);
int sim_vms_init(struct sim *s);
/* Creates a process' first eviction fence, as its first mapped memory would. */
int process_make_evictable(struct kfd_process *p, struct mm_struct *mm);

/* pasid.c */
int sim_pasids_init(struct amdgpu_device *adev);
/* From now on this PASID is the VM's. */
void sim_map_pasid(struct amdgpu_device *adev, u32 pasid, struct amdgpu_fpriv *fpriv);

/* reset.c */
void sim_reset_work(struct work_struct *work);
/* Suspends or resumes a GPU, in the caller's context. */
int sim_suspend(struct sim *s, bool on);

/* control.c */
void control_init(void);

#endif
