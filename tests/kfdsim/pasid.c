// SPDX-License-Identifier: GPL-2.0
/*
 * pasid.c - the VM of a PASID: how the driver finds the process to name in a VM fault.
 *
 * Called from a kprobe: nothing here sleeps. What an earlier process of the same PASID left
 * is overwritten.
 */
#include "kfdsim.h"
#include "symbols.h"

/* a driver with both chooses by the kernel: those here have xarrays */
#if SIM_HAS_PASID_IDR && !SIM_HAS_PASID_XARRAY
int sim_pasids_init(struct amdgpu_device *adev)
{
	idr_init(&adev->vm_manager.pasid_idr);
	spin_lock_init(&adev->vm_manager.pasid_lock);
	return 0;
}

void sim_map_pasid(struct amdgpu_device *adev, u32 pasid, struct amdgpu_fpriv *fpriv)
{
	struct idr *vms = &adev->vm_manager.pasid_idr;
	unsigned long flags;

	spin_lock_irqsave(&adev->vm_manager.pasid_lock, flags);
	idr_remove(vms, pasid);
	idr_alloc(vms, &fpriv->vm, pasid, pasid + 1, GFP_ATOMIC);
	spin_unlock_irqrestore(&adev->vm_manager.pasid_lock, flags);
}
#else
static void store(struct xarray *owners, u32 pasid, void *owner)
{
	unsigned long flags;

	xa_lock_irqsave(owners, flags);
	__xa_store(owners, pasid, owner, GFP_ATOMIC);
	xa_unlock_irqrestore(owners, flags);
}

#if SIM_HAS_PASID_XARRAY
int sim_pasids_init(struct amdgpu_device *adev)
{
	xa_init_flags(&adev->vm_manager.pasids, XA_FLAGS_LOCK_IRQ);
	return 0;
}

void sim_map_pasid(struct amdgpu_device *adev, u32 pasid, struct amdgpu_fpriv *fpriv)
{
	store(&adev->vm_manager.pasids, pasid, &fpriv->vm);
}
#else
/* one for all GPUs, of the files that the PASIDs were allocated for; static in amdgpu_ids.c */
static struct xarray *pasids;

int sim_pasids_init(struct amdgpu_device *adev)
{
	pasids = (void *)symbol_address("amdgpu_pasid_xa");
	return pasids ? 0 : -ENOENT;
}

void sim_map_pasid(struct amdgpu_device *adev, u32 pasid, struct amdgpu_fpriv *fpriv)
{
	store(pasids, pasid, fpriv);
}
#endif
#endif
