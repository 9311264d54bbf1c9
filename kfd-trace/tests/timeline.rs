//! `kfd-trace timeline` as a separate process: logs of AMD_LOG_LEVEL in the trace, and what it does to files. The trace is
//! read with the tests' own messages.

use kfd_trace::recording::compress;
use prost::Message as _;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[path = "../../tests/src/harness/pftrace/messages.rs"]
mod messages;

use messages::{Event, Trace};

/// `TIME TYPE PATH NAME` of each event that is no counter, by time.
fn events(trace: &Path) -> Vec<String> {
    let trace = Trace::decode(&fs::read(trace).expect("a trace")[..]).expect("messages");
    let (mut names, mut tracks, mut events) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for packet in trace.packets {
        let new = packet.interned.into_iter().flat_map(|interned| interned.names);
        names.extend(new.map(|name| (name.number, name.name)));
        if let Some(track) = packet.track {
            tracks.insert(track.uuid.expect("a uuid"), track);
        }
        if let Some(event) = packet.event {
            events.push((packet.timestamp.expect("a time"), event));
        }
    }
    events.sort_by_key(|(at_ns, _)| *at_ns);
    let path = |uuid: Option<u64>| {
        let mut path = String::new();
        let mut next = uuid;
        while let Some(track) = next.and_then(|uuid| tracks.get(&uuid)) {
            path = format!("{}/{path}", track.name.as_deref().unwrap_or_default());
            next = track.parent;
        }
        path.trim_end_matches('/').to_owned()
    };
    let line = |(at_ns, event): &(u64, Event)| {
        let kind = ["?", "begin", "end", "instant"].get(usize::try_from(event.kind?).ok()?)?;
        let name = names.get(&event.name).cloned().flatten().unwrap_or_default();
        Some(format!("{at_ns} {kind} {} {name}", path(event.track)).trim_end().to_owned())
    };
    events.iter().filter_map(line).collect()
}

/// A process (PID 4321, in its container 7) and a queue of it, from 1.0 ms to 9.0 ms; CLOCK_BOOTTIME is 5 ms more.
const RECORDING: &str = r#"{"begin":{"kfd_trace_recording":1,"program":"kfd-trace","machine":{"host":"","kernel":"","machine":""},"at_ns":5,"unix_ns":1790000000000000000,"selected":false,"limits":{"processes":16384,"ended_processes":1024,"linger_ns":300000000000,"ended_queues":32},"sample_ns":0}}
{"clock":{"wall_ns":1790000000000000000,"boot_ns":5000000}}
"existing"
{"input":{"event":{"mono_ns":500000,"process":1,"tgid":4321,"tid":4322,"task_tgid":4321,"cpu":0,"in_ioctl":null,"body":{"process_seen":{"standing":false,"start_boottime_ns":1000,"ns_tgid":7,"uid":1000,"comm":"train","cgroup_leaf":null,"context_id":null}}}}}
{"input":{"event":{"mono_ns":1000000,"process":1,"tgid":4321,"tid":4322,"task_tgid":4321,"cpu":0,"in_ioctl":null,"body":{"queue_create":{"queue_id":4,"gpu_id":58270,"queue_type":"compute_aql","ring_address":140382729928704,"ring_size":1048576,"write_pointer_address":140392085028920,"read_pointer_address":140392085028992,"doorbell_offset":16,"priority":7,"percent":100,"sdma_engine_id":null,"active":true,"evicted":false,"suspended":false,"origin":"ioctl"}}}}}
{"input":{"event":{"mono_ns":2000000,"process":1,"tgid":4321,"tid":4322,"task_tgid":4321,"cpu":0,"in_ioctl":null,"body":"close"}}}
{"input":{"event":{"mono_ns":9000000,"process":1,"tgid":4321,"tid":4322,"task_tgid":4321,"cpu":0,"in_ioctl":null,"body":{"queue_destroy":{"queue_id":4,"gpu_id":58270,"last":null}}}}}
{"input":{"event":{"mono_ns":9500000,"process":1,"tgid":4321,"tid":77,"task_tgid":77,"cpu":0,"in_ioctl":null,"body":"process_release"}}}
{"end":{"at_ns":9600000,"text":"a table\n","json":"{}\n"}}
"#;

const LOG: &str = "\
:3:rocdevice.cpp            :3048: 1500 us: [pid:7 tid: 0x1a2b3] Created SWq=0x7faf945b8000 to map on HWq=0x7fad66c00000 with size 16384 with priority 1, cooperative: 0
:5:command.cpp              :355 : 2000 us: [pid:7 tid: 0x1a2b3] Command (KernelExecution) enqueued: 0xd176c10 to queue: 0xbe00d60
:3:rocvirtual.cpp           :3351: 2001 us: [pid:7 tid: 0x1a2b3] ShaderName : gemm(float*)
:4:rocvirtual.cpp           :1177: 2002 us: [pid:7 tid: 0x1a2b3] SWq=0x7faf945b8000, HWq=0x7fad66c00000, id=1, Dispatch Header = 0xb02 (type=2, barrier=1, acquire=1, release=1), setup=3, grid=[64, 1, 1], workgroup=[32, 1, 1], private_seg_size=0, group_seg_size=0, kernel_obj=0x7f00, kernarg_address=0x7f00, completion_signal=0x50, correlation_id=0, rptr=0, wptr=0
:4:rocvirtual.cpp           :1267: 2003 us: [pid:7 tid: 0x1a2b3] SWq=0x7faf945b8000, HWq=0x7fad66c00000, id=1, BarrierAND Header = 0x1503 (type=3, barrier=1, acquire=2, release=2), dep_signal=[0x0, 0x0, 0x0, 0x0, 0x0], completion_signal=0x0, rptr=0, wptr=1
:3:rocvirtual.cpp           :175 : 2100 us: [pid:7 tid: 0x1a2b3] Signal = (0x50), Translated start/end = 7010123 / 7050456, Elapsed = 40333 ns, ticks start/end = 1 / 2, Ticks elapsed = 1
";

/// What the log adds.
const LOGGED: [&str; 4] = [
    "2002000 instant AMD logs app.log",
    "2003000 instant train/queue 4/AMD log: submitted barrier_and",
    "2010123 begin train/queue 4/AMD log: running gemm(float*)",
    "2050456 end train/queue 4/AMD log: running",
];

struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let files = Files { folder: tempfile::tempdir().expect("a folder") };
        fs::write(files.path("a.rec"), compress(RECORDING.as_bytes()).expect("a block")).expect("a file");
        fs::write(files.path("app.log"), LOG).expect("a file");
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Each word with a dot is a file of the folder. Returns the exit code and standard error.
    fn timeline(&self, words: &str) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-trace"));
        command.arg("timeline").args(words.split(' ').filter(|word| !word.is_empty()));
        let Output { status, stderr, .. } =
            command.current_dir(self.folder.path()).output().expect("the program");
        (status.code(), String::from_utf8(stderr).expect("text"))
    }
}

#[test]
fn a_logs_dispatches_are_on_the_clock_of_the_recording() {
    let files = Files::new();
    let (code, why) = files.timeline("a.rec");
    assert_eq!(code, Some(0), "{why}");
    let without = events(&files.path("a.pftrace"));
    let lives = ["1000000 begin train/queue 4 gpu_id=58270 compute_aql", "9000000 end train/queue 4"];
    assert!(lives.iter().all(|line| without.iter().any(|other| other == line)), "{without:?}");

    let (code, why) = files.timeline("a.rec --amd-log app.log");
    assert_eq!(code, Some(0), "{why}");
    let with = events(&files.path("a.pftrace"));
    let added: Vec<&String> = with.iter().filter(|line| !without.contains(line)).collect();
    let mut sorted = LOGGED;
    sorted.sort_unstable();
    let mut added: Vec<&str> = added.into_iter().map(String::as_str).collect();
    added.sort_unstable();
    assert_eq!((added.as_slice(), with.len()), (sorted.as_slice(), without.len() + LOGGED.len()));
    for expected in [
        "app.log: 2 packets and 0 copies, 1 time of the GPU, right to 50.5us or better",
        "3 lines lie within the life of 1 queue, and would not if it were 501.0us ahead or 7.00ms behind",
    ] {
        assert!(why.contains(expected), "{why}");
    }

    let gzip = Command::new("gzip").arg(files.path("app.log")).status().expect("gzip");
    assert!(gzip.success());
    let (code, why) = files.timeline("a.rec --amd-log app.log.gz");
    assert_eq!((code, events(&files.path("a.pftrace")).len()), (Some(0), with.len()), "{why}");
}

/// The log of [`LOG`] without a recording.
#[test]
fn a_log_alone_is_a_trace() {
    let files = Files::new();
    let (code, why) = files.timeline("--amd-log app.log");
    assert_eq!(code, Some(0), "{why}");
    let alone = events(&files.path("app.pftrace"));
    let tracks = alone.iter().filter(|line| line.contains(" AMD log app.log, PID 7/AMD log: queue HWq 0x"));
    assert_eq!(tracks.count(), LOGGED.len() - 1, "each but the log's own: {alone:?}");
    for expected in [
        "app.pftrace: ",
        "app.log: 2 packets and 0 copies, 1 time of the GPU",
        "there is no recording to join it with",
    ] {
        assert!(why.contains(expected), "{why}");
    }
    let (code, _) = files.timeline("--amd-log app.log -o b.pftrace");
    assert_eq!((code, events(&files.path("b.pftrace"))), (Some(0), alone));
    fs::write(files.path("none.log"), "no log\n").expect("a file");
    for (words, code, expected) in [
        ("--amd-log app.log --pid 7", 2, "are chosen in a recording"),
        ("--amd-log app.log -o app.log", 2, "which is read"),
        ("--amd-log none.log", 1, "it has no packets with times"),
        ("", 2, "<FILE>"),
    ] {
        let (found, why) = files.timeline(words);
        assert_eq!(found, Some(code), "{words}: {why}");
        assert!(why.contains(expected), "{words}: {why}");
    }
}

#[test]
fn a_log_that_cannot_be_joined_is_refused_and_the_recording_is_in_the_trace() {
    let files = Files::new();
    assert_eq!(files.timeline("a.rec -o alone.pftrace").0, Some(0));
    let alone = fs::read(files.path("alone.pftrace")).expect("a trace");
    let other_time = LOG.replace(" 200", " 7700").replace(" 2100 us", " 77100 us");
    let cases = [
        (other_time, "it is of another time, boot or machine"),
        (LOG.replace("pid:7 ", "pid:9 "), "the recording's queue of that address is of another PID"),
        (LOG.replace("HWq=0x7fad66c00000", "HWq=0x10"), "the recording has no queue of that address"),
        ("no log\n".to_owned(), "it has no packets with times"),
    ];
    for (log, expected) in cases {
        fs::write(files.path("app.log"), log).expect("a file");
        let (code, why) = files.timeline("a.rec -o b.pftrace --amd-log app.log");
        assert!(code == Some(1) && why.contains("app.log: nothing of it is in the trace: "), "{why}");
        assert!(why.contains(expected), "{why}");
        assert_eq!(fs::read(files.path("b.pftrace")).expect("a trace"), alone, "{expected}");
    }
    let (code, why) = files.timeline("a.rec --amd-log none.log");
    assert!(code == Some(1) && why.contains("cannot read none.log"), "{why}");
    let (code, why) = files.timeline("none.rec");
    assert!(code == Some(1) && why.contains("none.rec"), "{why}");
    for (words, expected) in [
        ("a.rec --amd-log -", "a log is read twice"),
        ("a.rec --amd-log .", "a log is read twice"),
        ("--duration 1s --amd-log .", "a log is read twice"),
        ("--duration 1s --amd-log -", "a log is read twice"),
    ] {
        let (code, why) = files.timeline(words);
        assert!(code == Some(2) && why.contains(expected), "{why}");
    }
    assert!(!files.path("a.pftrace").exists(), "it was known before");
}

#[test]
fn a_damaged_log_says_so_and_not_that_it_has_nothing() {
    let files = Files::new();
    let gzip = Command::new("gzip").arg(files.path("app.log")).status().expect("gzip");
    assert!(gzip.success());
    let whole = fs::read(files.path("app.log.gz")).expect("a file");
    fs::write(files.path("app.log.gz"), &whole[..30]).expect("a file");
    let (code, why) = files.timeline("a.rec --amd-log app.log.gz");
    assert_eq!(code, Some(1), "{why}");
    let expected =
        "app.log.gz: the end of the compressed data is missing; nothing of what is before is in the trace: ";
    assert!(why.contains(expected), "{why}");
    fs::write(files.path("app.log.gz"), &whole[..whole.len() - 8]).expect("a file");
    let (code, why) = files.timeline("a.rec --amd-log app.log.gz");
    let expected = "app.log.gz: the end of the compressed data is missing; what came before is in the trace";
    assert!(code == Some(1) && why.contains(expected), "{why}");
}

#[test]
fn nothing_that_is_read_is_written_over() {
    let files = Files::new();
    let daemon = "d/kfd-trace-00000001-20261124T031245Z.rec";
    fs::create_dir(files.path("d")).expect("a folder");
    fs::copy(files.path("a.rec"), files.path(daemon)).expect("a file");
    fs::hard_link(files.path(daemon), files.path("link")).expect("a link");
    for words in [
        format!("d -o {daemon}"),
        "d -o link".to_owned(),
        "a.rec -o a.rec".to_owned(),
        "a.rec --amd-log app.log -o app.log".to_owned(),
        "--duration 1s --amd-log app.log -o app.log".to_owned(),
    ] {
        let (code, why) = files.timeline(&words);
        assert!(code == Some(2) && why.contains("which is read: choose another --output"), "{words}: {why}");
    }
    let same = |name: &str, before: &[u8]| fs::read(files.path(name)).expect("the file") == before;
    let recording = fs::read(files.path("a.rec")).expect("the file");
    assert!(same(daemon, &recording) && same("app.log", LOG.as_bytes()));
    assert_eq!(files.timeline("d -o d/all.pftrace").0, Some(0));
    assert!(events(&files.path("d/all.pftrace")).len() > 5);
}

#[test]
fn where_nothing_can_be_traced_now_the_last_trace_stays() {
    let files = Files::new();
    fs::write(files.path("last.pftrace"), "of last night").expect("a file");
    let (code, why) = files.timeline("--duration 1s -o last.pftrace --path.sysfs=/nowhere");
    assert_eq!(code, Some(3), "{why}");
    assert_eq!(fs::read(files.path("last.pftrace")).expect("the file"), b"of last night");
    let left: Vec<_> = fs::read_dir(files.folder.path()).expect("the folder").collect();
    assert_eq!(left.len(), 3, "no recording is left: {left:?}");
    for (words, expected) in [
        ("", "<FILE>"),
        ("a.rec --duration 1s", "cannot be used with"),
        ("a.rec --cmdline", "cannot be used with"),
        ("a.rec --runlists", "--runlists is of what is traced with --duration"),
        ("--duration 1s -o none/a.pftrace", "cannot write none/a.pftrace"),
    ] {
        let (code, why) = files.timeline(words);
        assert!(code.is_some_and(|code| code > 0) && why.contains(expected), "{words}: {why}");
    }
}

#[test]
fn only_what_is_requested_is_in_the_trace() {
    let files = Files::new();
    let of = |words: &str| {
        let (code, why) = files.timeline(&format!("a.rec -o some.pftrace {words}"));
        assert_eq!(code, Some(0), "{why}");
        events(&files.path("some.pftrace"))
    };
    let all = of("");
    let close = "2000000 instant train close";
    assert!(all.iter().any(|line| line == close), "{all:?}");
    let lives = of("--event queue_create");
    assert!(lives.len() < all.len() && lives.iter().all(|line| line != close), "{lives:?}");
    assert!(lives.iter().any(|line| line == "9000000 end train/queue 4"), "{lives:?}");
    for words in ["--pid 4321", "--comm train", "--ns-pid 7"] {
        assert_eq!(of(words), all, "{words}");
    }
    for words in ["--pid 4322", "--comm serve", "--ns-pid 8", "--pod a/b", "--container 5d0f3ac7"] {
        assert_eq!(of(words), [""; 0], "{words}");
    }
}
