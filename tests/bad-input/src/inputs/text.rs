//! Text: symbols, flags, and files of procfs and sysfs.

use super::{damaged, hostile, word};
use crate::parts;
use kfd_trace_common::kind::Kind;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn bytes(text: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> + Clone {
    select(text.to_vec()).prop_map(|text| text.as_bytes().to_vec())
}

/// Lines of kallsyms, of few names.
pub fn kallsyms() -> impl Strategy<Value = Vec<u8>> {
    let address = prop_oneof![
        Just("0".repeat(16)),
        (0..9u32).prop_map(|low| format!("ffffffffc0a0{low:04x}")),
        any::<u64>().prop_map(|any| format!("{any:x}")),
        Just("f".repeat(17)),
    ];
    let name = prop_oneof![
        40 => bytes(&["kfd_ioctl", "update_mqd", "a", "init_mqd.isra.0", "x"]),
        6 => hostile(),
        1 => (1..70_000usize).prop_map(|length| vec![b'n'; length]),
    ];
    let module = prop_oneof![
        4 => bytes(&["", "\t[amdgpu]", "\t[other]", "\t[]", "\t[amdgpu", " [amdgpu]"]),
        1 => hostile().prop_map(|name| [b"\t[", name.as_slice(), b"]"].concat()),
    ];
    let kind = bytes(&["t", "T", "d", "w", "", "tt", "\x01"]);
    let line =
        (address, kind, name, module, any::<bool>()).prop_map(|(address, kind, name, module, plain)| {
            let kind = if plain { b"t" } else { kind.as_slice() };
            [address.as_bytes(), b" ", kind, b" ", &name, &module, b"\n"].concat()
        });
    prop_oneof![9 => damaged(vec(line, 0..40).prop_map(|lines| lines.concat())), 1 => vec(any::<u8>(), 0..200)]
}

/// Dumps of hardware queues, of few GPUs and rings.
pub fn dumps() -> impl Strategy<Value = Vec<u8>> {
    let header = bytes(&[
        "Process 4242 PASID 0x8001:",
        "Process 4242 PASID 4242:",
        "Process x PASID",
        "  Compute queue on device f7bc",
        "  SDMA queue on device f7bc",
        "  DIQ on device 1",
        "  Compute queue on device",
        "  Bad user queue type 9 on device f7bc",
        "Node 2, gpu_id f7bc:",
        "   Inst 0, HIQ on MEC 2 Pipe 0 Queue 0",
        " Inst 1,  CP Pipe 0, Queue 2",
        "  CP Pipe 4294967295, Queue 2",
        "  SDMA Engine 0, RLC 1",
        " Device is stopped",
    ]);
    let dword = || prop_oneof![Just(0), Just(1), Just(0x17b_a000), any::<u32>()];
    let row = (vec(dword(), 1..9), any::<bool>(), 0..600u32).prop_map(|(words, begins, at)| {
        let words: Vec<String> = words.iter().map(|word| format!("{word:08x}")).collect();
        format!("    {:08x}: {}", if begins { 0 } else { at * 4 }, words.join(" ")).into_bytes()
    });
    // A whole dump, whose rows follow each other.
    let whole = (dword(), any::<bool>()).prop_map(|(mqd, active)| {
        let at = |dword: u32| match dword {
            128 => mqd,
            130 => u32::from(active),
            _ => dword % 3,
        };
        let row = |row: u32| {
            let words: Vec<String> = (0..8).map(|word| format!("{:08x}", at(row * 8 + word))).collect();
            format!("    {:08x}: {}\n", row * 32, words.join(" "))
        };
        (0..23).map(row).collect::<String>().into_bytes()
    });
    let line = prop_oneof![8 => header, 4 => row, 3 => whole, 1 => hostile()];
    let lines = vec(line.prop_map(|line| [line.as_slice(), b"\n"].concat()), 0..30);
    prop_oneof![9 => damaged(lines.prop_map(|lines| lines.concat())), 1 => vec(any::<u8>(), 0..200)]
}

/// Arguments, one per line.
pub fn flags() -> impl Strategy<Value = Vec<u8>> {
    let flag = bytes(&[
        "--pid",
        "--comm",
        "--event",
        "--json",
        "--duration",
        "--color",
        "--buffer-size",
        "--tracepoints",
        "--without-probe",
        "--path.procfs",
        "--path.sysfs",
        "-v",
        "-vvvv",
        "ps",
        "amd-log",
        "--follow",
        "daemon",
        "status",
        "doctor",
        "metrics",
        "--web.listen-address",
        "--metrics.max-processes",
        "--",
        "-",
        "--help",
        "--version",
        "--no-such",
    ]);
    let value = || {
        prop_oneof![
            bytes(&[
                "1",
                "0",
                "-1",
                "4294967296",
                "1MiB",
                "4KiB",
                "8GiB",
                "1e400MiB",
                "0x1000",
                "4096",
                "1.5 KiB",
                "10s",
                "1m30s",
                "9223372036854775807s",
                "-1s",
                "2500-01-01",
                "PT1H",
                "P9999Y",
                "127.0.0.1:0",
                "[::1]:65535",
                "[::1%1]:80",
                "localhost:1",
                "auto",
                "always",
                "ioctl_return",
                "queue_del",
                "NaN",
                "\u{ff11}\u{ff10}s",
                "",
            ]),
            select(Kind::ALL.to_vec()).prop_map(|kind| kind.name().as_bytes().to_vec()),
            hostile(),
            word().prop_map(|word| word.to_string().into_bytes()),
            (word(), select(vec!["KiB", "MB", "s", "h", "y", ""]))
                .prop_map(|(n, unit)| format!("{n}{unit}").into_bytes()),
        ]
    };
    let good = bytes(&[
        "--json",
        "--pid\n7",
        "--duration=1m30s",
        "--event\nqueue_create",
        "--buffer-size\n4MiB",
        "--without-probe=open",
        "--comm\ntrain",
        "-v",
        "--path.procfs\n/host/proc",
        "--color\nnever",
        "--tracepoints",
    ]);
    let argument = prop_oneof![
        6 => good,
        1 => flag.clone(),
        1 => value(),
        1 => (flag, value()).prop_map(|(flag, value)| [flag, b"=".to_vec(), value].concat()),
    ];
    damaged(vec(argument, 0..6).prop_map(|all| all.join(&b'\n')))
}

const STATUS: &str = "Name:\tworker\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t7\nNgid:\t0\nPid:\t7\nPPid:\t1\n\
TracerPid:\t0\nUid:\t1000\t1001\t1002\t1003\nGid:\t0\t0\t0\t0\nFDSize:\t64\nGroups:\t4 27 \nNStgid:\t7\t12\n\
NSpid:\t7\t12\nVmPeak:\t   1024 kB\nThreads:\t1\nSigQ:\t0/96000\nSigPnd:\t0\nShdPnd:\t0\nSigBlk:\t0\nSigIgn:\t0\n\
SigCgt:\t0\nCapInh:\t0\nCapPrm:\t0\nCapEff:\t000001ffffffffff\nCpus_allowed:\tff\nMems_allowed:\t0,1\n";

/// The files of [`crate::procfs::FILES`].
pub fn procfs() -> impl Strategy<Value = Vec<u8>> {
    let stat = hostile().prop_map(|comm| {
        let (zeros, rest) = ("0 ".repeat(17), "0 ".repeat(30));
        [b"7 (", comm.as_slice(), format!(") S 1 {zeros}12345 {rest}\n").as_bytes()].concat()
    });
    // Not everything that the procfs crate relies on is present.
    let other = bytes(&["", "(", "7 (a", "7 (a)", "(a) S 1", "7 )a( S 1", "7 (a) \u{e9} 1", "\u{e9}(a) S 1"]);
    let stat = prop_oneof![3 => stat, 1 => other];
    let status = || {
        hostile().prop_map(|name| {
            let name = String::from_utf8_lossy(&name).replace('\n', "\\n");
            STATUS.replace("worker", &name).into_bytes()
        })
    };
    let cmdline = vec(hostile(), 0..4).prop_map(|words| words.join(&0));
    let cgroup = prop_oneof![
        hostile().prop_map(|name| [b"0::/", name.as_slice(), b"\n"].concat()),
        bytes(&["4:memory:/docker/1\n0::/\n", "1:name=systemd:/a (deleted)\n", "0:\n", "x::/\n", "0::\n"]),
    ];
    let mounts = bytes(&["tracefs /t tracefs rw 0 0\n", "a\\040b / debugfs rw,x=1 0 0\n", "a b\n", ""]);
    let cpus =
        bytes(&["0-3,8-11\n", "0\n", "5-3\n", "0-18446744073709551615\n", "4294967295\n", "-\n", ",\n"]);
    let lockdown = bytes(&["none [integrity] confidentiality\n", "[]\n", "][\n", "none\n"]);
    let files = (damaged(stat), damaged(status()), damaged(cmdline), damaged(cgroup), damaged(status()));
    let path = prop_oneof![
        3 => bytes(&["/dev/kfd", "/dev/dri/renderD128", "/opt/libamdhip64.so.6 (deleted)", "[heap]", "[stack:/]", "/SYSV0000001"]),
        1 => hostile(),
    ];
    let mapping = path.prop_map(|path| {
        [b"7f00-7f01 rw-s 00000000 00:05 371                /", path.as_slice(), b"\n"].concat()
    });
    let other = bytes(&[
        "/",
        "7f00-/\n",
        "- rwxp / : /",
        "7f00-7f01 rw-s 0 0 0 /a\n",
        "7f00-7f01 \u{e9} 00 00:05 1 /\n",
    ]);
    let maps = vec(prop_oneof![3 => mapping, 1 => other], 0..6).prop_map(|lines| lines.concat());
    let info = bytes(&[
        "flags:\t02100002\ndrm-client-id:\t4\n",
        "drm-pdev:\t0000:c1:00.0\ndrm-memory-vram:\t18446744073709551615 KiB\n",
        "flags:\t777777777777\ndrm-driver:\ta\u{1b}\n",
        ":\n",
    ]);
    let of_doctor = (damaged(maps), damaged(info.clone()), damaged(info));
    (files, damaged(mounts), damaged(cpus), damaged(lockdown), of_doctor).prop_map(
        |((stat, status, cmdline, cgroup, own), mounts, cpus, lockdown, (maps, kfd, drm))| {
            let empty = Vec::new;
            parts::join(&[
                stat,
                status,
                cmdline,
                cgroup,
                own,
                mounts,
                cpus,
                lockdown,
                maps,
                empty(),
                kfd,
                empty(),
                drm,
            ])
        },
    )
}

/// The files of [`crate::sysfs::FILES`].
pub fn sysfs() -> impl Strategy<Value = Vec<u8>> {
    let number = || {
        prop_oneof![
            4 => (1..100_000u32).prop_map(|n| format!("{n}\n").into_bytes()),
            1 => word().prop_map(|n| format!("{n}\n").into_bytes()),
            1 => bytes(&["", "18446744073709551616\n", "-1\n", " 7 \n", "0x10\n"]),
            1 => hostile(),
        ]
    };
    let names = select(vec![
        "simd_count",
        "domain",
        "location_id",
        "gfx_target_version",
        "num_cp_queues",
        "num_sdma_engines",
        "num_sdma_queues_per_engine",
        "num_sdma_xgmi_engines",
        "num_xcc",
        "drm_render_minor",
        "unique_id",
        "vendor_id",
        "simd_per_cu",
        "simd_id_base",
        "array_count",
        "simd_arrays_per_engine",
        "cu_per_simd_array",
    ]);
    let properties = || {
        let line = (names.clone(), number()).prop_map(|(name, n)| [name.as_bytes(), b" ", &n].concat());
        damaged(vec(line, 0..14).prop_map(|lines| lines.concat()))
    };
    let cache = || {
        let line = |name: &'static str| {
            (Just(name), number()).prop_map(|(name, n)| [name.as_bytes(), b" ", &n].concat())
        };
        let siblings = bytes(&["sibling_map 1,0,1\n", "sibling_map \n", "sibling_map ,,1,,\n", ""]);
        let lines = (line("processor_id_low"), bytes(&["level 1\n", "level 2\n", ""]), siblings);
        damaged(lines.prop_map(|(id, level, siblings)| [id, level, siblings].concat()))
    };
    let head = (number(), hostile(), properties(), number(), properties());
    (head, hostile(), hostile(), vec(number(), 7), cache()).prop_map(
        |((id, name, properties, other_id, other), product, serial, numbers, cache)| {
            let head = vec![id, name, properties, other_id, other, product, serial];
            parts::join(&[head, numbers, vec![cache]].concat())
        },
    )
}
