use super::*;
use std::fs;

fn node(sysfs: &Path, number: u32, files: &[(&str, &str)]) {
    let folder = sysfs.join("class/kfd/kfd/topology/nodes").join(number.to_string());
    fs::create_dir_all(&folder).unwrap();
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
    }
}

const MI300: &str = "cpu_cores_count 0\nsimd_count 320\ngfx_target_version 90402\nvendor_id 4098\n\
device_id 29857\nlocation_id 805355776\ndomain 1\ndrm_render_minor 128\nnum_sdma_engines 2\n\
num_sdma_queues_per_engine 8\nnum_cp_queues 24\nunique_id 18446744073709551615\nsome_future_thing yes\n\
num_xcc 8\n";

#[test]
fn gpus_are_read_and_cpus_left_out() {
    let sysfs = tempfile::tempdir().unwrap();
    node(sysfs.path(), 0, &[("gpu_id", "0\n"), ("name", "\n"), ("properties", "cpu_cores_count 64\n")]);
    node(sysfs.path(), 10, &[("gpu_id", "7\n"), ("name", "vega10\n"), ("properties", "location_id 49408\n")]);
    node(sysfs.path(), 2, &[("gpu_id", "51610\n"), ("name", "aqua_vanjaram\n"), ("properties", MI300)]);
    let topology = Topology::read(sysfs.path());
    assert_eq!(topology.errors, []);
    assert_eq!(topology.gpus.iter().map(|gpu| gpu.node).collect::<Vec<_>>(), [2, 10]);
    let gpu = topology.gpu(51610).unwrap();
    assert_eq!(gpu.name.as_deref(), Some("aqua_vanjaram"));
    assert_eq!(gpu.gfx_name().as_deref(), Some("gfx942"));
    assert_eq!(gpu.pci.as_deref(), Some("0001:c1:00.0"));
    assert_eq!((gpu.partition, gpu.render_minor, gpu.index), (Some(3), Some(128), 0));
    assert_eq!(gpu.label(), "gpu 0 (0001:c1:00.0 partition 3, gfx942)");
    assert_eq!(topology.label(7).as_deref(), Some("gpu 1 (0000:c1:00.0)"));
    assert_eq!((gpu.vendor_id, gpu.device_id), (Some(0x1002), Some(29857)));
    assert_eq!((gpu.num_xcc, gpu.num_cp_queues, gpu.simd_count), (Some(8), Some(24), Some(320)));
    assert_eq!((gpu.num_sdma_engines, gpu.num_sdma_queues_per_engine), (Some(2), Some(8)));
    assert_eq!(gpu.unique_id, Some(u64::MAX));
}

#[test]
fn fields_missing_in_sysfs_are_none() {
    let sysfs = tempfile::tempdir().unwrap();
    node(sysfs.path(), 1, &[("gpu_id", "7"), ("name", ""), ("properties", "location_id 49408\n")]);
    let topology = Topology::read(sysfs.path());
    let gpu = topology.gpu(7).unwrap();
    assert_eq!(gpu.pci.as_deref(), Some("0000:c1:00.0"));
    assert_eq!((gpu.num_xcc, gpu.gfx_name(), &gpu.name), (None, None, &None));
    assert!(topology.gpu(0).is_none());
}

#[test]
fn names_have_hex_steps() {
    let sysfs = tempfile::tempdir().unwrap();
    for (id, (version, name)) in
        (1..).zip([(90010, "gfx90a"), (90001, "gfx901"), (110_000, "gfx1100"), (120_501, "gfx1251")])
    {
        node(
            sysfs.path(),
            id,
            &[("gpu_id", &id.to_string()), ("properties", &format!("gfx_target_version {version}\n"))],
        );
        assert_eq!(Topology::read(sysfs.path()).gpu(id).unwrap().gfx_name().as_deref(), Some(name));
    }
}

#[test]
fn what_cannot_be_read_is_named() {
    let sysfs = tempfile::tempdir().unwrap();
    assert_eq!(Topology::read(sysfs.path()), Topology::default());
    node(sysfs.path(), 1, &[("gpu_id", "none\n")]);
    node(sysfs.path(), 2, &[("gpu_id", "9\n"), ("properties", "simd_count many\n")]);
    let topology = Topology::read(sysfs.path());
    let lines: Vec<_> = topology.errors.iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("nodes/1/gpu_id") && lines[1].contains("simd_count is \"many\""));
    assert_eq!(topology.gpu(9).unwrap().simd_count, None);
}

#[test]
fn the_name_and_number_of_the_board_are_read() {
    let sysfs = tempfile::tempdir().unwrap();
    node(sysfs.path(), 1, &[("gpu_id", "7"), ("properties", "location_id 49408\nunique_id 0\n")]);
    let device = sysfs.path().join("bus/pci/devices/0000:c1:00.0");
    fs::create_dir_all(&device).unwrap();
    fs::write(device.join("product_name"), "AMD Instinct MI300X OAM\n").unwrap();
    fs::write(device.join("serial_number"), "\n").unwrap();
    let topology = Topology::read(sysfs.path());
    let gpu = topology.gpu(7).unwrap();
    assert_eq!(gpu.product_name.as_deref(), Some("AMD Instinct MI300X OAM"));
    assert_eq!((&gpu.serial_number, gpu.unique_id), (&None, None));
    assert_eq!(topology.errors, []);
}

#[test]
fn gpus_come_by_their_numbers_and_unknown_ones_last() {
    let gpu = |gpu_id, index| Gpu { gpu_id, index, ..Gpu::default() };
    let topology = Topology { gpus: vec![gpu(58270, 0), gpu(24439, 1)], ..Topology::default() };
    assert_eq!(topology.ordered([9, 24439, 3, 58270]), [58270, 24439, 3, 9]);
    let map = BTreeMap::from([(None, 'u'), (Some(9), 'n'), (Some(24439), 'b'), (Some(58270), 'a')]);
    let names: String = topology.in_order(&map).into_iter().map(|(_, name)| *name).collect();
    assert_eq!(names, "abnu");
}
