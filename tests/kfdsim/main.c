// SPDX-License-Identifier: GPL-2.0
/*
 * main.c - kfdsim: makes the KFD half of the real amdgpu.ko run with no GPU.
 *
 * Only a struct amdgpu_device is fabricated (device.c).  What KFD would do to hardware
 * goes through callbacks, replaced by stubs (stubs.c), through its kernel queue,
 * answered at once (cp.c), or through TTM, redirected to plain memory (redirect.c,
 * memory.c, doorbell.c).  Every 8 MiB ivshmem device of the VM becomes a GPU.
 */
#include <linux/module.h>
#include <linux/pci.h>
#include "kfdsim.h"
#include "symbols.h"

#define IVSHMEM_VENDOR	0x1af4
#define IVSHMEM_DEVICE	0x1110

bool sim_hws = true;
module_param_named(hws, sim_hws, bool, 0444);
MODULE_PARM_DESC(hws, "answer the scheduler's packets (0: no scheduler runs)");

struct shape sim_shape = { .gfx = 901, .xccs = 1, .parts = 1, .gpus = SIM_MAX_GPUS };
module_param_named(gfx, sim_shape.gfx, int, 0444);
MODULE_PARM_DESC(gfx, "901 = Vega10; 943 = MI300, 1100 = Navi31 with MES (a driver with nodes)");
module_param_named(xccs, sim_shape.xccs, int, 0444);
MODULE_PARM_DESC(xccs, "gfx=943: XCCs of a GPU, up to 8");
module_param_named(parts, sim_shape.parts, int, 0444);
MODULE_PARM_DESC(parts, "gfx=943: spatial partitions, that is KFD nodes, of a GPU");
module_param_named(gpus, sim_shape.gpus, int, 0444);
MODULE_PARM_DESC(gpus, "GPUs at most");

bool sim_each_vm;
module_param_named(each_vm, sim_each_vm, bool, 0644);
MODULE_PARM_DESC(each_vm, "a process has a VM only on GPUs it binds to (a driver with nodes)");

unsigned int sim_first_queue;
module_param_named(first_queue, sim_first_queue, uint, 0644);
MODULE_PARM_DESC(first_queue, "the id of a process's first queue");

struct sim sims[SIM_MAX_GPUS];
int nsims;

struct sim *sim_of(struct amdgpu_device *adev)
{
	int i;

	for (i = 0; i < nsims; i++)
		if (sims[i].adev == adev)
			return &sims[i];
	return NULL;
}

static bool fits(const struct shape *shape)
{
	if (shape->gpus < 1 || shape->gpus > SIM_MAX_GPUS)
		return false;
	if (shape->gfx == 901)
		return shape->xccs == 1 && shape->parts == 1;
	if (shape->gfx == 1100)
		return SIM_HAS_MES && shape->xccs == 1 && shape->parts == 1;
	return SIM_HAS_NODES && shape->gfx == 943 && shape->xccs >= 1 &&
	       shape->xccs <= SIM_MAX_PARTS && shape->parts >= 1 &&
	       shape->xccs % shape->parts == 0;
}

/*
 * Those of MES only for GPUs that have it: ftrace asks each redirect of the machine at every
 * call of a function that has two probes, which would be counted as the tracer's cost.
 */
static int hook_mes(void)
{
	if (sim_shape.gfx != 1100) {
		redirects_remove(mes_redirects);
		return 0;
	}
	if (mes_redirects[0].ops.flags & FTRACE_OPS_FL_ENABLED)
		return 0;
	return redirects_install(mes_redirects);
}

static int hook_driver(void)
{
	struct redirect *tables[] = {
		memory_redirects, buffer_redirects, doorbell_redirects, process_redirects, reset_redirects,
	};
	int i, err = symbols_resolve();

	for (i = 0; !err && i < ARRAY_SIZE(tables); i++)
		err = redirects_install(tables[i]);
	if (!err)
		err = hook_mes();
	if (!err)
		err = process_init();
	/* a redirect into a module that did not load would be the end of the kernel */
	for (i = 0; err && i < ARRAY_SIZE(tables); i++)
		redirects_remove(tables[i]);
	if (err)
		redirects_remove(mes_redirects);
	return err;
}

static void build_gpus(void)
{
	struct pci_dev *pdev = NULL;

	while (nsims < sim_shape.gpus &&
	       (pdev = pci_get_device(IVSHMEM_VENDOR, IVSHMEM_DEVICE, pdev))) {
		struct sim *s = &sims[nsims];
		int err;

		s->index = nsims;
		err = sim_build(s, pdev);
		if (err) {
			pr_err("GPU %d on %s: %d\n", s->index, pci_name(pdev), err);
			return;
		}
		pr_info("GPU %d on %s ready\n", s->index, pci_name(pdev));
	}
}

int sim_reshape(const struct shape *shape, int sched_policy)
{
	int *of_amdgpu = (int *)symbol_address("amdgpu:sched_policy");
	int i, err;

	if (!of_amdgpu || (sched_policy != 0 && sched_policy != 2) || !fits(shape))
		return -EINVAL;
	for (i = 0; i < nsims; i++)
		if (sims[i].suspended)
			return -EBUSY;
	err = real_processes_gone();
	if (err)
		return err;
	cp_hang(CP_NONE);
	while (nsims)
		sim_take_away(&sims[nsims - 1]);
	sim_shape = *shape;
	*of_amdgpu = sched_policy;
	err = hook_mes();
	if (err)
		return err;
	build_gpus();
	for (i = 0; i < nsims; i++)
		if (!sim_works(&sims[i]))
			return -EIO;
	return nsims == shape->gpus ? 0 : -ENODEV;
}

static int __init kfdsim_init(void)
{
	int err;

	if (!fits(&sim_shape)) {
		pr_err("gfx=%d xccs=%d parts=%d gpus=%d do not fit\n", sim_shape.gfx,
		       sim_shape.xccs, sim_shape.parts, sim_shape.gpus);
		return -EINVAL;
	}
	err = hook_driver();
	if (err)
		return err;
	/* KFD offers no way back from a half-fake device: the VM is thrown away instead */
	__module_get(THIS_MODULE);
	err = sim_hws ? cp_start() : 0;
	if (err)
		pr_err("no command processor: every queue operation will time out: %d\n", err);
	build_gpus();
	control_init();
	return 0;
}
module_init(kfdsim_init);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("GPUs made of memory under the real KFD");
MODULE_SOFTDEP("pre: amdgpu");
