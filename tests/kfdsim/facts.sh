#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# facts.sh DRIVER KERNEL - how this driver differs from others, as compiler flags.
#
# Read from the headers the module is built with. The kernel's version does not tell: AMD's own
# driver brings later facts to older kernels, and each came at a time of its own.
# A fact that is read wrongly does not compile: kfdsim takes the types of the driver's functions
# from the same headers (symbols.h, REDIRECT in kfdsim.h).
set -u
driver=$1
kernel=$2

# Prints a header, or one structure of it, as one line without the author's spacing.
flat() { # FILE [STRUCTURE]
	if [ $# -gt 1 ]; then
		sed -n "/^struct $2 {/,/^}/p" "$1"
	else
		cat "$1"
	fi 2>/dev/null | tr -s '[:space:]' ' '
}

fact() { # NAME REGEX FILE [STRUCTURE]
	name=$1
	regex=$2
	shift 2
	flat "$@" | grep -qE "$regex" && has=1 || has=0
	printf -- '-DSIM_HAS_%s=%s ' "$name" "$has"
}

interface=$driver/include/kgd_kfd_interface.h
amdkfd=$driver/amdgpu/amdgpu_amdkfd.h
amdgpu=$driver/amdgpu/amdgpu.h
vm=$driver/amdgpu/amdgpu_vm.h
priv=$driver/amdkfd/kfd_priv.h
dqm=$driver/amdkfd/kfd_device_queue_manager.h

# A device is a set of nodes (one per spatial partition), whose register callbacks take an XCC.
fact NODES 'struct kfd_node \{' "$priv"
# The size of a CU's cache, which 9.4.3 has from IP discovery.
fact CU_CACHE ' gc_tcp_size_per_cu;' "$driver/amdgpu/amdgpu_gfx.h" amdgpu_gfx_config
# One mm may own several kfd_process; each has a number.
fact CONTEXTS ' context_id;' "$priv" kfd_process
# PASIDs belong to a process's part on a device, not to the process.
fact PDD_PASID ' pasid;' "$priv" kfd_process_device

# An amdgpu_device is passed to KFD as a struct kgd_dev, which is nowhere defined.
fact KGD 'struct kgd_dev;' "$interface"
fact PROBE_BY_TYPE 'kgd2kfd_probe\([^)]*asic_type' "$amdkfd"
fact INIT_WITH_DRM 'kgd2kfd_device_init\([^)]*drm_device' "$amdkfd"
fact RESET_CONTEXT 'kgd2kfd_pre_reset\([^)]*reset_context' "$amdkfd"
fact RESET_DOMAIN ' reset_domain;| \*reset_domain;' "$amdgpu"
# The flag of suspend and resume; before, it said whether the runtime's power management asks.
fact SUSPEND_PROC 'kgd2kfd_suspend\([^)]*suspend_proc' "$amdkfd"
# AMD's own driver: whether to suspend in spite of an error, and to wait for the restore.
fact SUSPEND_FORCE 'kgd2kfd_suspend\([^)]*force' "$amdkfd"
fact RESUME_SYNC 'kgd2kfd_resume\([^)]*sync' "$amdkfd"
fact EVICT_TRIGGER 'kgd2kfd_quiesce_mm\([^)]*trigger' "$amdkfd"
# A queue that the firmware gave up can be reset alone, and later an engine of SDMA.
fact HQD_RESET '\(\*hqd_reset\)' "$interface" kfd2kgd_calls
fact SDMA_DOORBELL '\(\*hqd_sdma_get_doorbell\)' "$interface" kfd2kgd_calls
fact FENCE_OF_SVM 'amdgpu_amdkfd_fence_create\([^)]*svm_bo' "$amdkfd"

fact KERNEL_MEM 'amdgpu_amdkfd_alloc_kernel_mem\(' "$amdkfd"
fact GTT_USWC 'amdgpu_amdkfd_alloc_gtt_mem\([^)]*is_uswc_mode' "$amdkfd"
fact FLUSH_HDP ' amdgpu_device_flush_hdp\(' "$amdgpu"
fact FREE_BY_ADDRESS 'amdgpu_amdkfd_free_(gtt|kernel)_mem\([^)]*void \*\*' "$amdkfd"
fact ALLOC_FOR_CRIU 'amdgpu_amdkfd_gpuvm_alloc_memory_of_gpu\([^)]*criu_resume' "$amdkfd"
fact FREE_OF_VM 'amdgpu_amdkfd_gpuvm_free_memory_of_gpu\([^)]*drm_priv' "$amdkfd"
# An import by its descriptor; before, KFD looked up the dma-buf itself.
fact IMPORT_OF_FD 'amdgpu_amdkfd_gpuvm_import_dmabuf_fd\(' "$amdkfd"
# What a peer saw of the buffer of another GPU is taken back after its VM has been flushed.
fact DMAUNMAP 'amdgpu_amdkfd_gpuvm_dmaunmap_mem\(' "$amdkfd"
fact CRIU 'amdgpu_amdkfd_criu_resume\(' "$amdkfd"
fact DOORBELL_BOS 'amdgpu_doorbell_index_on_bar\(' "$driver/amdgpu/amdgpu_doorbell.h"
fact QUEUE_BUFFERS 'kfd_queue_buffer_get\(' "$priv"
fact FLUSH_OF_VM 'amdgpu_vm_flush_compute_tlb\(' "$vm"

fact PDD_ARRAY ' n_pdds;' "$priv" kfd_process
fact DRM_PRIV ' \*drm_priv;' "$priv" kfd_process_device
fact PACKET_MGR ' packet_mgr;' "$dqm" device_queue_manager
fact HW_EXCEPTION_WORK ' hw_exception_work;' "$dqm" device_queue_manager
fact IP_VERSIONS ' ip_versions\[' "$amdgpu"
fact XCP_UNIQUE_ID ' unique_id;' "$driver/amdgpu/amdgpu_xcp.h" amdgpu_xcp
fact ROOT_IN_BASE 'struct amdgpu_vm_pt root;' "$vm" amdgpu_vm
fact TASK_INFO_POINTER ' \*task_info;' "$vm" amdgpu_vm
fact TASK_IN_TASK_INFO ' task;' "$vm" amdgpu_task_info
# Where the VM of a PASID is found; since 7.3 in neither of these (pasid.c).
fact PASID_IDR ' pasid_idr;' "$vm" amdgpu_vm_manager
fact PASID_XARRAY 'struct xarray pasids;' "$vm" amdgpu_vm_manager

# Of the kernel: ftrace hands out registers behind a type of their own, and asks for the guard
# against recursion instead of being asked to leave it out.
fact FTRACE_REGS 'struct ftrace_regs' "$kernel/include/linux/ftrace.h"
