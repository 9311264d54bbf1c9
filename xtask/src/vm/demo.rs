//! `cargo xtask demo`: the tracer at work, on this machine's GPU or in the VM.

use crate::run::{self, step};
use crate::vm::{self, guest};
use crate::{build, setup};
use anyhow::Result;
use std::fs;
use std::path::Path;
use std::process::Command;

/// `Ok(false)`: the demo did not show what it should, and reported it.
pub(crate) fn demo() -> Result<bool> {
    setup::setup()?;
    if !gpu_here(Path::new("/sys")) {
        step("no AMD GPU under amdgpu on this machine: the demo runs in the VM, on simulated ones");
        return vm::demo();
    }
    step("this machine has an AMD GPU under amdgpu: the demo runs here");
    let tracer = build::build()?;
    let binaries = guest::build()?;
    let demo = binaries.program("kfd-demo")?;
    Ok(run::status(Command::new(demo).env("KFD_TRACE", tracer))?.success())
}

/// Whether amdgpu is loaded and the KFD topology has a node with a GPU (CPU nodes have gpu_id 0).
fn gpu_here(sysfs: &Path) -> bool {
    if !sysfs.join("module/amdgpu").exists() {
        return false;
    }
    let Ok(nodes) = fs::read_dir(sysfs.join("class/kfd/kfd/topology/nodes")) else { return false };
    let mut ids = nodes.filter_map(|node| fs::read_to_string(node.ok()?.path().join("gpu_id")).ok());
    ids.any(|id| !matches!(id.trim(), "0" | ""))
}

#[cfg(test)]
mod tests {
    use super::gpu_here;
    use std::fs;

    #[test]
    fn a_cpu_node_is_no_gpu() {
        let sys = tempfile::tempdir().expect("a folder");
        let node = |number: u32, gpu_id: &str| {
            let dir = sys.path().join(format!("class/kfd/kfd/topology/nodes/{number}"));
            fs::create_dir_all(&dir).expect("a node");
            fs::write(dir.join("gpu_id"), gpu_id).expect("its id");
        };
        node(0, "0\n");
        node(1, "48421\n");
        assert!(!gpu_here(sys.path()), "no amdgpu module");
        fs::create_dir_all(sys.path().join("module/amdgpu")).expect("the module");
        assert!(gpu_here(sys.path()));
        node(1, "0\n");
        assert!(!gpu_here(sys.path()), "only CPU nodes");
    }
}
