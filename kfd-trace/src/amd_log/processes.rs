//! Processes of the log.

use super::limits::PROCESSES;
use super::queues::Span;
use super::source::LogProcess;
use std::collections::HashMap;

/// Lines of a process, and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfProcess {
    pub process: LogProcess,
    pub lines: u64,
    pub span: Span,
}

/// In order of first line.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    all: Vec<OfProcess>,
    index: HashMap<LogProcess, usize>,
    /// Cache: most lines are of the same process as the previous line.
    last: usize,
    left_out: u64,
}

impl Processes {
    #[inline]
    pub fn line(&mut self, process: LogProcess, time_us: Option<u64>) {
        if self.all.get(self.last).is_none_or(|last| last.process != process) {
            let Some(index) = self.find(process) else {
                self.left_out += 1;
                return;
            };
            self.last = index;
        }
        if let Some(known) = self.all.get_mut(self.last) {
            known.lines += 1;
            known.span.take(time_us);
        }
    }

    fn find(&mut self, process: LogProcess) -> Option<usize> {
        if let Some(index) = self.index.get(&process) {
            return Some(*index);
        }
        if self.all.len() >= PROCESSES {
            return None;
        }
        self.index.insert(process, self.all.len());
        self.all.push(OfProcess { process, ..OfProcess::default() });
        Some(self.all.len() - 1)
    }

    #[must_use]
    pub fn all(&self) -> &[OfProcess] {
        &self.all
    }

    /// Lines of processes for which there was no room.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}
