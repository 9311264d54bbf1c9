//! debugfs `kfd/mqds` (kfd_process_manager.c and kfd_process_queue_manager.c, pqm_debugfs_mqds): all queues of all
//! processes, the newest first, without their ids.

use super::layout::{COMPUTE_MQD, COMPUTE_MQD_GFX7, SDMA_V9};
use super::rows::{Strange, after, cut_line, hex, number, row};

/// Dwords of one MQD at most (v12.1): a longer one is damaged.
const LONGEST: usize = 1024;

/// What kind of queue a dump is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MqdKind {
    Compute,
    Sdma,
    /// The debugger's own.
    Diq,
}

/// One queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqdQueue {
    pub pid: Option<u32>,
    pub gpu_id: u32,
    pub kind: MqdKind,
    /// One per XCC; of an SDMA queue one.
    pub dumps: Vec<Vec<u32>>,
    /// Dumps behind that of an SDMA queue: memory of something else (`num_xccs` is not set back after a compute queue).
    pub foreign: usize,
    /// The rows of a dump do not follow each other.
    pub damaged: bool,
}

/// One KFD process; a PID may have several (7.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqdProcess {
    /// In the initial PID namespace.
    pub tgid: u32,
    /// Its user queues, the newest first: places in [`MqdFile::queues`]. `None`: of this one the driver prints only that
    /// it does not know the type.
    pub user_queues: Vec<Option<usize>>,
}

/// The file, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MqdFile {
    pub processes: Vec<MqdProcess>,
    pub queues: Vec<MqdQueue>,
    /// Queues of a type that the driver itself does not know (`Bad user queue type`, `Weird`).
    pub unknown_queues: usize,
    /// The copy was cut off within its last queue or line: further queues and processes are missing.
    pub cut: bool,
    pub strange: Strange,
}

/// `Process 94314 PASID 94314:`; the second number is a PASID up to 6.12, and the PID again from 7.2 on and in ROCm's
/// drivers from 6.12.12 on.
fn process(line: &str) -> Option<u32> {
    let (tgid, pasid) = after(line, "Process ")?.split_once(" PASID ")?;
    pasid.ends_with(':').then(|| number(tgid))?
}

fn queue(line: &str) -> Option<(MqdKind, u32)> {
    let kinds = [("Compute queue", MqdKind::Compute), ("SDMA queue", MqdKind::Sdma), ("DIQ", MqdKind::Diq)];
    let (device, kind) = kinds
        .into_iter()
        .find_map(|(words, kind)| Some((after(line, words)?.strip_prefix("on device ")?, kind)))?;
    Some((kind, hex(device)?))
}

/// A queue whose type the driver does not know, and whether it is a user's.
fn unknown_queue(line: &str) -> Option<bool> {
    let beginnings = [
        ("Bad user queue type", true),
        ("Queue node with bad user queue type", true),
        ("Bad kernel queue type", false),
        ("Weird", false),
    ];
    beginnings.iter().find(|(words, _)| line.trim_start().starts_with(words)).map(|(_, of_user)| *of_user)
}

impl MqdFile {
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let cut = cut_line(text);
        let mut file = MqdFile::default();
        let mut pid = None;
        // Rows belong to the last queue, unless its type is unknown.
        let mut open = false;
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(row) = row(line) {
                match file.queues.last_mut().filter(|_| open) {
                    Some(queue) => queue.take(row.at, &row.dwords),
                    None => file.strange.add(number, line),
                }
            } else if let Some(tgid) = process(line) {
                (pid, open) = (Some(tgid), false);
                file.processes.push(MqdProcess { tgid, user_queues: vec![] });
            } else if let Some((kind, gpu_id)) = queue(line) {
                open = true;
                if kind != MqdKind::Diq {
                    file.has_user_queue(Some(file.queues.len()));
                }
                let queue = MqdQueue { pid, gpu_id, kind, dumps: vec![], foreign: 0, damaged: false };
                file.queues.push(queue);
            } else if let Some(of_user) = unknown_queue(line) {
                open = false;
                file.unknown_queues += 1;
                if of_user {
                    file.has_user_queue(None);
                }
            } else if cut == Some(number) {
                file.cut = true;
            } else if !line.trim().is_empty() {
                file.strange.add(number, line);
            }
        }
        // Rows of an unknown queue are not kept: then nothing shows a cut.
        if open && file.last_is_cut() {
            file.cut = true;
            file.queues.last_mut().expect("a queue is open").damaged = true;
        }
        for queue in &mut file.queues {
            queue.finish();
        }
        file
    }

    /// Whether the last queue has fewer dumps, or a shorter last one, than the driver prints.
    fn last_is_cut(&self) -> bool {
        let Some((last, others)) = self.queues.split_last() else { return false };
        let alike = || others.iter().filter(|other| (other.gpu_id, other.kind) == (last.gpu_id, last.kind));
        let whole = alike().filter_map(|other| other.dumps.first()).map(Vec::len).max();
        let whole = whole.unwrap_or(match last.kind {
            MqdKind::Sdma => SDMA_V9,
            _ if last.is_as_of_gfx7() => COMPUTE_MQD_GFX7,
            _ => COMPUTE_MQD,
        });
        // What the driver prints behind an SDMA queue is not the queue's own.
        let dumps =
            if last.kind == MqdKind::Compute { alike().map(|other| other.dumps.len()).max() } else { None };
        let short = |dump: &Vec<u32>| dump.len() < whole;
        last.dumps.len() < dumps.unwrap_or(1) || last.dumps.last().is_none_or(short)
    }

    fn has_user_queue(&mut self, place: Option<usize>) {
        if let Some(process) = self.processes.last_mut() {
            process.user_queues.push(place);
        }
    }
}

impl MqdQueue {
    /// Whether it has as many dwords as a compute MQD of gfx7. A later one that ends there has rows behind it in a whole
    /// copy.
    pub(super) fn is_as_of_gfx7(&self) -> bool {
        let whole = |dump: &Vec<u32>| dump.len() == COMPUTE_MQD_GFX7;
        self.kind != MqdKind::Sdma && !self.dumps.is_empty() && self.dumps.iter().all(whole)
    }

    fn take(&mut self, at: u32, dwords: &[u32]) {
        if at == 0 {
            self.dumps.push(Vec::new());
        }
        let Some(dump) = self.dumps.last_mut() else {
            self.damaged = true;
            return;
        };
        if at as usize != dump.len() * 4 || dump.len() + dwords.len() > LONGEST {
            self.damaged = true;
            return;
        }
        dump.extend(dwords);
    }

    fn finish(&mut self) {
        if self.kind == MqdKind::Sdma {
            self.foreign = self.dumps.len().saturating_sub(1);
            self.dumps.truncate(1);
        }
    }
}
