//! What a confined process can do: each attempt of [`attempts`] is made under its filter, with descriptors that its parent
//! shares, and the parent looks for the effect.

mod attempts;

use super::*;
use attempts::{Targets, attempts};
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::process::{Pid, test_kill_process};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;

/// Targets of the process that a test has started. Parts of tests do nothing without it: they would confine the process
/// that runs all tests.
const TARGETS: &str = "KFD_TRACE_TEST_TARGETS";

/// A test of this file as a process of its own.
fn started(name: &str, targets: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = format!("runtime::confine::tests::{name}");
    command.args(["--exact", &name, "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(TARGETS, targets).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// What it has tried, with the results.
fn tried(child: &mut Child) -> BTreeMap<String, String> {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
    lines
        .filter_map(|line| Some(line.split_once("tried ")?.1.to_owned()))
        .take_while(|line| line != "all")
        .map(|line| line.split_once(": ").map(|(what, how)| (what.to_owned(), how.to_owned())).unwrap())
        .collect()
}

/// Run by the test below in its own process.
#[test]
#[ignore = "a part of a_confined_process_reaches_nothing"]
fn child() {
    let Ok(targets) = std::env::var(TARGETS) else { return };
    let targets = Targets::parse(&targets);
    let (works, work) = std::sync::mpsc::channel();
    let start = || thread::Builder::new().spawn(move || works.send("a thread of before works").unwrap());
    let ((thread, left), threads) = (confine(Seccomp::Required, 7, start).unwrap(), thread_count());
    assert_eq!((left, work.recv().unwrap()), (7, "a thread of before works"));
    thread.join().unwrap();
    for (what, result) in attempts(&targets) {
        println!("tried {what}: {:?}", result.map_err(|error| error.raw_os_error()));
    }
    println!("tried to count threads, {threads}: Ok(())\ntried all");
    io::stdout().flush().unwrap();
    // Until it was looked at.
    let _ = io::stdin().read(&mut [0]);
}

/// /proc cannot be read any more: 0.
fn thread_count() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// A descriptor that children inherit.
fn shared<F: AsFd>(file: F) -> F {
    let flags = fcntl_getfd(&file).unwrap();
    fcntl_setfd(&file, flags - FdFlags::CLOEXEC).unwrap();
    file
}

fn status(pid: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap()
}

/// The words after the first of the line that begins with this, of some thread's status.
fn field(status: &str, name: &str) -> Vec<String> {
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line[name.len()..].split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_confined_process_reaches_nothing() {
    let listener = shared(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    listener.set_nonblocking(true).unwrap();
    let internal = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    internal.set_nonblocking(true).unwrap();
    let (mut lane, theirs) = UnixStream::pair().unwrap();
    let (theirs, (mut log, reads_log)) = (shared(theirs), UnixStream::pair().unwrap());
    let (log_fd, mut victim) =
        (shared(log.try_clone().unwrap()), Command::new("sleep").arg("1000").spawn().unwrap());
    let targets = Targets {
        listener: listener.as_raw_fd(),
        internal: internal.local_addr().unwrap().port(),
        lane: theirs.as_raw_fd(),
        log: log_fd.as_raw_fd(),
        victim: victim.id(),
    };
    let mut child = started("child", &targets.text()).spawn().unwrap();
    let tried = tried(&mut child);
    // Any thread that is confined: the one of the test need not be the first.
    let threads = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let threads: Vec<String> =
        threads.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap()).collect();
    let confined = threads.iter().find(|status| field(status, "CapEff:") == ["0000000000000000"]).unwrap();
    let limits = status(child.id(), "limits");

    // The effects.
    lane.write_all(b"a byte that a signal could be sent for").unwrap();
    assert!(internal.accept().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock), "it connected");
    TcpStream::connect(listener.local_addr().unwrap()).expect("the listener listens");
    let (mut accepted, _) = (0..1000)
        .find_map(|_| {
            listener.accept().ok().or_else(|| {
                thread::sleep(Duration::from_millis(1));
                None
            })
        })
        .expect("the listener accepts");
    assert_eq!(accepted.read(&mut [0]).unwrap(), 0);
    assert!(listener.accept().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock), "it blocks");
    log.write_all(b"a line").expect("the log is open");
    (&reads_log).read_exact(&mut [0; 6]).unwrap();
    assert!(victim.try_wait().unwrap().is_none(), "another process was killed");
    victim.kill().unwrap();
    victim.wait().unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());

    // The attempts, each refused by itself.
    let (allowed, refused): (Vec<_>, Vec<_>) = tried.iter().partition(|(_, how)| *how == "Ok(())");
    let allowed: Vec<&str> = allowed.into_iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(
        allowed,
        ["to accept", "to count threads, 0", "to map memory", "to read a socket's error"].to_vec()
    );
    assert!(refused.len() > 45, "{refused:#?}");
    for (what, how) in refused {
        // Locked memory is refused by its limit, what needs a thread by the C library's name for that.
        let by_limit = [("to lock memory", "Err(Some(11))"), ("to start a thread", "Err(Some(11))")];
        assert!(how == "Err(Some(1))" || by_limit.contains(&(what, how)), "{what}: {how}");
    }

    // Who it is.
    for name in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(confined, name), ["0000000000000000"], "{name}");
    }
    assert_eq!(
        (field(confined, "NoNewPrivs:"), field(confined, "Seccomp:")),
        (vec!["1".to_owned()], vec!["2".to_owned()])
    );
    let has = |name: &str, most: &str| field(&limits, name)[..2] == [most, most];
    for name in ["Max file size", "Max core file size", "Max processes", "Max locked memory"] {
        assert!(has(name, "0"), "{name}: {limits}");
    }
    if geteuid().is_root() {
        let ids = field(confined, "Uid:");
        let id: u32 = ids[0].parse().unwrap();
        assert!(
            id > 65_519 && ids == [&ids[0], &ids[0], "0", &ids[0]].map(ToString::to_string),
            "{confined}"
        );
        assert_eq!(field(confined, "Gid:"), [&ids[0], &ids[0], &ids[0], &ids[0]].map(ToString::to_string));
        assert_eq!(field(confined, "Groups:"), Vec::<String>::new());
    }
}

/// Run by the test below in its own process.
#[test]
#[ignore = "a part of without_a_filter_it_refuses_to_go_on"]
fn child_without_seccomp() {
    if std::env::var_os(TARGETS).is_none() {
        return;
    }
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let refused = seccompiler::SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let calls = [(libc::SYS_seccomp, vec![])].into();
    let filter =
        seccompiler::SeccompFilter::new(calls, seccompiler::SeccompAction::Allow, refused, arch).unwrap();
    let filter: seccompiler::BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter_all_threads(&filter).unwrap();
    let refuses = confine(Seccomp::Required, 0, || Ok(())).unwrap_err().to_string();
    let goes_on = confine(Seccomp::Optional, 0, || Ok(())).map(|((), left)| left);
    println!("tried with it: {refuses}\ntried without it: {goes_on:?}\ntried all");
}

#[test]
fn without_a_filter_it_refuses_to_go_on() {
    let mut child = started("child_without_seccomp", "").spawn().unwrap();
    let tried = tried(&mut child);
    assert!(child.wait().unwrap().success(), "{tried:?}");
    assert!(tried["with it"].ends_with("accept that with --without-seccomp"), "{tried:?}");
    assert_eq!(tried["without it"], "Ok(0)");
}

/// Run by the test below in its own process.
#[test]
#[ignore = "a part of a_scoped_process_signals_and_connects_to_nothing"]
fn child_scoped() {
    let Ok(victim) = std::env::var(TARGETS) else { return };
    let victim = victim.parse().ok().and_then(Pid::from_raw).unwrap();
    rustix::thread::set_no_new_privs(true).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let scoped = scope::scope();
    println!("tried to be scoped: {:?}", scoped.map_err(|error| error.raw_os_error()));
    println!("tried to signal: {:?}", test_kill_process(victim).map_err(Errno::raw_os_error));
    let connected = TcpStream::connect(listener.local_addr().unwrap()).map(drop);
    println!("tried to connect: {:?}\ntried all", connected.map_err(|error| error.raw_os_error()));
}

/// Whatever its user is.
#[test]
fn a_scoped_process_signals_and_connects_to_nothing() {
    let mut child = started("child_scoped", &std::process::id().to_string()).spawn().unwrap();
    let tried = tried(&mut child);
    assert!(child.wait().unwrap().success(), "{tried:?}");
    // An older kernel refuses, and changes nothing.
    let (signal, connect) =
        if tried["to be scoped"] == "Ok(())" { ("Err(1)", "Err(Some(13))") } else { ("Ok(())", "Ok(())") };
    assert_eq!((tried["to signal"].as_str(), tried["to connect"].as_str()), (signal, connect));
}
