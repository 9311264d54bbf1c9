//! A real client: Debian's rocminfo, so the real ROCr and thunk. What kfd-trace counts per command equals
//! what strace shows on its KFD descriptors in an equal run; errnos too, except for WAIT_EVENTS.

use kfd_trace_tests::harness::events::command;
use kfd_trace_tests::harness::tracer::NO_MQD;
use kfd_trace_tests::harness::{Stream, VmKernel};
use std::collections::BTreeMap;
use std::process::Command;

const WAIT_EVENTS: u32 = 0x0c;

/// Calls by command and errno (by name, `None` for success or where it is not measured).
type Calls = BTreeMap<(u32, Option<String>), u64>;

/// rocminfo's calls as strace shows them, by command in raw numbers.
fn under_strace() -> Calls {
    let log = std::env::temp_dir().join("rocminfo.strace");
    let status = Command::new("strace")
        .args(["-f", "-X", "raw", "-e", "trace=ioctl,openat", "-o"])
        .arg(&log)
        .arg("rocminfo")
        .status()
        .expect("strace");
    assert!(status.success(), "{status}");
    let text = std::fs::read_to_string(&log).expect("the log of strace");
    calls_in(&text)
}

/// Calls on descriptors of /dev/kfd. strace splits a call that another thread interrupts into two lines.
fn calls_in(text: &str) -> Calls {
    let mut descriptors = Vec::new();
    let mut begun: BTreeMap<&str, &str> = BTreeMap::new();
    let mut calls = Calls::new();
    for line in text.lines() {
        let (thread, call) = line.split_once(' ').expect("a thread id");
        let call = call.trim_start();
        if let Some((head, _)) = call.split_once("<unfinished") {
            begun.insert(thread, head);
            continue;
        }
        let resumed = call.starts_with("<...");
        let head = if resumed { begun.remove(thread).unwrap_or(call) } else { call };
        let Some((_, result)) = call.rsplit_once(" = ") else { continue };
        if head.starts_with("openat(") && head.contains("\"/dev/kfd\"") {
            descriptors.extend(result.split(' ').next().and_then(|fd| fd.parse::<i32>().ok()));
        }
        let Some(arguments) = head.strip_prefix("ioctl(") else { continue };
        let mut arguments = arguments.split(", ");
        let fd = arguments.next().and_then(|fd| fd.parse::<i32>().ok());
        if !fd.is_some_and(|fd| descriptors.contains(&fd)) {
            continue;
        }
        let cmd = arguments.next().and_then(|cmd| u32::from_str_radix(cmd.trim_start_matches("0x"), 16).ok());
        let cmd = cmd.unwrap_or_else(|| panic!("a command in {line}"));
        let failed = result.strip_prefix("-1 ").and_then(|rest| rest.split(' ').next());
        let errno = failed.filter(|_| cmd & 0xff != WAIT_EVENTS).map(str::to_owned);
        *calls.entry((cmd, errno)).or_default() += 1;
    }
    calls
}

fn traced() -> Calls {
    let mut stream = Stream::tracing(&[&NO_MQD[..], &["--event", "ioctl"]].concat()).expect("a stream");
    let output = Command::new("rocminfo").output().expect("rocminfo");
    assert!(output.status.success(), "{}", output.status);
    assert!(String::from_utf8_lossy(&output.stdout).contains("Agent 1"), "it lists the CPU agent");
    let summary = stream.finish().expect("a summary");
    assert_eq!(summary["lost"], serde_json::json!({}), "nothing was lost");
    let mut calls = Calls::new();
    for event in stream.events("ioctl") {
        *calls.entry((command(&event), event["errno"].as_str().map(str::to_owned))).or_default() += 1;
    }
    calls
}

#[test]
fn counts_and_errnos_equal_those_of_strace() {
    let kernel = VmKernel::from_env().expect("the kernel");
    if kernel.driver_is_from("7.2") {
        // Its kfd_open refuses without a GPU node: see the test of refused operations.
        return;
    }
    let expected = under_strace();
    let seen = traced();
    println!("rocminfo on {}: {seen:x?}", kernel.series);
    assert_eq!(seen, expected);
    let unknown = seen.keys().find(|(cmd, _)| *cmd == 0xc028_4b82).expect("ROCm's own 0x82 of size 0x28");
    assert_eq!(unknown.1.as_deref(), Some("ENOTTY"), "this driver does not know it");
    assert!(seen.len() >= 4, "a series of ioctls: {seen:x?}");
}

#[test]
fn an_interrupted_call_is_read_as_one() {
    let text = "7 openat(-100, \"/dev/kfd\", 0x80002) = 3\n\
                7 ioctl(3, 0xc0184b0c, 0x7f <unfinished ...>\n\
                8 ioctl(4, 0x80084b01, 0x7f) = 0\n\
                8 ioctl(3, 0xc0284b82, 0x7f) = -1 ENOTTY (Inappropriate ioctl for device)\n\
                7 <... ioctl resumed>) = -1 EINTR (Interrupted system call)\n";
    let expected = [((0xc018_4b0c, None), 1), ((0xc028_4b82, Some("ENOTTY".to_owned())), 1)];
    assert_eq!(calls_in(text), Calls::from(expected));
}
