// SPDX-License-Identifier: GPL-2.0
/*
 * partition.c - XCCs and spatial partitions (CPX, DPX), where the driver has nodes.
 *
 * KFD makes one node of each partition; a partition has a share of the XCCs and of the
 * SDMA engines, and a render node of its own.
 */
#include "kfdsim.h"

#if SIM_HAS_NODES
/* decides whether GC 9.4.3 is an APU: a module of its own, it is not */
static enum amdgpu_pkg_type get_pkg_type(struct amdgpu_device *adev)
{
	return AMDGPU_PKG_TYPE_OAM;
}

static const struct amdgpu_smuio_funcs smuio_funcs = {
	.get_pkg_type = get_pkg_type,
};

static void partition_init(struct sim *s, struct amdgpu_xcp_mgr *mgr, int i, int xccs)
{
	struct amdgpu_xcp *xcp = &mgr->xcp[i];

	/* above the render nodes of the whole GPUs */
	s->part_render[i].index = 160 + SIM_MAX_PARTS * s->index + i;
	s->part_ddev[i].dev = s->adev->dev;
	s->part_ddev[i].render = &s->part_render[i];
	xcp->id = i;
	xcp->valid = true;
	xcp->ddev = &s->part_ddev[i];
	xcp->ip[AMDGPU_XCP_GFX].valid = true;
	xcp->ip[AMDGPU_XCP_GFX].inst_mask = ((1 << xccs) - 1) << (i * xccs);
#if SIM_HAS_XCP_UNIQUE_ID
	/* the topology shows the partition's own id unless the GPU is whole */
	xcp->xcp_mgr = mgr;
	xcp->unique_id = s->adev->unique_id + 1 + i;
#endif
}

int sim_partition(struct sim *s)
{
	struct amdgpu_device *adev = s->adev;
	int i, xccs = sim_shape.xccs / sim_shape.parts;
	struct amdgpu_xcp_mgr *mgr;

	adev->smuio.funcs = &smuio_funcs;
	adev->gfx.xcc_mask = (1 << sim_shape.xccs) - 1;
	adev->gfx.num_xcc_per_xcp = xccs;
	/* doorbell frames are counted from here (kfd_get_process_doorbells) */
	adev->doorbell.base = pci_resource_start(s->pdev, s->doorbell_bar);
	if (sim_shape.parts == 1)
		return 0;

	mgr = kzalloc(sizeof(*mgr), GFP_KERNEL);
	if (!mgr)
		return -ENOMEM;
	mgr->adev = adev;
	mutex_init(&mgr->xcp_lock);
	mgr->num_xcps = sim_shape.parts;
	mgr->mode = xccs == 1 ? AMDGPU_CPX_PARTITION_MODE : AMDGPU_DPX_PARTITION_MODE;
	for (i = 0; i < sim_shape.parts; i++)
		partition_init(s, mgr, i, xccs);
	adev->xcp_mgr = mgr;
	return 0;
}
#else
int sim_partition(struct sim *s)
{
	return 0;
}
#endif
