//! One QEMU run. In: kernel, initramfs or snapshot, and the nonce of the guest's exit line. Out: the guest's
//! report, passed on, and how the run ended; or the states that the guest went through, saved. QEMU never
//! outlives us.

mod guest;

use crate::closing::Totals;
use crate::lock::Held;
use crate::vm::console;
use crate::vm::emulator;
use crate::vm::follow::{End, Signs, follow};
use crate::vm::qemu::guest::{Guest, Qemu, die_with_parent, inherit};
use crate::vm::qmp::Qmp;
use crate::vm::timing::{Mark, Timing};
use anyhow::{Context as _, Result, anyhow, bail};
use std::fs;
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// One page of doorbells is plenty, but kfdsim checks for 8 MiB: the size of a real doorbell BAR's share.
const DOORBELL_BAR: &str = "8M";

pub(crate) struct Machine<'a> {
    pub(crate) vmlinuz: &'a Path,
    pub(crate) from: From<'a>,
    /// Kernel log.
    pub(crate) console: &'a Path,
    /// Heartbeats and starts ([`crate::vm::pulse::Pulse`]).
    pub(crate) pulse: &'a Path,
    pub(crate) disk: Option<Disk<'a>>,
    /// Fake GPUs: one ivshmem device each.
    pub(crate) gpus: usize,
    pub(crate) time: Time,
    /// Folder of the emulator's packages.
    pub(crate) emulator: &'a Path,
}

/// What a guest begins with.
#[derive(Clone, Copy)]
pub(crate) enum From<'a> {
    Initramfs(&'a Path),
    Snapshot(&'a Path),
}

/// A disk image.
#[derive(Clone, Copy)]
pub(crate) enum Disk<'a> {
    /// Written to in a copy.
    Copied(&'a Path),
    Read(&'a Path),
}

impl Disk<'_> {
    /// The same with another file.
    fn with(self, file: &Path) -> Disk<'_> {
        match self {
            Self::Copied(_) => Disk::Copied(file),
            Self::Read(_) => Disk::Read(file),
        }
    }
}

/// Where the guest's channels lead.
#[derive(Clone, Copy)]
struct Channels<'a> {
    /// The first serial port.
    serial: &'a str,
    /// Descriptors of the second one, and of QEMU's control channel.
    tests: RawFd,
    control: RawFd,
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
    /// CPUs, clocks, memory and devices, without what names a file.
    fn hardware(&self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        if self.time == Time::Shared && kvm_usable() {
            add(&["-accel", "kvm", "-cpu", "host", "-smp", "2"]);
        } else {
            // Without cmpxchg16b, whose emulation may leave garbage in the flags: observed once as a double
            // fault right after it, in the slab allocator, its only user here. Without the string
            // instructions that are fast on real CPUs: an emulated one takes as many instructions as there
            // are bytes for each page that it clears.
            add(&["-accel", "tcg,thread=single", "-cpu", "max,-cx16,-erms,-fsrm,-fsrs,-fzrm,-fsrc"]);
            // The guest's clocks advance with its instructions, so that a busy host does not affect its
            // measurements and timeouts; while all of its CPUs wait, they skip to the next timer.
            let (cpus, shift) = self.time.emulated();
            add(&["-smp", &cpus.to_string(), "-icount", &format!("shift={shift},sleep=off")]);
        }
        add(&["-m", "2G", "-no-reboot", "-nodefaults", "-display", "none"]);
        // The boot-time check of the timer interrupt counts on a CPU that is not shared: on a loaded host it
        // fails, and the kernel panics in setup_IO_APIC.
        let parameters = "console=ttyS0 panic=-1 oops=panic mitigations=off no_timer_check rcupdate.rcu_expedited=1 rdinit=/init";
        add(&["-append", parameters]);
        for gpu in 0..self.gpus {
            let memory = format!("memory-backend-ram,id=hm{gpu},size={DOORBELL_BAR},share=on");
            // Only the memory's master may be saved.
            add(&["-object", &memory, "-device", &format!("ivshmem-plain,memdev=hm{gpu},master=on")]);
        }
        words
    }

    /// What a saved machine goes on with: each word of QEMU's command line, with one name for all files and
    /// channels, and under KVM the host's CPU.
    pub(crate) fn identity(&self) -> Vec<String> {
        let Self { disk, gpus, time, .. } = *self;
        let file = Path::new("FILE");
        let (from, disk) = (From::Initramfs(file), disk.map(|disk| disk.with(file)));
        let nameless =
            Machine { vmlinuz: file, from, console: file, pulse: file, disk, gpus, time, emulator: file };
        let mut words = nameless.arguments(Channels { serial: "CHANNEL", tests: 0, control: 0 });
        if words.iter().any(|word| word == "kvm") {
            words.extend(first_cpu(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()));
        }
        words
    }

    /// QEMU's command line.
    fn arguments(&self, Channels { serial, tests, control }: Channels<'_>) -> Vec<String> {
        let mut words = self.hardware();
        let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
        add("-kernel", self.vmlinuz.display().to_string());
        match self.from {
            From::Initramfs(file) => add("-initrd", file.display().to_string()),
            From::Snapshot(_) => add("-incoming", "defer".to_owned()),
        }
        if let Some(disk) = self.disk {
            let (file, mode) = match disk {
                Disk::Copied(file) => (file, "snapshot=on"),
                Disk::Read(file) => (file, "readonly=on"),
            };
            add("-drive", format!("file={},format=raw,if=virtio,{mode}", file.display()));
        }
        add("-serial", serial.to_owned());
        add("-serial", "chardev:tests".to_owned());
        add("-chardev", format!("socket,id=tests,fd={tests}"));
        add("-chardev", format!("socket,id=control,fd={control}"));
        add("-mon", "chardev=control,mode=control".to_owned());
        add("-debugcon", format!("file:{}", self.pulse.display()));
        words
    }

    /// Starts QEMU; a snapshot is loaded, and has not gone on. `serial`: the first serial port.
    fn start(&self, serial: &str) -> Result<Guest> {
        let (port, of_port) = UnixStream::pair().context("cannot make a channel")?;
        let (control, of_control) = UnixStream::pair().context("cannot make a channel")?;
        let [tests, control_port] = [&of_port, &of_control].map(AsRawFd::as_raw_fd);
        let mut command = emulator::command(self.emulator);
        command.args(self.arguments(Channels { serial, tests, control: control_port }));
        die_with_parent(&mut command);
        inherit(&mut command, [tests, control_port]);
        for file in [self.console, self.pulse] {
            let _ = fs::remove_file(file);
        }
        let child = Qemu(command.spawn().context("cannot run QEMU")?);
        // The guest has the only ends on its side: ours close with it.
        drop((of_port, of_control));
        let mut guest = Guest { child, port, control: Qmp::of(control)? };
        if let From::Snapshot(file) = self.from {
            guest.control.load(file).with_context(|| {
                let file = file.display();
                format!("cannot resume {file} (if it is removed, it is made anew)")
            })?;
        }
        Ok(guest)
    }

    fn start_logged(&self) -> Result<Guest> {
        self.start(&format!("file:{}", self.console.display()))
    }

    /// An interactive guest on this terminal. Ends when the guest powers off.
    pub(crate) fn shell(&self, held: Option<Held>) -> Result<()> {
        let mut guest = self.start("mon:stdio")?;
        self.go_on(&mut guest)?;
        drop(held);
        // What the init reports.
        for line in guest.lines()? {
            eprintln!("{line}");
        }
        guest.settle(Duration::from_secs(20));
        Ok(())
    }

    /// A resumed guest gets the word to run its payload.
    fn go_on(&self, guest: &mut Guest) -> Result<()> {
        if matches!(self.from, From::Snapshot(_)) {
            guest.control.go_on()?;
            let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
            guest.send(&format!("run {now}"))?;
        }
        Ok(())
    }

    /// Runs to the end, to `limit`, or until the guest has been silent too long. Writes its report to `out`.
    /// `held`: guards the snapshot until it is loaded.
    pub(crate) fn run(
        &self,
        nonce: &str,
        limit: Duration,
        held: Option<Held>,
        out: &mut dyn Write,
    ) -> Result<Run> {
        let mut guest = self.start_logged()?;
        drop(held);
        let lines = guest.lines()?;
        let mut signs = Signs::of(&guest.child.0, self.console, self.pulse)?;
        self.go_on(&mut guest)?;
        let mut run = Run {
            end: End::Lost(String::new()),
            totals: Totals::default(),
            closings: 0,
            timing: Timing::default(),
        };
        run.end = follow(&lines, limit, &mut signs, |line, mark| {
            run.timing.line(line, mark);
            if let Some(code) = exit_code(line, nonce) {
                return Some(End::Exit(code));
            }
            if let Some(totals) = Totals::parse(line) {
                run.totals.add(totals);
                run.closings += 1;
            }
            // A closed stdout is no reason to stop the guest half-way.
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
            None
        });
        if matches!(run.end, End::Exit(_)) {
            guest.settle(Duration::from_secs(20));
        }
        Ok(run)
    }

    fn is_sound(&self, end: &End) -> Result<()> {
        verdict(end, self.console).map_or(Ok(()), |problem| Err(anyhow!(problem)))
    }

    /// Goes through these states, and hands each to `keep`, which may save it. The first is where the
    /// snapshot is, if there is one. Out: what it took.
    pub(crate) fn make(
        &self,
        states: &[&str],
        limit: Duration,
        mut keep: impl FnMut(&str, &mut Guest) -> Result<()>,
    ) -> Result<Mark> {
        let mut guest = self.start_logged()?;
        let lines = guest.lines()?;
        let mut signs = Signs::of(&guest.child.0, self.console, self.pulse)?;
        let mut left = states.iter();
        if matches!(self.from, From::Snapshot(_)) {
            guest.control.go_on()?;
            guest.send(NEXT)?;
            left.next();
        }
        let (mut began, mut result) = (None, Ok(()));
        let mut reached = |state: &str| {
            if left.next() != Some(&state) {
                bail!("the guest came to {state}");
            }
            // All later guests go on from what is kept, and their logs begin after this.
            self.is_sound(&End::Exit(0))?;
            keep(state, &mut guest)?;
            if left.as_slice().is_empty() {
                return Ok(Some(End::Exit(0)));
            }
            guest.control.go_on()?;
            guest.send(NEXT).map(|()| None)
        };
        let end = follow(&lines, limit, &mut signs, |line, mark| {
            began.get_or_insert(mark.guest);
            let step = match line.strip_prefix("kfd-vm-state ") {
                Some(state) => reached(state),
                None if line.starts_with("kfd-vm-exit") => {
                    Ok(Some(End::Lost("the guest gave up".to_owned())))
                }
                None => {
                    eprintln!("{line}");
                    Ok(None)
                }
            };
            step.unwrap_or_else(|error| {
                result = Err(error);
                Some(End::Exit(1))
            })
        });
        result?;
        self.is_sound(&end)?;
        let Mark { guest: uptime, cpu, .. } = signs.mark();
        // A resumed one's clock did not begin at zero; it goes on to one state at least.
        let before =
            if matches!(self.from, From::Snapshot(_)) { began.unwrap_or_default() } else { Duration::ZERO };
        Ok(Mark { guest: uptime.saturating_sub(before), cpu, starts: 0 })
    }
}

/// What distinguishes the first CPU of `/proc/cpuinfo` from those of other hosts: not its frequency.
fn first_cpu(cpuinfo: &str) -> impl Iterator<Item = String> {
    const NAMES: [&str; 5] = ["vendor_id", "model name", "stepping", "microcode", "flags"];
    let first = cpuinfo.lines().take_while(|line| !line.is_empty());
    let is_named = |line: &&str| line.split_once(':').is_some_and(|(name, _)| NAMES.contains(&name.trim()));
    first.filter(is_named).map(str::to_owned)
}

/// The word by which a guest that is saved goes on to its next state (tests/src/bin/vm-init/snapshot.rs).
const NEXT: &str = "next";

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
mod tests;
