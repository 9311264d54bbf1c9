//! Puts together what lines of a log have of the same work: a packet's queue and shape, its kernel, its command, and the
//! times of the GPU, which come later.
//!
//! In: lines. Out: [`Work`], as soon as nothing more can be said of it. The same lines give the same work in the same order.

use super::entries::{Entries, Entry};
use super::kind::CommandName;
use super::life::Birth;
use super::limits::{COMMANDS_UNDER_WAY, KERNEL_TEXT, KERNELS, LONGEST_LINE, THREADS, WORK_UNDER_WAY};
use super::lines::LogLine;
use super::message::Message;
use super::packet::PacketKind;
use super::prefix::Prefix;
use super::slots::Slots;
use super::source::{LogProcess, Sources};
use super::work::{Measured, Task, Work, WorkClock};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

/// Lines in, work out.
#[derive(Debug, Default)]
pub struct Correlator {
    threads: HashMap<(LogProcess, Option<u64>), Thread>,
    /// By the address of clr's object.
    commands: HashMap<(LogProcess, u64), Command>,
    /// Work that waits for its times, by its number.
    waiting: BTreeMap<u64, Waiting>,
    /// The latest work that has a completion signal, by the signal's address and process.
    signals: BTreeMap<(u64, LogProcess), u64>,
    /// A kernel whose line names no thread.
    nameless: Option<Rc<str>>,
    next: u64,
    kernels: HashSet<Rc<str>>,
    kernel_bytes: usize,
    slots: Slots,
    entries: Entries,
    /// Packets and copies whose line has no time: of when they are is not known.
    pub without_time: u64,
    /// Work for which there was no room to wait for its times.
    pub gave_up: u64,
    /// Lines with the name of a kernel for which there was no room.
    pub nameless_kernels: u64,
    /// Threads whose last command and kernel there was no room for.
    pub threads_forgotten: u64,
}

#[derive(Debug, Default)]
struct Thread {
    /// Its last command: address and number.
    command: Option<(u64, u64)>,
    kernel: Option<Rc<str>>,
    /// When it last wrote what queues there are: before it creates one.
    pool_us: Option<u64>,
}

#[derive(Debug)]
struct Command {
    number: u64,
    kind: CommandName,
    parts: usize,
    first: Option<Work>,
    /// Those that wait.
    works: BTreeSet<u64>,
}

#[derive(Debug)]
struct Waiting {
    work: Work,
    signal: Option<u64>,
    command: Option<u64>,
}

impl Correlator {
    /// Takes the next line; adds what is complete to `done`.
    pub fn line(&mut self, line: LogLine<'_>, done: &mut Vec<Work>) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.line(line, |source, entry| {
            if let Entry::Log(prefix, text) = entry {
                self.entry(LogProcess { source, pid: prefix.pid }, &prefix, text, done);
            }
        });
        self.entries = entries;
    }

    /// Labels of the processes of its work.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.entries.sources
    }

    /// To be called after the last line: what waits has no times.
    pub fn finish(&mut self, done: &mut Vec<Work>) {
        self.commands.clear();
        self.signals.clear();
        done.extend(std::mem::take(&mut self.waiting).into_values().map(|waiting| waiting.work));
    }

    fn entry(&mut self, process: LogProcess, prefix: &Prefix, text: &[u8], done: &mut Vec<Work>) {
        match Message::parse(text) {
            Message::Command { kind, address, .. } => {
                self.begin(process, prefix, CommandName::new(kind), address, done);
            }
            Message::Kernel { name, in_graph } => {
                self.slots.kernel(process, prefix.tid, in_graph);
                self.kernel(process, prefix, name);
            }
            Message::Packet(mut packet) => {
                self.slots.resolve(process, prefix.tid, &mut packet);
                self.work(process, prefix, Task::Packet(packet), packet.signal, done);
            }
            Message::Copy { engine, bytes, signal } => {
                self.work(process, prefix, Task::Copy { engine, bytes }, signal, done);
            }
            Message::Ran { signal, begin_ns, end_ns } => {
                // What was not measured begins at 0.
                if let Some(at_us) = prefix.time_us.filter(|_| begin_ns > 0 && end_ns >= begin_ns) {
                    let clock = WorkClock::Signal;
                    self.ran(process, signal, Measured { clock, begin_ns, end_ns, at_us }, done);
                }
            }
            // Without a thread in the line, the thread that wrote it is not known.
            Message::QueuePool(_) if prefix.tid.is_some() => {
                self.thread(process, prefix).pool_us = prefix.time_us;
            }
            Message::Birth(birth) => {
                self.slots.birth(process, &birth);
                self.created(process, prefix, birth, done);
            }
            Message::Complete { address, took_us } => self.complete(process, prefix, address, took_us, done),
            _ => {}
        }
    }

    fn begin(
        &mut self,
        process: LogProcess,
        prefix: &Prefix,
        kind: CommandName,
        address: u64,
        done: &mut Vec<Work>,
    ) {
        // Its object is used again: the end of the command before was not logged.
        self.end((process, address), None, done);
        if self.commands.len() >= COMMANDS_UNDER_WAY {
            self.give_up(done);
        }
        self.next += 1;
        let number = self.next;
        let command = Command { number, kind, parts: 0, first: None, works: BTreeSet::new() };
        self.commands.insert((process, address), command);
        self.thread(process, prefix).command = Some((address, number));
    }

    fn thread(&mut self, process: LogProcess, prefix: &Prefix) -> &mut Thread {
        let key = (process, prefix.tid);
        if self.threads.len() >= THREADS && !self.threads.contains_key(&key) {
            self.threads_forgotten += self.threads.len() as u64;
            self.threads.clear();
        }
        self.threads.entry(key).or_default()
    }

    fn kernel(&mut self, process: LogProcess, prefix: &Prefix, name: &[u8]) {
        let name = self.interned(name);
        match prefix.tid {
            Some(_) => self.thread(process, prefix).kernel = name,
            None => self.nameless = name,
        }
    }

    fn interned(&mut self, name: &[u8]) -> Option<Rc<str>> {
        let name = String::from_utf8_lossy(&name[..name.len().min(LONGEST_LINE)]);
        if let Some(known) = self.kernels.get(&*name) {
            return Some(known.clone());
        }
        if self.kernels.len() >= KERNELS || self.kernel_bytes + name.len() > KERNEL_TEXT {
            self.nameless_kernels += 1;
            return None;
        }
        self.kernel_bytes += name.len();
        let name: Rc<str> = name.into();
        self.kernels.insert(name.clone());
        Some(name)
    }

    fn work(
        &mut self,
        process: LogProcess,
        prefix: &Prefix,
        task: Task,
        signal: Option<u64>,
        done: &mut Vec<Work>,
    ) {
        let dispatches = task.packet().is_some_and(|packet| packet.kind == PacketKind::Dispatch);
        let thread = self.thread(process, prefix);
        let (own, mut kernel) = (thread.command, thread.kernel.take_if(|_| dispatches));
        if dispatches {
            // The line right before names it, whichever thread wrote that.
            kernel = kernel.or(self.nameless.take());
        }
        let Some(at_us) = prefix.time_us else {
            self.without_time += 1;
            return;
        };
        let key = own.map(|(address, _)| (process, address));
        let command = key.and_then(|key| self.commands.get_mut(&key));
        let command = command.filter(|command| own.is_some_and(|(_, number)| number == command.number));
        let kind = command.as_ref().map(|command| command.kind);
        let work = Work { process, at_us, task, kernel, command: kind, measured: None };
        if command.is_none() && signal.is_none() {
            done.push(work);
            return;
        }
        self.next += 1;
        let id = self.next;
        if let Some(command) = command {
            command.parts += 1;
            command.works.insert(id);
            command.first.get_or_insert_with(|| work.clone());
        }
        if let Some(signal) = signal {
            self.signals.insert((signal, process), id);
        }
        let command = kind.and(own).map(|(address, _)| address);
        self.waiting.insert(id, Waiting { work, signal, command });
        if self.waiting.len() > WORK_UNDER_WAY {
            self.give_up(done);
        }
    }

    fn created(&mut self, process: LogProcess, prefix: &Prefix, birth: Birth, done: &mut Vec<Work>) {
        let after_us = self.thread(process, prefix).pool_us.take();
        let Some(at_us) = prefix.time_us else { return };
        let task = Task::Created { birth, after_us };
        done.push(Work { process, at_us, task, kernel: None, command: None, measured: None });
    }

    fn give_up(&mut self, done: &mut Vec<Work>) {
        self.gave_up += self.waiting.len() as u64;
        self.finish(done);
    }

    /// Nothing more is to come of it.
    fn release(&mut self, id: u64) -> Option<Work> {
        let Waiting { work, signal, command } = self.waiting.remove(&id)?;
        if let Some(key) = signal.map(|signal| (signal, work.process))
            && self.signals.get(&key) == Some(&id)
        {
            self.signals.remove(&key);
        }
        if let Some(command) = command.and_then(|address| self.commands.get_mut(&(work.process, address))) {
            command.works.remove(&id);
        }
        Some(work)
    }

    fn ran(&mut self, process: LogProcess, signal: u64, measured: Measured, done: &mut Vec<Work>) {
        let of = |pid| (signal, LogProcess { pid, ..process });
        // From ROCm 6.3 on a line may name no process: then the work is known only if a single one has that signal.
        let [first, second] = if process.pid.is_some() {
            [process.pid, None].map(|pid| self.signals.get(&of(pid)).copied())
        } else {
            let mut all = self.signals.range(of(None)..=of(Some(u32::MAX))).map(|(_, id)| *id);
            [all.next(), all.next()]
        };
        let work = first.xor(second).and_then(|id| self.release(id));
        done.extend(work.map(|work| Work { measured: Some(measured), ..work }));
    }

    fn complete(
        &mut self,
        process: LogProcess,
        prefix: &Prefix,
        address: u64,
        took_us: Option<[i64; 3]>,
        done: &mut Vec<Work>,
    ) {
        // Commands that were not measured have end == begin; so have those that took less than a microsecond.
        let measured = took_us.zip(prefix.time_us).filter(|([.., gpu], _)| *gpu > 0);
        let measured = measured.and_then(|([wall, _, gpu], at_us)| {
            let end_ns = wall.checked_mul(1000)?;
            let begin_ns = end_ns.checked_sub(gpu.checked_mul(1000)?)?;
            Some(Measured { clock: WorkClock::Wall, begin_ns, end_ns, at_us })
        });
        self.end((process, address), measured, done);
    }

    /// Ends a command: the time is that of its only part, or of all together.
    fn end(&mut self, key: (LogProcess, u64), measured: Option<Measured>, done: &mut Vec<Work>) {
        let Some(command) = self.commands.remove(&key) else { return };
        let Command { parts, first, works, .. } = command;
        let left = works.len();
        for id in works {
            let measured = measured.filter(|_| parts == 1);
            done.extend(self.release(id).map(|work| Work { measured, ..work }));
        }
        // If parts were measured one by one, the whole adds nothing.
        if let Some(first) = first.filter(|_| parts > 1 && left == parts && measured.is_some()) {
            let task = Task::Command { parts, first: first.task.packet().copied() };
            done.push(Work { task, measured, ..first });
        }
    }
}

#[cfg(test)]
mod tests;
