//! Synthetic procfs folders, and the procfs of this machine for what only a kernel can do.

use super::*;
use std::fs;

const STATUS: &str = "Name:\tworker\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4711\nNgid:\t0\nPid:\t4711\n\
PPid:\t1\nTracerPid:\t0\nUid:\t1000\t1001\t1002\t1003\nGid:\t0\t0\t0\t0\nFDSize:\t64\nGroups:\t0\n\
NStgid:\t4711\t12\t7\nNSpid:\t4711\t12\t7\nThreads:\t1\nSigQ:\t0/96000\nSigPnd:\t0\nShdPnd:\t0\nSigBlk:\t0\n\
SigIgn:\t0\nSigCgt:\t0\nCapInh:\t0\nCapPrm:\t0\nCapEff:\t0\n";
const CGROUP: &str = "0::/system.slice/app.scope\n";

/// A process 4711 that started after `ticks` clock ticks.
fn process(status: &[u8], cmdline: &[u8], cgroup: &str, ticks: u64) -> tempfile::TempDir {
    let procfs = tempfile::tempdir().unwrap();
    let folder = procfs.path().join("4711");
    fs::create_dir(&folder).unwrap();
    let zeros = "0 ".repeat(17);
    let rest = "0 ".repeat(30);
    fs::write(folder.join("stat"), format!("4711 (a) (b: c) S 1 {zeros}{ticks} {rest}\n")).unwrap();
    fs::write(folder.join("status"), status).unwrap();
    fs::write(folder.join("cmdline"), cmdline).unwrap();
    fs::write(folder.join("cgroup"), cgroup).unwrap();
    procfs
}

#[test]
fn a_process_is_read() {
    let procfs = process(STATUS.as_bytes(), b"python3\0train.py\0\0--x=\xff\0", CGROUP, 12345);
    let info = read(procfs.path(), 4711, None).unwrap();
    let expected = ProcessInfo {
        who: Identity {
            tgid: 4711,
            start_boottime_ns: 123_450_000_000,
            comm: "a) (b: c".to_owned(),
            uid: 1000,
            euid: 1001,
            ns_pids: vec![4711, 12, 7],
        },
        cgroup: Some("/system.slice/app.scope".to_owned()),
        belongs: Belongs { unit: Some("app.scope".to_owned()), ..Belongs::default() },
    };
    assert_eq!(info, expected);
    let words = ["python3", "train.py", "", "--x=\u{fffd}"].map(str::to_owned);
    assert_eq!(cmdline(procfs.path(), 4711, Some(123_450_000_000)).unwrap(), words);
    assert!(matches!(cmdline(procfs.path(), 4711, Some(7)), Err(ProcessError::Reused { .. })));
    assert_eq!(info.who.inner_pid(), Some(7));
    assert_eq!(Identity { ns_pids: vec![4711], ..info.who }.inner_pid(), None);
}

#[test]
fn a_start_within_one_tick_is_the_same() {
    let procfs = process(STATUS.as_bytes(), b"", CGROUP, 500);
    let start = |ns| read(procfs.path(), 4711, Some(ns));
    for same in [5_000_000_000, 5_009_999_999, 4_990_000_000, 5_019_999_999] {
        assert!(start(same).is_ok(), "{same}");
    }
    for other in [0, 4_989_999_999, 5_020_000_000, u64::MAX] {
        assert!(matches!(start(other), Err(ProcessError::Reused { tgid: 4711 })), "{other}");
    }
}

#[test]
fn a_long_command_line_is_cut() {
    let long = [b"train\0".as_slice(), &vec![b'x'; 3 << 20], b"\0"].concat();
    let words = cmdline(process(STATUS.as_bytes(), &long, CGROUP, 1).path(), 4711, None).unwrap();
    assert_eq!(words, ["train".to_owned(), format!("{}...", "x".repeat(4096 - 6))]);
    let fits = [b"train\0".as_slice(), &vec![b'x'; 4096 - 7], b"\0"].concat();
    let words = cmdline(process(STATUS.as_bytes(), &fits, CGROUP, 1).path(), 4711, None).unwrap();
    assert_eq!(words.last().map(String::len), Some(4096 - 7));
}

#[test]
fn a_file_of_another_form_is_an_error_of_one_line() {
    let procfs = process(STATUS.as_bytes(), b"", CGROUP, 1);
    let error_of = |file: &str, text: &[u8]| {
        let path = procfs.path().join("4711").join(file);
        let before = fs::read(&path).unwrap();
        fs::write(&path, text).unwrap();
        let error = read(procfs.path(), 4711, None).unwrap_err().to_string();
        fs::write(&path, before).unwrap();
        assert!(error.contains("4711") && !error.contains('\n') && error.len() < 200, "{error}");
        error
    };
    let bytes: [&[u8]; 8] = [
        b"",
        b"(",
        b"(a) S",
        b"4711 )a(",
        b"4711 (a)",
        b"4711 (a) ",
        b"\xc3\xa9(a) S",
        b"4711 (a)\xc3\xa9 S",
    ];
    for stat in bytes {
        error_of("stat", stat);
    }
    assert!(error_of("stat", b"4711 (a").contains("PID (NAME) STATE"));
    assert!(error_of("status", b"no colon\n").contains("process 4711"));
    assert!(error_of("status", &vec![b':'; 2 << 20]).contains("status has more than 1048576 bytes"));
    assert!(error_of("cgroup", b"0").contains("process 4711"));
    assert!(error_of("stat", b"4711 (a) S 1 \x1b[2J 0 0").contains("\\u{1b}[2J"));
}

#[test]
fn identity_needs_neither_arguments_nor_cgroup() {
    let procfs = process(STATUS.as_bytes(), b"", CGROUP, 500);
    let who = read(procfs.path(), 4711, None).unwrap().who;
    for file in ["cmdline", "cgroup"] {
        std::fs::remove_file(procfs.path().join("4711").join(file)).unwrap();
    }
    assert!(read(procfs.path(), 4711, None).is_err());
    assert_eq!(identify(procfs.path(), 4711, Some(5_000_000_000)).unwrap(), who);
    assert!(check(procfs.path(), 4711, Some(5_000_000_000)).is_ok());
    assert!(matches!(check(procfs.path(), 4711, Some(0)), Err(ProcessError::Reused { tgid: 4711 })));
    assert!(matches!(check(procfs.path(), 12, None), Err(ProcessError::Gone { tgid: 12 })));
}

#[test]
fn a_number_that_is_now_a_thread_is_reused() {
    let status = STATUS.replace("Tgid:\t4711", "Tgid:\t99");
    let procfs = process(status.as_bytes(), b"", CGROUP, 1);
    assert!(matches!(read(procfs.path(), 4711, None), Err(ProcessError::Reused { .. })));
    assert_eq!(tgid_of(procfs.path(), 4711).unwrap(), 99);
    assert!(!exists(procfs.path(), 4711));
}

#[test]
fn a_name_that_is_not_utf8_hides_nothing() {
    let mut status = STATUS.as_bytes().to_vec();
    status[6] = 0xff;
    let procfs = process(&status, b"x", CGROUP, 1);
    assert_eq!(read(procfs.path(), 4711, None).unwrap().who.uid, 1000);
}

#[test]
fn unused_lines_hide_nothing() {
    let status = STATUS.replace("Threads:", "Seccomp:\tyes\nNSpidx\nVmRSS:\tlots\nThreads:");
    let procfs = process(status.as_bytes(), b"x", CGROUP, 1);
    assert_eq!(read(procfs.path(), 4711, None).unwrap().who.ns_pids, [4711, 12, 7]);
}

#[test]
fn a_missing_process_is_gone() {
    let procfs = process(STATUS.as_bytes(), b"", CGROUP, 1);
    assert!(matches!(read(procfs.path(), 1, None), Err(ProcessError::Gone { tgid: 1 })));
    assert!(matches!(tgid_of(procfs.path(), 1), Err(ProcessError::Gone { tgid: 1 })));
    fs::remove_file(procfs.path().join("4711/cgroup")).unwrap();
    assert!(matches!(read(procfs.path(), 4711, None), Err(ProcessError::Gone { .. })));
    fs::write(procfs.path().join("4711/status"), "Name:\tx\n").unwrap();
    assert!(matches!(read(procfs.path(), 4711, None), Err(ProcessError::Unreadable { .. })));
}

#[test]
fn the_most_useful_cgroup_is_taken() {
    let path = |text: &str| {
        let procfs = process(STATUS.as_bytes(), b"", text, 1);
        read(procfs.path(), 4711, None).unwrap().cgroup
    };
    assert_eq!(path("0::/a/b (deleted)\n").as_deref(), Some("/a/b"));
    assert_eq!(path("0::/\n").as_deref(), Some("/"));
    assert_eq!(path(""), None);
    let hybrid = "3:cpu,cpuacct:/docker/c\n2:memory:/docker/m\n1:name=systemd:/init\n0::/\n";
    assert_eq!(path(hybrid).as_deref(), Some("/docker/m"));
    assert_eq!(path("7:rdma:/\n5:freezer:/f:g\n").as_deref(), Some("/f:g"));
}

#[test]
fn every_hierarchy_is_read() {
    let text = "9:freezer:/slurm/uid_5/job_7/step_0\n2:memory:/system.slice/slurmd.service\n0::/\n";
    let info = read(process(STATUS.as_bytes(), b"", text, 1).path(), 4711, None).unwrap();
    assert_eq!(info.cgroup.as_deref(), Some("/system.slice/slurmd.service"));
    assert_eq!(info.belongs.slurm.map(|slurm| slurm.job), Some(7));
    let deleted = format!("0::/docker/{} (deleted)\n", "0a".repeat(32));
    let info = read(process(STATUS.as_bytes(), b"", &deleted, 1).path(), 4711, None).unwrap();
    assert_eq!(info.belongs.container.map(|container| container.id), Some("0a".repeat(32)));
}

#[test]
fn a_title_written_over_the_arguments_is_one_argument() {
    assert_eq!(arguments(b"postgres: writer\0\0\0\0"), ["postgres: writer"]);
    assert_eq!(arguments(b"\0\0"), [""; 0]);
}

#[test]
fn this_very_process_is_found_in_the_real_procfs() {
    let procfs = Path::new("/proc");
    let tgid = std::process::id();
    let info = read(procfs, tgid, None).unwrap();
    assert!(read(procfs, tgid, Some(info.who.start_boottime_ns)).is_ok());
    assert!(!cmdline(procfs, tgid, None).unwrap().is_empty());
    assert_eq!(info.who.ns_pids.first(), Some(&tgid));
    let tid = std::thread::spawn(|| fs::read_link("/proc/thread-self").unwrap()).join().unwrap();
    let tid: u32 = tid.file_name().unwrap().to_str().unwrap().parse().unwrap();
    assert_ne!(tid, tgid);
    assert!(exists(procfs, tgid));
}

#[test]
fn the_state_of_a_process_is_read() {
    let procfs = tempfile::tempdir().unwrap();
    let folder = procfs.path().join("4711");
    fs::create_dir(&folder).unwrap();
    let life_of = |state: char, flags: u32, threads: u32| {
        let zeros = "0 ".repeat(10);
        let rest = "0 ".repeat(33);
        let text = format!("4711 (a) {state} 90 0 0 0 0 {flags} {zeros}{threads} {rest}\n");
        fs::write(folder.join("stat"), text).unwrap();
        life(procfs.path(), 4711).unwrap()
    };
    let lives = life_of('S', 0x40_0000, 3);
    let expected = Life { state: 'S', parent: 90, threads: 3, exiting: false, of_kernel: false };
    assert_eq!((lives, lives.is_over(), lives.lives_without_leader()), (expected, false, false));
    assert!(life_of('Z', 0x40_0004, 2).lives_without_leader() && !life_of('Z', 0x40_0004, 2).is_over());
    assert!(!life_of('Z', 0x40_0004, 1).lives_without_leader() && life_of('Z', 0x40_0004, 1).is_over());
    assert!(life_of('D', 0x40_0004, 1).is_over() && life_of('I', 0x20_8040, 1).of_kernel);
    assert!(matches!(life(procfs.path(), 4712), Err(ProcessError::Gone { tgid: 4712 })));
}

/// 4 is a child of 3, that one of 2, that one of 1; the kernel's own 5 has no parent.
#[test]
fn a_process_descends_from_its_ancestors_and_not_from_itself() {
    let procfs = tempfile::tempdir().unwrap();
    for (pid, parent) in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 0)] {
        let folder = procfs.path().join(pid.to_string());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("stat"), format!("{pid} (a) S {parent} {}\n", "0 ".repeat(48))).unwrap();
    }
    let of = |pid, ancestor| descends(procfs.path(), pid, ancestor);
    assert!(of(4, 3) && of(4, 2) && of(4, 1));
    assert!(!of(4, 4) && !of(2, 4) && !of(5, 1) && !of(5, 0));
    assert!(!of(6, 1), "it does not exist");
    // A loop is no reason to read for ever.
    fs::write(procfs.path().join("2/stat"), format!("2 (a) S 3 {}\n", "0 ".repeat(48))).unwrap();
    assert!(!of(4, 1));
}
