//! The lines that a reader needs, as each version formats them, and their effect on the ledger.

use crate::format::Format;
use crate::ledger::OfQueue;
use crate::writer::{Book, Who, Writer};
use std::io::{self, Write};

const DEVICE: &str = "rocdevice.cpp";
const VIRTUAL: &str = "rocvirtual.cpp";

/// Three numbers, as dispatches have them.
pub(crate) type Size = [u64; 3];

impl<W: Write> Writer<W> {
    pub(crate) fn runtime(&mut self, who: Who, agents: u64) -> io::Result<()> {
        self.ledger.agents = agents;
        let text = format_args!("Initalizing runtime stack, Enumerated GPU agents = {agents}");
        self.log(Book::Read, (3, DEVICE, 415), who, text, false)?;
        for _ in 0..agents {
            self.ledger.gfx_lines += 1;
            let text = format_args!("Gfx Major/Minor/Stepping: 9/4/2");
            self.log(Book::Read, (3, DEVICE, 1610), who, text, false)?;
        }
        Ok(())
    }

    pub(crate) fn birth(&mut self, who: Who, queue: &mut OfQueue) -> io::Result<()> {
        let word = if self.format.has_software_queue() { "Number" } else { "number" };
        let text = format_args!(
            "{word} of allocated hardware queues with low priority: 0, with normal priority: 0, with high priority: 0, maximum per priority is: 8"
        );
        self.log(Book::Read, (3, DEVICE, 2870), who, text, false)?;
        self.now_us += 900;
        let OfQueue { swq, hwq, .. } = *queue;
        let tail = "with size 16384 with priority 1, cooperative: 0";
        if self.format.has_software_queue() {
            let text = format_args!("Created SWq={swq:#x} to map on HWq={hwq:#x} {tail}");
            self.ledger.with_hwq += 1;
            self.log(Book::Read, (3, DEVICE, 2950), who, text, false)?;
        } else {
            let text = format_args!("created hardware queue {swq:#x} {tail}");
            self.log(Book::Read, (3, DEVICE, 2950), who, text, false)?;
        }
        queue.created += 1;
        self.acquired(who, queue)
    }

    pub(crate) fn address(&self, queue: &OfQueue) -> u64 {
        if self.format.has_software_queue() { queue.hwq } else { queue.swq }
    }

    pub(crate) fn acquired(&mut self, who: Who, queue: &mut OfQueue) -> io::Result<()> {
        queue.acquired += 1;
        let at = self.address(queue);
        self.log(
            Book::Read,
            (3, DEVICE, 3045),
            who,
            format_args!("acquireQueue refCount: {at:#x} (1)"),
            false,
        )
    }

    pub(crate) fn selected(&mut self, who: Who, queue: &mut OfQueue) -> io::Result<()> {
        queue.selected += 1;
        let at = self.address(queue);
        let place = (3, DEVICE, 2850);
        if self.format == Format::Rocm2026 {
            let text =
                format_args!("Selected queue (mode=1): {at:#x} refCount: 2, depth: 0, metric: 0, pipe: 0");
            return self.log(Book::Read, place, who, text, false);
        }
        let word = if self.format.has_software_queue() { "Selected" } else { "selected" };
        self.log(Book::Read, place, who, format_args!("{word} queue refCount: {at:#x} (2)"), false)
    }

    pub(crate) fn released(&mut self, who: Who, queue: &mut OfQueue) -> io::Result<()> {
        queue.released += 1;
        let at = self.address(queue);
        self.log(Book::Read, (3, DEVICE, 3060), who, format_args!("releaseQueue refCount:{at:#x} (0)"), false)
    }

    pub(crate) fn deleted(&mut self, who: Who, queue: &mut OfQueue) -> io::Result<()> {
        queue.deleted += 1;
        let at = self.address(queue);
        let word = if self.format == Format::Rocm56 { "deleting" } else { "Deleting" };
        let text = format_args!("{word} hostcall buffer 0x7fb1c0de1000 for hardware queue {at:#x}");
        self.log(Book::Other, (3, DEVICE, 3066), who, text, false)?;
        let text = format_args!("{word} hardware queue {at:#x} with refCount 0");
        self.log(Book::Read, (3, DEVICE, 3070), who, text, false)
    }

    pub(crate) fn command(&mut self, who: Who, queue: &OfQueue, kind: &str, turn: u64) -> io::Result<()> {
        *self.ledger.commands.entry((who.pid, kind.to_owned())).or_default() += 1;
        self.ledger.by_second.entry(self.now_us / 1_000_000).or_default()[0] += 1;
        let address = 0xd17_0000 + turn % 512 * 16;
        if turn.is_multiple_of(13) {
            for verb in ["processing", "submitted"] {
                let tail = if verb == "processing" { " ,events.size(): 0" } else { "" };
                let text = format_args!("Command ({kind}) {verb}: {address:#x}{tail}");
                self.log(Book::Other, (4, "commandqueue.cpp", 203), who, text, false)?;
            }
        }
        let place = (if self.format.is_7() { 5 } else { 4 }, "command.cpp", 355);
        if self.format.is_7() {
            let host = queue.host_queue;
            let text = format_args!("Command ({kind}) enqueued: {address:#x} to queue: {host:#x}");
            return self.log(Book::Read, place, who, text, false);
        }
        self.log(Book::Read, place, who, format_args!("Command ({kind}) enqueued: {address:#x}"), false)
    }

    pub(crate) fn completed(&mut self, who: Who, turn: u64, gpu_us: Option<i64>) -> io::Result<()> {
        self.ledger.completed += 1;
        let address = 0xd17_0000 + turn % 512 * 16;
        let place = (4, "command.cpp", 175);
        let Some(gpu) = gpu_us else {
            return self.log(Book::Read, place, who, format_args!("Command {address:#x} complete"), false);
        };
        self.ledger.gpu_us += gpu;
        let text = format_args!("Command {address:#x} complete (Wall: {turn}, CPU: 0, GPU: {gpu} us)");
        self.log(Book::Read, place, who, text, false)
    }

    pub(crate) fn kernel(&mut self, who: Who, name: &str) -> io::Result<()> {
        *self.ledger.kernels.entry(name.to_owned()).or_default() += 1;
        self.log(Book::Read, (3, VIRTUAL, 3028), who, format_args!("ShaderName : {name}"), false)
    }

    /// `SWq=..., HWq=..., id=..., `, as far as the version logs them.
    pub(crate) fn head(&mut self, queue: &OfQueue) -> String {
        self.ledger.with_hwq += 1;
        let OfQueue { swq, hwq, id, .. } = *queue;
        match self.format {
            Format::Rocm56 | Format::Rocm57 => format!("HWq={hwq:#x}, "),
            Format::Rocm2026 => format!("SWq={swq:#x}, HWq={hwq:#x}, id={id}, virtual_pipe_id=2, "),
            _ => format!("SWq={swq:#x}, HWq={hwq:#x}, id={id}, "),
        }
    }

    /// `rptr` and `wptr` of packet `write`, with `behind` unretired packets before it.
    pub(crate) fn pointers(&self, queue: &mut OfQueue, write: u64, behind: u64, is_dispatch: bool) -> String {
        let shows = if is_dispatch { self.format.has_software_queue() } else { self.format.is_7() };
        if !shows {
            return String::new();
        }
        let read = write.saturating_sub(behind);
        let backlog = write + 1 - read;
        queue.with_pointers += 1;
        queue.most = queue.most.max(backlog);
        queue.sum += backlog;
        let wide = self.format == Format::Rocm2026;
        let shown = |value: u64| if wide { value } else { value & 0xffff_ffff };
        queue.first_write.get_or_insert(shown(write));
        queue.last_write = shown(write);
        format!(", rptr={}, wptr={}", shown(read), shown(write))
    }

    pub(crate) fn dispatch(
        &mut self,
        who: Who,
        queue: &mut OfQueue,
        grid: Size,
        workgroup: Size,
        write: u64,
        behind: u64,
    ) -> io::Result<()> {
        const HEADER: u16 = 0xb02;
        queue.dispatches += 1;
        *queue.shapes.entry((HEADER, grid, workgroup)).or_default() += 1;
        self.ledger.by_second.entry(self.now_us / 1_000_000).or_default()[1] += 1;
        let head = self.head(queue);
        let tail = self.pointers(queue, write, behind, true);
        let correlation = if tail.is_empty() { "" } else { ", correlation_id=0" };
        let text = format_args!(
            "{head}Dispatch Header = {HEADER:#x} (type=2, barrier=1, acquire=1, release=1), setup=3, grid=[{}, {}, {}], workgroup=[{}, {}, {}], private_seg_size=0, group_seg_size=32768, kernel_obj=0x7fad6b00a840, kernarg_address=0x7fad{write:08x}, completion_signal=0x0{correlation}{tail}",
            grid[0], grid[1], grid[2], workgroup[0], workgroup[1], workgroup[2]
        );
        self.log(Book::Read, (4, VIRTUAL, 1177), who, text, false)
    }

    pub(crate) fn barrier(
        &mut self,
        who: Who,
        queue: &mut OfQueue,
        write: u64,
        behind: u64,
    ) -> io::Result<()> {
        queue.barriers_and += 1;
        let head = self.head(queue);
        let tail = self.pointers(queue, write, behind, false);
        let word = if self.format == Format::Rocm2026 { "Barrier-AND" } else { "BarrierAND" };
        let text = format_args!(
            "{head}{word} Header = 0x1503 (type=3, barrier=1, acquire=2, release=2), dep_signal=[0x0, 0x0, 0x0, 0x0, 0x0], completion_signal=0x7fb1c0de0000{tail}"
        );
        self.log(Book::Read, (4, VIRTUAL, 1348), who, text, false)
    }

    /// Up to 6.1 its line has the software queue's address as HWq.
    pub(crate) fn barrier_value(&mut self, who: Who, queue: &mut OfQueue, write: u64) -> io::Result<()> {
        let place = (4, VIRTUAL, 1402);
        let text = "BarrierValue Header = 0x500 AmdFormat = 0x2 (type=0, barrier=1, acquire=0, release=0), signal=0x7fb1c0de0040, value = 0x0 mask = 0x1 cond: GTE, completion_signal=0x0";
        if !self.format.has_software_queue() {
            self.ledger.with_hwq += 1;
            self.ledger.without_queue += 1;
            return self.log(Book::Read, place, who, format_args!("HWq={:#x}, {text}", queue.swq), false);
        }
        queue.barrier_values += 1;
        let head = self.head(queue);
        let tail = self.pointers(queue, write, 0, false);
        self.log(Book::Read, place, who, format_args!("{head}{text}{tail}"), false)
    }

    pub(crate) fn copy(&mut self, who: Who, engine: u64, bytes: u64) -> io::Result<()> {
        let sum = self.ledger.copies.entry(engine).or_default();
        *sum = [sum[0] + 1, sum[1] + bytes];
        let places = "dst=0x7f0000000000, src=0x7f1000000000";
        let tail = "wait_event=0x0, completion_signal=0x7fb1c0de0080";
        let place = (4, "rocblit.cpp", 751);
        match self.format {
            Format::Rocm56 | Format::Rocm57 => {
                let text =
                    format_args!("HSA Async Copy on copy_engine={engine:x}, {places}, size={bytes}, {tail}");
                self.log(Book::Read, place, who, text, false)
            }
            Format::Rocm72 | Format::Rocm2026 => {
                let text = format_args!(
                    "HSA Copy copy_engine={engine:#x}, {places}, size={bytes}, forceSDMA=0, engineType=1, {tail}"
                );
                self.log(Book::Read, place, who, text, false)
            }
            _ => {
                let text = format_args!(
                    "HSA Async Copy copy_engine={engine:#x}, {places}, size={bytes}, forceSDMA=0, {tail}"
                );
                self.log(Book::Read, place, who, text, false)
            }
        }
    }

    pub(crate) fn full(&mut self, who: Who) -> io::Result<()> {
        self.ledger.queue_full += 1;
        let word = if self.format.is_7() || self.format.hides_process() { "reached" } else { "reachead" };
        let text =
            format_args!("Runtime {word} the AQL queue limit. SW is much ahead of HW. Blocking AQL queue!");
        self.log(Book::Read, (4, VIRTUAL, 936), who, text, false)
    }

    pub(crate) fn returned(&mut self, who: Who, error: &str) -> io::Result<()> {
        if error == "hipSuccess" {
            self.ledger.returned_success += 1;
        } else {
            *self.ledger.returned.entry(error.to_owned()).or_default() += 1;
        }
        let text = format_args!("hipExtModuleLaunchKernel: Returned {error} : : duration: 12 us");
        self.log(Book::Read, (3, "hip_module.cpp", 688), who, text, true)
    }

    /// The beginning of a packet's line, as where two writers collided.
    pub(crate) fn damaged(&mut self, who: Who, queue: &OfQueue) -> io::Result<()> {
        let head = self.head(queue);
        let text = format_args!(
            "{head}Dispatch Header = 0xb02 (type=2, barrier=1, acquire=1, release=1), setup=3, grid=[204"
        );
        self.log(Book::Damaged, (4, VIRTUAL, 1177), who, text, false)
    }
}
