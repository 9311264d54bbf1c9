//! What an attacker who has taken over a confined process tries, alone and in combination.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::os::fd::RawFd;
use std::process::Command;
use std::thread;

/// What the process could act on: descriptors that its parent shares, and another process.
#[derive(Clone, Copy)]
pub(super) struct Targets {
    /// A listening socket.
    pub(super) listener: RawFd,
    /// Port of a service on loopback.
    pub(super) internal: u16,
    /// A socket whose other end the parent writes to.
    pub(super) lane: RawFd,
    /// A socket by which the parent writes.
    pub(super) log: RawFd,
    /// A process of the same user.
    pub(super) victim: u32,
}

impl Targets {
    pub(super) fn text(self) -> String {
        let Targets { listener, internal, lane, log, victim } = self;
        format!("{listener} {internal} {lane} {log} {victim}")
    }

    pub(super) fn parse(text: &str) -> Self {
        let numbers: Vec<i32> = text.split(' ').map(|number| number.parse().unwrap()).collect();
        let [listener, internal, lane, log, victim] = numbers[..] else { panic!("{text}") };
        let (internal, victim) = (u16::try_from(internal).unwrap(), u32::try_from(victim).unwrap());
        Targets { listener, internal, lane, log, victim }
    }
}

/// A call by its number: the C library's functions make others, too.
fn call<const N: usize>(number: libc::c_long, arguments: [i64; N]) -> io::Result<()> {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: addresses among the arguments are those of this process's own variables, which outlive the call, and which
    // are as long as the call takes them for. No call changes what this program relies on: those that could are refused.
    let returned = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn address<T>(value: &T) -> i64 {
    std::ptr::from_ref(value) as i64
}

/// An attempt, and its result.
type Attempt = (&'static str, io::Result<()>);

/// All of them, with what each is for.
pub(super) fn attempts(targets: &Targets) -> Vec<Attempt> {
    let all = [signals(targets), sockets(targets), others(targets), itself(), files()];
    all.into_iter().flatten().collect()
}

/// include/uapi/asm-generic/fcntl.h
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;

/// A signal to another process, whose parent then writes to the lane.
fn signals(targets: &Targets) -> Vec<Attempt> {
    let (lane, victim) = (targets.lane.into(), i64::from(targets.victim));
    let fcntl = |command: i32, value: i64| call(libc::SYS_fcntl, [lane, command.into(), value]);
    let ioctl = |request: i64, value: &i32| call(libc::SYS_ioctl, [lane, request, address(value)]);
    let (owner, on) = (targets.victim.cast_signed(), 1);
    // struct f_owner_ex: F_OWNER_PID, and the PID.
    let owner_ex = [1, owner];
    let [fiosetown, siocspgrp, fioasync] = [0x8901, 0x8902, 0x5452];
    vec![
        ("to own the lane by another process", fcntl(libc::F_SETOWN, victim)),
        ("to own it by its structure", fcntl(F_SETOWN_EX, address(&owner_ex))),
        ("to have it send SIGKILL", fcntl(F_SETSIG, libc::SIGKILL.into())),
        ("to have it signal", fcntl(libc::F_SETFL, (libc::O_ASYNC | libc::O_NONBLOCK).into())),
        ("to own it by FIOSETOWN", ioctl(fiosetown, &owner)),
        ("to own it by SIOCSPGRP", ioctl(siocspgrp, &owner)),
        ("to have it signal by FIOASYNC", ioctl(fioasync, &on)),
        ("to be signalled about a folder", fcntl(libc::F_NOTIFY, 1)),
        ("to be signalled about a lease", fcntl(libc::F_SETLEASE, libc::F_WRLCK.into())),
        ("to signal", call(libc::SYS_kill, [victim, libc::SIGKILL.into()])),
        ("to signal a thread", call(libc::SYS_tgkill, [victim, victim, libc::SIGKILL.into()])),
        ("to queue a signal", call(libc::SYS_rt_sigqueueinfo, [victim, libc::SIGKILL.into(), 0])),
        ("to hold another process", call(libc::SYS_pidfd_open, [victim, 0])),
    ]
}

/// Connections from inside, and the end of what the parent shares.
fn sockets(targets: &Targets) -> Vec<Attempt> {
    let Targets { listener, internal, lane, log, .. } = *targets;
    let (listener, lane, log) = (i64::from(listener), i64::from(lane), i64::from(log));
    // struct sockaddr_in of 127.0.0.1 and the port.
    let to: [u16; 8] = [
        u16::try_from(libc::AF_INET).unwrap(),
        internal.to_be(),
        127_u16.to_le(),
        0x0100_u16.to_le(),
        0,
        0,
        0,
        0,
    ];
    let nowhere: [u16; 8] = [0; 8];
    let (text, one, accepted) = (*b"GET /", 1_i32, i64::from(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC));
    let send = |socket: i64, flags: i32, to: i64, length: i64| {
        call(libc::SYS_sendto, [socket, address(&text), 5, flags.into(), to, length])
    };
    let set = |socket: i64, level: i32, name: i32| {
        call(libc::SYS_setsockopt, [socket, level.into(), name.into(), address(&one), 4])
    };
    let get = |level: i32, name: i32| {
        let (value, length) = ([0_u8; 64], 64_u32);
        call(libc::SYS_getsockopt, [lane, level.into(), name.into(), address(&value), address(&length)])
    };
    let shut = |socket: i64| call(libc::SYS_shutdown, [socket, libc::SHUT_RDWR.into()]);
    let both = libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL;
    let accepts = |result: io::Result<()>| match result {
        // Nobody has connected.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other,
    };
    // struct sock_fprog of one instruction: BPF_RET | BPF_K, 0.
    let drops_all = [6_u64, 0];
    let program = [1_u64, address(&drops_all).cast_unsigned()];
    let attach = [listener, libc::SOL_SOCKET.into(), libc::SO_ATTACH_FILTER.into(), address(&program), 16];
    vec![
        ("to accept", accepts(call(libc::SYS_accept4, [listener, 0, 0, accepted]))),
        ("to read a socket's error", get(libc::SOL_SOCKET, libc::SO_ERROR)),
        ("to have connections dropped", call(libc::SYS_setsockopt, attach)),
        ("to keep them dropped", set(listener, libc::SOL_SOCKET, libc::SO_LOCK_FILTER)),
        ("to have them wait for data", set(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT)),
        ("to connect by the first data", set(lane, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT)),
        ("to learn the tracer's PID", get(libc::SOL_SOCKET, libc::SO_PEERCRED)),
        ("to make the listener block", call(libc::SYS_fcntl, [listener, libc::F_SETFL.into(), 0])),
        ("to shorten its backlog", call(libc::SYS_listen, [listener, 0])),
        ("to shut the listener down", shut(listener)),
        ("to connect it by data", send(listener, libc::MSG_FASTOPEN, address(&to), 16)),
        ("to connect it by data without a signal", send(listener, both, address(&to), 16)),
        ("to send to an address", send(lane, libc::MSG_NOSIGNAL, address(&to), 16)),
        ("to send to an address above 4 GiB", send(lane, libc::MSG_NOSIGNAL, 1 << 32, 16)),
        ("to send out of band", send(lane, libc::MSG_OOB, 0, 0)),
        ("to connect the listener", call(libc::SYS_connect, [listener, address(&to), 16])),
        ("to disconnect the listener", call(libc::SYS_connect, [listener, address(&nowhere), 16])),
        ("to connect", TcpStream::connect(("127.0.0.1", internal)).map(drop)),
        ("to shut the log down", shut(log)),
        ("to make the log block", call(libc::SYS_fcntl, [log, libc::F_SETFL.into(), 0])),
        ("to duplicate a descriptor", call(libc::SYS_fcntl, [lane, libc::F_DUPFD.into(), 0])),
        ("to pass a descriptor on", call(libc::SYS_sendmsg, [lane, 0, 0])),
        ("to open a socket", call(libc::SYS_socket, [libc::AF_INET.into(), libc::SOCK_STREAM.into(), 0])),
    ]
}

/// Another process's memory and program.
fn others(targets: &Targets) -> Vec<Attempt> {
    let victim = i64::from(targets.victim);
    let buffer = [0_u8; 8];
    // struct iovec
    let part = [address(&buffer), 8];
    let read = [victim, address(&part), 1, address(&part), 1, 0];
    vec![
        ("to read another's memory", call(libc::SYS_process_vm_readv, read)),
        ("to open another's memory", fs::File::open(format!("/proc/{victim}/mem")).map(drop)),
        ("to trace another", call(libc::SYS_ptrace, [i64::from(libc::PTRACE_ATTACH), victim, 0, 0])),
        ("to limit another", call(libc::SYS_prlimit64, [victim, libc::RLIMIT_CPU.into(), address(&part), 0])),
        ("to slow another down", call(libc::SYS_setpriority, [0, victim, 19])),
        ("to run a program", Command::new("/bin/true").status().map(drop)),
        ("to become root", call(libc::SYS_setresuid, [0, 0, 0])),
        ("to start a process", call(libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0, 0])),
    ]
}

/// More of the machine for itself.
fn itself() -> Vec<Attempt> {
    let (write, code) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ | libc::PROT_EXEC);
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let map = |protection: i32, flags: i32, file: i64| {
        call(libc::SYS_mmap, [0, 4096, protection.into(), flags.into(), file, 0])
    };
    let named = *b"kfd-trace\0";
    let name = i64::from(libc::PR_SET_NAME);
    vec![
        ("to map memory", map(write, private, -1)),
        ("to map code", map(code, private, -1)),
        ("to map a file", map(write, libc::MAP_PRIVATE, 0)),
        ("to take huge pages", map(write, private | libc::MAP_HUGETLB, -1)),
        ("to lock memory", map(write, private | libc::MAP_LOCKED, -1)),
        ("to have memory executed", call(libc::SYS_mprotect, [0, 4096, code.into()])),
        ("to have memory merged", call(libc::SYS_madvise, [0, 4096, libc::MADV_MERGEABLE.into()])),
        ("to start a thread", thread::Builder::new().spawn(|| ()).map(drop)),
        ("to start one by clone3", call(libc::SYS_clone3, [0, 0])),
        ("to have another name", call(libc::SYS_prctl, [name, address(&named)])),
        ("to be dumped", call(libc::SYS_prctl, [i64::from(libc::PR_SET_DUMPABLE), 1])),
        ("to outlive the tracer", call(libc::SYS_prctl, [i64::from(libc::PR_SET_PDEATHSIG), 0])),
        ("to be nicer to itself", call(libc::SYS_setpriority, [0, 0, 0])),
        ("to change its scheduler", call(libc::SYS_sched_setscheduler, [0, 0, address(&0_i32)])),
        (
            "to raise its limits",
            call(libc::SYS_prlimit64, [0, libc::RLIMIT_NPROC.into(), address(&[9_u64; 2]), 0]),
        ),
    ]
}

fn files() -> Vec<Attempt> {
    vec![
        ("to open /etc/shadow", fs::File::open("/etc/shadow").map(drop)),
        ("to open /etc/passwd", fs::File::open("/etc/passwd").map(drop)),
        ("to open its own memory", fs::File::open("/proc/self/mem").map(drop)),
        ("to list /", fs::read_dir("/").map(drop)),
        ("to write a file", fs::write("/tmp/kfd-trace-confined", "x")),
    ]
}
