//! The kernel model on the kernels of the matrix: Debian's own symbols and BTF, as `cargo xtask fixtures`
//! writes them. The expected numbers were read from the same modules before this reader was written.

mod fixture;

use kfd_trace::kernel::{Btf, BtfError, Kernel, Missing, Roots, Symbols};
use kfd_trace_common::offset::{self, FIELDS, Object};
use std::collections::BTreeSet;

/// Kernels whose module has BTF.
const WITH_BTF: [&str; 3] = ["6.1", "6.12", "7.2"];

/// `None` for a series that Debian no longer has.
fn kernel(series: &str) -> Option<Kernel> {
    let roots = Roots::under(&fixture::folder(series)?);
    Some(Kernel::read(&roots).unwrap_or_else(|error| panic!("{series}: {error}")))
}

fn amdgpu(kernel: &Kernel) -> &Btf {
    kernel.amdgpu_btf.as_deref().unwrap_or_else(|| panic!("no BTF of amdgpu: {:?}", kernel.btf_problems))
}

/// A member and its offsets in 6.1, 6.12 and 7.2; None: not in that kernel.
type Row = (&'static str, &'static str, [Option<u32>; 3]);

const fn all(offset: u32) -> [Option<u32>; 3] {
    [Some(offset); 3]
}

const fn each(v61: u32, v612: u32, v72: u32) -> [Option<u32>; 3] {
    [Some(v61), Some(v612), Some(v72)]
}

const fn since_612(v612: u32, v72: u32) -> [Option<u32>; 3] {
    [None, Some(v612), Some(v72)]
}

const OFFSETS: &[Row] = &[
    ("kfd_process", "mm", all(16)),
    ("kfd_process", "lead_thread", each(96, 96, 88)),
    ("kfd_process", "pasid", [Some(160), Some(160), None]),
    ("kfd_process", "mmu_notifier", each(104, 104, 96)),
    ("kfd_process", "pdds", each(168, 168, 152)),
    ("kfd_process", "pdds[1]", each(176, 176, 160)),
    ("kfd_process", "n_pdds", each(296, 680, 664)),
    ("kfd_process", "pqm", each(304, 688, 672)),
    ("kfd_process", "pqm.queues", each(312, 696, 680)),
    ("kfd_process", "kobj", each(648, 1064, 1040)),
    ("kfd_process", "context_id", [None, None, Some(1986)]),
    ("process_queue_node", "q", all(0)),
    ("queue", "properties", all(40)),
    ("queue", "properties.type", all(40)),
    ("queue", "properties.queue_id", all(48)),
    ("queue", "properties.queue_address", all(56)),
    ("queue", "properties.read_ptr", each(80, 80, 88)),
    ("queue", "sdma_id", each(188, 252, 260)),
    ("queue", "doorbell_id", each(192, 256, 264)),
    ("queue", "process", each(200, 264, 272)),
    ("queue", "device", each(208, 272, 280)),
    ("queue_properties", "queue_size", all(24)),
    ("queue_properties", "priority", each(32, 32, 40)),
    ("queue_properties", "write_ptr", each(48, 48, 56)),
    ("queue_properties", "is_evicted", each(69, 69, 77)),
    ("queue_properties", "is_suspended", since_612(70, 78)),
    ("queue_properties", "is_active", each(70, 72, 80)),
    ("queue_properties", "exception_status", since_612(152, 160)),
    ("kfd_dev", "id", [Some(96), None, None]),
    ("kfd_node", "id", since_612(36, 36)),
    ("kfd_node", "dqm", since_612(128, 128)),
    ("kfd_node", "kfd", since_612(216, 208)),
    ("kfd_process_device", "process", all(8)),
    ("kfd_process_device", "qpd.evicted", all(76)),
    ("kfd_process_device", "user_gpu_id", each(536, 612, 588)),
    ("qcm_process_device", "queue_count", all(48)),
    ("device_queue_manager", "dev", each(304, 312, 312)),
    ("device_queue_manager", "total_queue_count", each(380, 388, 380)),
    ("mqd_update_info", "cu_mask.ptr", all(8)),
    ("mqd_update_info", "update_flag", all(16)),
];

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn members_lie_where_the_driver_has_them() {
    for (column, series) in WITH_BTF.into_iter().enumerate() {
        let Some(kernel) = kernel(series) else { continue };
        let btf = amdgpu(&kernel);
        for (strukt, path, expected) in OFFSETS {
            match (btf.offset_of(strukt, path), expected[column]) {
                (Ok(member), Some(offset)) => assert_eq!(member.offset, offset, "{series} {strukt}.{path}"),
                (Err(BtfError::NoStruct { .. } | BtfError::NoMember { .. }), None) => {}
                (found, expected) => panic!("{series} {strukt}.{path}: {found:?}, expected {expected:?}"),
            }
        }
        let sizes = [
            ("queue_properties", [136, 200, 208]),
            ("queue", [320, 384, 392]),
            ("kfd_process", [944, 2024, 2008]),
        ];
        for (strukt, expected) in sizes {
            assert_eq!(btf.size_of(strukt), Ok(expected[column]), "{series} {strukt}");
        }
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn queue_types_have_the_numbers_of_each_kernel() {
    let expected = |names: &[&str]| {
        let names = names.iter().map(|name| format!("KFD_QUEUE_TYPE_{name}"));
        names.zip(0i64..).collect::<Vec<_>>()
    };
    let v61 = expected(&["COMPUTE", "SDMA", "HIQ", "DIQ", "SDMA_XGMI", "MAX"]);
    let v612 = expected(&["COMPUTE", "SDMA", "HIQ", "DIQ", "SDMA_XGMI", "SDMA_BY_ENG_ID", "MAX"]);
    let v72 = expected(&["COMPUTE", "SDMA", "HIQ", "SDMA_XGMI", "SDMA_BY_ENG_ID", "MAX"]);
    for (series, expected) in WITH_BTF.into_iter().zip([v61, v612, v72]) {
        let Some(kernel) = kernel(series) else { continue };
        assert_eq!(amdgpu(&kernel).enum_values("kfd_queue_type"), Ok(expected), "{series}");
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn every_field_of_the_programs_is_found() {
    // The debugger and the KFD node were added in 6.5, contexts and a PASID per GPU after 6.12. 5.10 kept the CU
    // mask with the queue.
    let of_5_10 = ["QUEUE_CU_MASK_COUNT", "QUEUE_CU_MASK_PTR"];
    let absent = [
        vec!["KFD_PROCESS_EXCEPTION_STATUS", "KFD_PROCESS_CONTEXT_ID", "NODE_ID"],
        vec!["KFD_PROCESS_CONTEXT_ID"],
        vec!["KFD_PROCESS_PASID", "DQM_HW_EXCEPTION_WORK"],
    ];
    let absent = absent.map(|absent| [absent, of_5_10.to_vec()].concat());
    for (series, absent) in WITH_BTF.into_iter().zip(absent) {
        let Some(kernel) = kernel(series) else { continue };
        let offsets = kernel.offsets(FIELDS);
        let missing: BTreeSet<_> =
            offsets.iter().filter(|(_, found)| found.is_err()).map(|(global, _)| global).collect();
        assert_eq!(missing, absent.into_iter().collect(), "{series}");
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn the_oldest_kernel_has_no_btf_of_the_module() {
    let Some(kernel) = kernel("5.10") else { return };
    assert!(kernel.amdgpu_btf.is_none());
    assert_eq!(kernel.btf_problems, [""; 0]);
    assert!(kernel.vmlinux_btf.is_some(), "vmlinux has BTF");
    let offsets = kernel.offsets(FIELDS);
    assert_eq!(offsets.iter().count(), FIELDS.len());
    for (global, found) in offsets.iter() {
        match offset::field(global).expect("a field of the list").object {
            Object::Vmlinux => assert!(found.is_ok(), "{global}: {found:?}"),
            Object::Amdgpu => assert_eq!(found, Err(&Missing::NoBtf("amdgpu")), "{global}"),
        }
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn duplicates_of_the_mqd_functions_are_kept() {
    let copies = |symbols: &Symbols, name: &str| symbols.find_in(Some("amdgpu"), name).len();
    for (series, expected) in WITH_BTF.into_iter().zip([5, 6, 7]) {
        let Some(Kernel { symbols, .. }) = kernel(series) else { continue };
        assert!(symbols.has_module("amdgpu") && !symbols.addresses_hidden(), "{series}");
        assert_eq!(copies(&symbols, "update_mqd"), expected, "{series}");
        assert_eq!(copies(&symbols, "update_mqd_sdma"), expected, "{series}");
        assert_eq!(copies(&symbols, "restore_mqd"), expected - 1, "{series}");
        assert_eq!(copies(&symbols, "update_mqd_v9_4_3"), usize::from(series != "6.1"), "{series}");
        assert!(!symbols.is_unique("update_mqd"), "{series}");
        let mut addresses: Vec<_> = symbols.find("update_mqd").iter().map(|symbol| symbol.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), expected, "{series}: each copy has its own address");
    }
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn the_functions_to_probe_stand_once() {
    for series in ["5.10", "6.1", "6.12", "7.2"] {
        let Some(Kernel { symbols, .. }) = kernel(series) else { continue };
        let names = [
            "kfd_ioctl",
            "kfd_open",
            "kfd_release",
            "kfd_ioctl_create_queue",
            "kfd_ioctl_wait_events",
            "kfd_procfs_add_queue",
            "kfd_procfs_del_queue",
            "kfd_process_notifier_release",
            "kfd_process_wq_release",
        ];
        for name in names {
            let found = symbols.find(name);
            assert_eq!(found.len(), 1, "{series} {name}: {found:?}");
            assert!(found[0].is_code() && symbols.is_unique(name), "{series} {name}: {found:?}");
        }
        assert_eq!(symbols.malformed_lines(), 0, "{series}");
        let handlers = symbols.in_module("amdgpu").filter(|(name, _)| {
            // A part that the compiler split off (`.cold`) is no function of its own.
            name.starts_with("kfd_ioctl_") && !name.contains('.')
        });
        let handlers = handlers.count();
        assert!(handlers >= 28, "{series}: {handlers} handlers");
    }
}

/// Real BTF, damaged at random places, never makes the reader panic or spin.
#[test]
#[ignore = "needs cargo xtask fixtures"]
fn damaged_btf_is_refused_or_read() {
    let Some(folder) = ["6.12", "7.2"].into_iter().find_map(fixture::folder) else { return };
    let folder = folder.join("sys/kernel/btf");
    let base = Btf::parse(std::fs::read(folder.join("vmlinux")).unwrap(), None).unwrap();
    let base = std::sync::Arc::new(base);
    let whole = std::fs::read(folder.join("amdgpu")).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let mut readable = 0;
    for round in 0..60 {
        let mut bytes = whole.clone();
        if round % 4 == 0 {
            bytes.truncate(random(whole.len()));
        }
        for _ in 0..=random(40) {
            let at = random(bytes.len().max(1));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = u8::try_from(random(256)).unwrap();
            }
        }
        let Ok(btf) = Btf::parse(bytes, Some(std::sync::Arc::clone(&base))) else { continue };
        readable += 1;
        for (strukt, path, _) in OFFSETS {
            let _ = btf.offset_of(strukt, path);
            let _ = btf.size_of(strukt);
        }
        let _ = btf.enum_values("kfd_queue_type");
    }
    assert!(readable > 5, "{readable} of 60 were read");
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn the_table_of_processes_ends_at_the_next_symbol() {
    // 1 << KFD_PROCESS_TABLE_SIZE pointers, kfd_priv.h of each version.
    for (series, bytes) in [("6.1", 32 * 8), ("6.12", 32 * 8), ("7.2", 256 * 8)] {
        let Some(kernel) = kernel(series) else { continue };
        let table = kernel.symbols.find("kfd_processes_table");
        assert_eq!(table.len(), 1, "{series}");
        assert_eq!(kernel.symbols.room_at("amdgpu", table[0].address), Some(bytes), "{series}");
    }
}
