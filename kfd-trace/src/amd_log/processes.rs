//! Processes of the log.

use super::limits::PROCESSES;
use super::queues::Span;
use std::collections::HashMap;

/// Lines of a process, and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfProcess {
    pub pid: u32,
    pub lines: u64,
    pub span: Span,
}

/// In order of first line.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    all: Vec<OfProcess>,
    index: HashMap<u32, usize>,
    /// Cache: most lines are of the same process as the previous line.
    last: usize,
    left_out: u64,
}

impl Processes {
    #[inline]
    pub fn line(&mut self, pid: u32, time_us: Option<u64>) {
        if self.all.get(self.last).is_none_or(|process| process.pid != pid) {
            let Some(index) = self.find(pid) else {
                self.left_out += 1;
                return;
            };
            self.last = index;
        }
        if let Some(process) = self.all.get_mut(self.last) {
            process.lines += 1;
            process.span.take(time_us);
        }
    }

    fn find(&mut self, pid: u32) -> Option<usize> {
        if let Some(index) = self.index.get(&pid) {
            return Some(*index);
        }
        if self.all.len() >= PROCESSES {
            return None;
        }
        self.index.insert(pid, self.all.len());
        self.all.push(OfProcess { pid, ..OfProcess::default() });
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
