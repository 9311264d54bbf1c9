// SPDX-License-Identifier: GPL-2.0
/*
 * device.c - fabricates one GPU: a struct amdgpu_device with just what KFD reads.
 *
 * Everything behind it is real: kgd2kfd_probe() and kgd2kfd_device_init() make the KFD
 * device, its queue and MQD managers, its topology node and its kernel queue.  Fields
 * not named here are 0; each one that is set has its reader or reason beside it.
 */
#include "kfdsim.h"
#include "symbols.h"
#include "amd_pcie.h"

/* Where SDMA doorbells lie in a process's frame: not for compute queues. */
#define SDMA_DOORBELLS	0xe0

/* Of the first GPU; the next ones' are its multiples, partitions count up from their GPU's. */
#define SIM_UNIQUE_ID	0x1000

/* A BAR of plain memory takes the doorbells: the client may mmap and write them. */
static int find_doorbell_bar(struct pci_dev *pdev)
{
	int bar;

	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++)
		if (pci_resource_flags(pdev, bar) & IORESOURCE_MEM &&
		    pci_resource_len(pdev, bar) >= SZ_1M)
			return bar;
	return -ENODEV;
}

/* who the device is: KFD picks MQD manager, packet format and topology data by it */
static void fake_identity(struct sim *s)
{
	struct amdgpu_device *adev = s->adev;

	adev->pdev = s->pdev;
	adev->dev = &s->pdev->dev;
	adev->ddev.dev = &s->pdev->dev;
	s->render.index = 128 + s->index;
	adev->ddev.render = &s->render;		/* topology: drm_render_minor */
	sim_set_asic(adev, sim_shape.gfx);
	adev->unique_id = SIM_UNIQUE_ID * (s->index + 1);
	adev->rev_id = 1;			/* a 9.4.3 of this revision is gfx942 */
	sim_set_ip_versions(adev, sim_shape.gfx);
}

/* shape of the compute part: topology properties, CU masks, save area sizes */
static void fake_compute(struct sim *s)
{
	static const u32 all[4] = { 0xffff, 0xffff, 0xffff, 0xffff };
	static const u32 few[4] = { 0x0441, 0x8001, 0x0006, 0x0010 };	/* the others are fused off */
	struct amdgpu_gfx *gfx = &s->adev->gfx;
	bool mi300 = sim_shape.gfx == 943;

	gfx->config.max_shader_engines = 4;
	gfx->config.max_sh_per_se = 1;
	gfx->config.max_cu_per_sh = 16;
	gfx->config.max_tile_pipes = 4;
	gfx->cu_info.number = mi300 ? 8 * sim_shape.xccs : 64;
	gfx->cu_info.simd_per_cu = 4;
	gfx->cu_info.wave_front_size = 64;
	gfx->cu_info.max_waves_per_simd = 10;
	gfx->cu_info.max_scratch_slots_per_cu = 32;
	gfx->cu_info.lds_size = 64;
	sim_set_cu_bitmap(&gfx->cu_info, mi300 ? few : all);
	sim_set_cu_cache(&gfx->config);
	/* amdgpu_queue_mask_bit_to_set_resource_bit() divides by these */
	gfx->mec.num_mec = 2;
	gfx->mec.num_pipe_per_mec = 4;
	gfx->mec.num_queue_per_pipe = 8;
	/* new enough a firmware, and a pool, for ALLOC_QUEUE_GWS */
	gfx->mec2_fw_version = 0x81b3;
	s->adev->gds.gws_size = 64;
	gfx->funcs = &s->gfx_funcs;		/* GET_CLOCK_COUNTERS reads it */
	s->adev->sdma.num_instances = 2 * sim_shape.parts;	/* shared out among the nodes */
}

static int fake_memory_and_reset(struct sim *s)
{
	struct amdgpu_device *adev = s->adev;
	int err;

	adev->gmc.real_vram_size = 16ULL << 30;	/* topology: memory banks */
	adev->gmc.visible_vram_size = 256 << 20;
	adev->gmc.vram_width = 2048;
	adev->gmc.noretry = 1;			/* XNACK off */
	/* bandwidth of the topology's io links */
	adev->pm.pcie_gen_mask = CAIL_PCIE_LINK_SPEED_SUPPORT_GEN3;
	adev->pm.pcie_mlw_mask = CAIL_PCIE_LINK_WIDTH_SUPPORT_X16;
	adev->vm_manager.first_kfd_vmid = 8;
#if SIM_HAS_QUEUE_BUFFERS
	/* unreserving the page directory moves it in TTM's LRU */
	spin_lock_init(&adev->mman.bdev.lru_lock);
#endif
	INIT_WORK(&s->reset, sim_reset_work);
	/* its semaphore is taken around MES calls, its workqueue flushed at a process's end */
	err = real_reset_domain(adev);
	return err ? err : sim_pasids_init(adev);
}

/* what amdgpu leaves to KFD of the resources of the GPU */
static void fake_resources(struct sim *s)
{
	struct kgd2kfd_shared_resources *res = &s->res;
	u32 *sdma = s->adev->doorbell_index.sdma_engine;
	int i;

	BUILD_BUG_ON(sizeof(*res) != 88);	/* review this if the layout changes */
	res->compute_vmid_bitmap = 0xff00;
	res->num_pipe_per_mec = 4;
	res->num_queue_per_pipe = 8;
	bitmap_fill(res->cp_queue_bitmap, res->num_pipe_per_mec * res->num_queue_per_pipe);
	for (i = 0; i < ARRAY_SIZE(s->adev->doorbell_index.sdma_engine); i++)
		sdma[i] = SDMA_DOORBELLS + 2 * i;
	res->sdma_doorbell_idx = sdma;
	res->non_cp_doorbells_start = SDMA_DOORBELLS;
	res->non_cp_doorbells_end = 0xff;
	res->doorbell_physical_address = pci_resource_start(s->pdev, s->doorbell_bar);
	res->doorbell_aperture_size = min_t(size_t, SIM_DOORBELL_BAR,
					    pci_resource_len(s->pdev, s->doorbell_bar));
	res->gpuvm_size = 1ULL << 47;
	res->drm_render_minor = s->render.index;
}

static int start_kfd(struct sim *s)
{
	int node;

	s->kfd = real_probe(s->adev);
	if (!s->kfd)
		return -ENODEV;
	s->adev->kfd.dev = s->kfd;
	sim_fill_stubs(&s->stubs, s->kfd->kfd2kgd);
	s->kfd->kfd2kgd = &s->stubs;
	/* from here on redirected functions find this device by sim_of() */
	nsims = s->index + 1;
	if (!real_device_init(s->kfd, s->adev, &s->res))
		return -EIO;
	/* never 0 -> 1: the first process would switch the power profile of the SMU */
	atomic_set(&s->kfd->compute_profile, 1);
	for (node = 0; !sim_hws && sim_dqm(s->kfd, node); node++)
		sim_dqm(s->kfd, node)->sched_running = false;
	return 0;
}

/*
 * As hot unplug. The fabricated device itself stays in memory: a late access
 * must not crash the kernel.
 */
void sim_take_away(struct sim *s)
{
	struct device_queue_manager *dqm;
	int node;

	for (node = 0; sim_works(s) && (dqm = sim_dqm(s->kfd, node)); node++) {
		sim_flush_resets(dqm);
		/* kgd2kfd_device_exit() of 6.1 leaves it to the suspend before it */
		dqm->ops.stop(dqm);
	}
	flush_work(&s->reset);
	if (s->kfd)
		real_device_exit(s->kfd);
	pci_disable_device(s->pdev);
	nsims = s->index;
	memset(s, 0, sizeof(*s));
}

int sim_build(struct sim *s, struct pci_dev *pdev)
{
	int err = pci_enable_device(pdev);

	if (err)
		return err;
	s->pdev = pdev;
	s->doorbell_bar = find_doorbell_bar(pdev);
	if (s->doorbell_bar < 0)
		return s->doorbell_bar;
	s->adev = kvzalloc(sizeof(*s->adev), GFP_KERNEL);
	if (!s->adev)
		return -ENOMEM;

	fake_identity(s);
	fake_compute(s);
	fake_resources(s);
	err = fake_memory_and_reset(s);
	if (!err)
		err = sim_partition(s);
	if (!err)
		err = sim_vms_init(s);
	if (!err && sim_is_mes())
		err = mes_start(s);
	return err ? err : start_kfd(s);
}
