//! One QEMU run. In: kernel, initramfs and the nonce of the guest's exit line. Out: the guest's report,
//! passed on, and how the run ended. QEMU never outlives us.

use crate::closing::Totals;
use crate::vm::console;
use crate::vm::emulator;
use crate::vm::pulse::Pulse;
use crate::vm::timing::{Mark, Timing};
use crate::vm::watch::{Done, Watch};
use anyhow::{Context as _, Result};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// One page of doorbells is plenty, but kfdsim checks for 8 MiB: the size of a real doorbell BAR's share.
const DOORBELL_BAR: &str = "8M";

pub(crate) struct Machine<'a> {
    pub(crate) vmlinuz: &'a Path,
    pub(crate) initramfs: &'a Path,
    /// Kernel log.
    pub(crate) console: &'a Path,
    /// Heartbeats and starts ([`Pulse`]).
    pub(crate) pulse: &'a Path,
    /// A disk image, written to in a copy.
    pub(crate) disk: Option<&'a Path>,
    /// Fake GPUs: one ivshmem device each.
    pub(crate) gpus: usize,
    pub(crate) time: Time,
    /// Folder of the emulator's packages.
    pub(crate) emulator: &'a Path,
}

/// What the guest's clocks count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    /// Two CPUs, each instruction 1 ns. Under KVM, where it can be used, the host's time.
    Shared,
    /// One CPU, each instruction 2^`shift` ns; never under KVM, so that counts repeat.
    Counted { shift: u32 },
}

impl Time {
    /// CPUs, and QEMU's `shift`.
    fn emulated(self) -> (u32, u32) {
        match self {
            Self::Shared => (2, 0),
            Self::Counted { shift } => (1, shift),
        }
    }
}

/// How the guest ended.
pub(crate) enum End {
    /// With its own exit line.
    Exit(i32),
    /// Without: why.
    Lost(String),
}

pub(crate) struct Run {
    pub(crate) end: End,
    pub(crate) totals: Totals,
    /// Closing lines seen: one for each test executable that came to its end.
    pub(crate) closings: usize,
    pub(crate) timing: Timing,
}

/// KVM only where the CPU reports support: an existing /dev/kvm may still hang the guest.
fn kvm_usable() -> bool {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let capable = flags.split_whitespace().any(|flag| flag == "svm" || flag == "vmx");
    capable && fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok()
}

impl Machine<'_> {
    fn command(&self) -> Command {
        let mut command = emulator::command(self.emulator);
        if self.time == Time::Shared && kvm_usable() {
            command.args(["-accel", "kvm", "-cpu", "host", "-smp", "2"]);
        } else {
            // Without cmpxchg16b, whose emulation may leave garbage in the flags: observed once as a double
            // fault right after it, in the slab allocator, its only user here. Without the string
            // instructions that are fast on real CPUs: an emulated one takes as many instructions as there
            // are bytes for each page that it clears.
            command.args(["-accel", "tcg,thread=single", "-cpu", "max,-cx16,-erms,-fsrm,-fsrs,-fzrm,-fsrc"]);
            // The guest's clocks advance with its instructions, so that a busy host does not affect its
            // measurements and timeouts; while all of its CPUs wait, they skip to the next timer.
            let (cpus, shift) = self.time.emulated();
            command.args(["-smp", &cpus.to_string(), "-icount", &format!("shift={shift},sleep=off")]);
        }
        command.args(["-m", "2G", "-no-reboot", "-nodefaults", "-display", "none"]);
        command.arg("-kernel").arg(self.vmlinuz).arg("-initrd").arg(self.initramfs);
        // The boot-time check of the timer interrupt counts on a CPU that is not shared: on a loaded host it
        // fails, and the kernel panics in setup_IO_APIC.
        let parameters = "console=ttyS0 panic=-1 oops=panic mitigations=off no_timer_check rcupdate.rcu_expedited=1 rdinit=/init";
        command.args(["-append", parameters]);
        if let Some(disk) = self.disk {
            let drive = format!("file={},format=raw,if=virtio,snapshot=on", disk.display());
            command.arg("-drive").arg(drive);
        }
        for gpu in 0..self.gpus {
            let memory = format!("memory-backend-ram,id=hm{gpu},size={DOORBELL_BAR},share=on");
            command.arg("-object").arg(memory);
            command.arg("-device").arg(format!("ivshmem-plain,memdev=hm{gpu}"));
        }
        die_with_parent(&mut command);
        command
    }

    /// An interactive guest on this terminal. Ends when the guest powers off.
    pub(crate) fn shell(&self) -> Result<()> {
        crate::run::run(self.command().args(["-serial", "mon:stdio"]))
    }

    /// Runs to the end, to `limit`, or until the guest has been silent too long. Writes its report to `out`.
    pub(crate) fn run(&self, nonce: &str, limit: Duration, out: &mut dyn Write) -> Result<Run> {
        let mut command = self.command();
        command.arg("-serial").arg(format!("file:{}", self.console.display()));
        command.args(["-chardev", "stdio,id=tests,signal=off", "-serial", "chardev:tests"]);
        command.arg("-debugcon").arg(format!("file:{}", self.pulse.display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        for file in [self.console, self.pulse] {
            let _ = fs::remove_file(file);
        }
        let child = command.spawn().context("cannot run QEMU")?;
        let mut guest = Guest(child);
        let stdout = guest.0.stdout.take().context("QEMU has no stdout")?;
        let mut signs = Signs::of(&guest.0, self.console, self.pulse)?;
        let mut run = Run {
            end: End::Lost(String::new()),
            totals: Totals::default(),
            closings: 0,
            timing: Timing::default(),
        };
        run.end = follow(&lines(stdout), &mut run, nonce, limit, &mut signs, out);
        if matches!(run.end, End::Exit(_)) {
            guest.settle(Duration::from_secs(20));
        }
        Ok(run)
    }
}

/// QEMU, killed when dropped.
struct Guest(Child);

impl Guest {
    /// Gives the guest time to power off by itself.
    fn settle(&mut self, limit: Duration) {
        let start = Instant::now();
        while start.elapsed() < limit && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Fails only where it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ctrl-C reaches QEMU through the process group; this covers every other way in which we end.
fn die_with_parent(command: &mut Command) {
    let end_with_us = || {
        // SAFETY: changes only the calling process; plain integers.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: prctl is async-signal-safe, and nothing of the parent's memory is touched.
    unsafe { command.pre_exec(end_with_us) };
}

fn lines(stdout: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Signs that a guest is alive.
struct Signs<'a> {
    begin: Instant,
    /// Of QEMU.
    clock: ClockId,
    console: &'a Path,
    heartbeats: Option<File>,
    heartbeats_in: &'a Path,
    pulse: Pulse,
    /// Bytes that it has reported.
    reported: u64,
}

impl<'a> Signs<'a> {
    fn of(qemu: &Child, console: &'a Path, heartbeats_in: &'a Path) -> Result<Self> {
        let pid = i32::try_from(qemu.id()).context("PID out of range")?;
        let clock = clock_getcpuclockid(Pid::from_raw(pid)).context("QEMU's CPU time cannot be read")?;
        let (begin, pulse) = (Instant::now(), Pulse::default());
        Ok(Self { begin, clock, console, heartbeats: None, heartbeats_in, pulse, reported: 0 })
    }

    /// Reads what has arrived.
    fn look(&mut self) {
        if self.heartbeats.is_none() {
            self.heartbeats = File::open(self.heartbeats_in).ok();
        }
        let mut bytes = Vec::new();
        if let Some(file) = &mut self.heartbeats {
            // What cannot be read now is read the next time.
            let _ = file.read_to_end(&mut bytes);
        }
        self.pulse.take(&bytes);
    }

    fn done(&self) -> Done {
        let logged = fs::metadata(self.console).map_or(0, |meta| meta.len());
        Done {
            bytes: self.reported + logged,
            uptime: self.pulse.uptime,
            cpu: self.cpu(),
            host: self.begin.elapsed(),
        }
    }

    /// A QEMU that has ended needs no watching.
    fn cpu(&self) -> Duration {
        clock_gettime(self.clock).map_or(Duration::ZERO, Duration::from)
    }

    fn mark(&self) -> Mark {
        Mark { guest: self.pulse.uptime, cpu: self.cpu(), starts: self.pulse.starts }
    }
}

/// Passes lines on until the exit line, the end of QEMU, or until the guest hangs.
fn follow(
    lines: &Receiver<String>,
    run: &mut Run,
    nonce: &str,
    limit: Duration,
    signs: &mut Signs<'_>,
    out: &mut dyn Write,
) -> End {
    let mut watch = Watch::default();
    loop {
        let received = lines.recv_timeout(Duration::from_millis(500));
        signs.look();
        match received {
            Ok(line) => {
                signs.reported += line.len() as u64 + 1;
                run.timing.line(&line, signs.mark());
                if let Some(code) = exit_code(&line, nonce) {
                    return End::Exit(code);
                }
                if let Some(totals) = Totals::parse(&line) {
                    run.totals.add(totals);
                    run.closings += 1;
                }
                // A closed stdout is no reason to stop the guest half-way.
                let _ = writeln!(out, "{line}").and_then(|()| out.flush());
            }
            Err(RecvTimeoutError::Disconnected) => return End::Lost("the guest died".to_owned()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(why) = watch.hangs(signs.done(), limit) {
            return End::Lost(why);
        }
    }
}

/// The code in the guest's last line, `kfd-vm-exit NONCE CODE`.
fn exit_code(line: &str, nonce: &str) -> Option<i32> {
    let rest = line.trim().strip_prefix("kfd-vm-exit ")?;
    rest.strip_prefix(nonce)?.trim().parse().ok()
}

/// The verdict on the kernel log, and its end on stderr if the run has failed.
pub(crate) fn verdict(end: &End, log: &Path) -> Option<String> {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let problem = match (end, console::trouble(&text)) {
        (_, Some((name, line, at))) => {
            eprintln!("---- the kernel log around the {name} ----");
            console::around(&text, at).for_each(|line| eprintln!("{}", line.trim_end()));
            format!("{name} in the guest: {line}")
        }
        (End::Lost(why), None) => why.clone(),
        (End::Exit(_), None) => return None,
    };
    eprintln!("---- end of the kernel log ({}) ----", log.display());
    for line in console::tail(&text, 60) {
        eprintln!("{}", line.trim_end());
    }
    eprintln!("---- {problem} ----");
    Some(problem)
}

#[cfg(test)]
mod tests {
    use super::{Machine, Time, exit_code};
    use std::path::Path;

    #[test]
    fn instructions_are_counted_on_one_emulated_cpu() {
        let path = Path::new("x");
        let time = Time::Counted { shift: 3 };
        let (console, pulse, emulator) = (path, path, path);
        let machine =
            Machine { vmlinuz: path, initramfs: path, console, pulse, disk: None, gpus: 1, time, emulator };
        let command = machine.command();
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let follows = |option: &str| {
            let place = words.iter().position(|word| word == option)?;
            words.get(place + 1).map(AsRef::as_ref)
        };
        assert_eq!((follows("-smp"), follows("-icount")), (Some("1"), Some("shift=3,sleep=off")));
        assert_eq!(follows("-accel"), Some("tcg,thread=single"));
    }

    #[test]
    fn only_the_own_nonce_ends_a_run() {
        assert_eq!(exit_code("kfd-vm-exit 12ab 0", "12ab"), Some(0));
        assert_eq!(exit_code("kfd-vm-exit 12ab 1\r", "12ab"), Some(1));
        assert_eq!(exit_code("kfd-vm-exit 99 0", "12ab"), None);
        assert_eq!(exit_code("kfd-vm-exit 12ab", "12ab"), None);
        assert_eq!(exit_code("test kfd-vm-exit 12ab 0", "12ab"), None);
    }
}
