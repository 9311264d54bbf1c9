//! Runs in the VM with the real amdgpu and kfdsim's two GPUs: real ioctls and queues, and what each command
//! of kfd-trace reports about them.

mod activity;
mod amd_log;
mod belongs;
mod burst;
mod death;
mod doctor;
mod hang;
mod hidden;
mod hw;
mod ioctls_alone;
mod otlp;
mod proof;
mod ps;
mod recording;
mod refused;
mod remote;
mod restart;
mod run;
mod script;
mod short_lived;
mod timeline;
mod timeline_ledger;
mod top;
mod top_ledger;
mod tracepoints;
mod usual;

#[test]
fn two_gpus_are_in_the_topology() {
    let nodes = std::fs::read_dir("/sys/class/kfd/kfd/topology/nodes").expect("the topology");
    let gpus = nodes.filter(|node| {
        let path = node.as_ref().expect("a node").path().join("gpu_id");
        std::fs::read_to_string(path).expect("a gpu_id").trim() != "0"
    });
    assert_eq!(gpus.count(), 2);
}

#[test]
fn the_sizes_of_a_save_area_are_computed_as_the_driver_does() {
    for node in kfd_trace_tests::harness::nodes(std::path::Path::new("/sys")).expect("the topology") {
        let (computed, shown) = node.save_area();
        println!("computed {computed:?}, shown {shown:?}");
        // without its generation (5.10) it cannot be computed
        assert_eq!(computed.is_some(), node.properties.contains_key("gfx_target_version"), "{node:?}");
        assert!(shown.is_none() || shown == computed, "{node:?}");
    }
}

#[test]
fn the_types_are_where_the_boot_has_them() {
    use kfd_trace_tests::harness::stage::{Types, VmKernel};
    let expected = match VmKernel::from_env().expect("the kernel").types {
        Types::Kernel => return,
        Types::File => "file /var/lib/kfd-trace/drivers/",
        Types::Table => "shipped table, driver ",
    };
    assert!(!std::path::Path::new("/sys/kernel/btf/amdgpu").exists(), "the module has no BTF");
    let status = kfd_trace_tests::harness::tracer::run(&["status"]).expect("a report");
    let status = String::from_utf8(status.stdout).expect("text");
    let line = status.lines().find(|line| line.starts_with("types of the driver ")).expect("a line");
    assert!(line.contains(expected), "{line}");
}
