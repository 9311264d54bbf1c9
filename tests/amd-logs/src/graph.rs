//! Kernels that a graph launches, copies without a size, and times of signals, as each version words them.

use crate::format::Format;
use crate::ledger::OfQueue;
use crate::writer::{Book, Who, Writer};
use std::io::{self, Write};

const VIRTUAL: &str = "rocvirtual.cpp";
const BLIT: &str = "rocblit.cpp";

impl<W: Write> Writer<W> {
    /// A kernel of a graph, `behind` packets after the last that retired; for 2026 with a barrier before it.
    pub(crate) fn graph(
        &mut self,
        who: Who,
        queue: &mut OfQueue,
        write: &mut u64,
        behind: u64,
    ) -> io::Result<()> {
        let name = "norm_rows<float, 4>";
        let place = |level| (level, VIRTUAL, 1300);
        match self.format {
            Format::Rocm56 | Format::Rocm57 => return Ok(()),
            Format::Rocm62 | Format::Rocm63 | Format::Rocm632 => {
                self.log(Book::Read, place(3), who, format_args!("Graph shader name : {name}"), false)?;
            }
            Format::Rocm72 => {
                let text = format_args!("Graph shader name : {name}, device id : 0");
                self.log(Book::Read, place(5), who, text, false)?;
            }
            Format::Rocm2026 => {
                let text = format_args!("Graph ShaderName : [Graph cross dep barrier], device id : 0");
                self.log(Book::Other, place(5), who, text, false)?;
                queue.barriers_and += 1;
                let (head, tail) = (self.head(queue), self.slot(queue, *write, behind));
                let text = format_args!(
                    "{head}[Graph cross dep barrier] Barrier-AND Header = 0xb03 (type=3, barrier=1, acquire=1, release=1), dep_signal=[0x7f8800000000, 0x0, 0x0, 0x0, 0x0], completion_signal=0x0{tail}"
                );
                self.log(Book::Read, (5, VIRTUAL, 118), who, text, false)?;
                *write += 1;
                let text = format_args!("Graph ShaderName : {name}, device id : 0");
                self.log(Book::Read, place(5), who, text, false)?;
            }
        }
        *self.ledger.kernels.entry(name.to_owned()).or_default() += 1;
        queue.dispatches += 1;
        let (grid, workgroup) = ([128, 1, 1], [64, 1, 1]);
        *queue.shapes.entry((0xb02, grid, workgroup)).or_default() += 1;
        self.ledger.by_second.entry(self.now_us / 1_000_000).or_default()[1] += 1;
        let head = self.head(queue);
        let tail = if self.format == Format::Rocm2026 {
            self.slot(queue, *write, behind)
        } else {
            self.pointers(queue, *write, behind, true)
        };
        *write += 1;
        let text = format_args!(
            "{head}Dispatch Header = 0xb02 (type=2, barrier=1, acquire=1, release=1), setup=3, grid=[128, 1, 1], workgroup=[64, 1, 1], private_seg_size=0, group_seg_size=0, kernel_obj=0x7f8400000080, kernarg_address=0x7f8500000000, completion_signal=0x0, correlation_id=0{tail}"
        );
        self.log(Book::Read, (5, VIRTUAL, 1305), who, text, false)
    }

    /// Pointers with the slot of the ring instead of the index.
    fn slot(&mut self, queue: &mut OfQueue, write: u64, behind: u64) -> String {
        self.pointers(queue, write, behind, true);
        let read = write.saturating_sub(behind);
        format!(", rptr={read}, wptr={}", write % 16384)
    }

    /// A copy of a rectangle, and a line that announces a copy.
    pub(crate) fn rectangle(&mut self, who: Who) -> io::Result<()> {
        let announced = format_args!("HSA Copy Using Staging resource size 8192");
        self.log(Book::Other, (5, BLIT, 690), who, announced, false)?;
        self.log(
            Book::Other,
            (4, BLIT, 735),
            who,
            format_args!("HSA Async Copy staged H2D, Async=1"),
            false,
        )?;
        self.ledger.without_size += 2;
        let text = format_args!(
            "HSA Async Copy Rect dst=0x7f3200000000, src=0x7f3000000000, wait_event=0x0 completion_signal=0x7f3300000100"
        );
        self.log(Book::Read, (4, BLIT, 480), who, text, false)?;
        let text = format_args!("HSA Async Copy wait_event=0x0, completion_signal=0x7f3300000180");
        self.log(Book::Read, (4, BLIT, 505), who, text, false)
    }

    /// When the GPU ran what had a signal.
    pub(crate) fn signal(&mut self, who: Who) -> io::Result<()> {
        let (begin, end) = (8_400_000_120_000u64, 8_400_000_300_000u64);
        self.ledger.signals = [self.ledger.signals[0] + 1, self.ledger.signals[1] + end - begin];
        let place = (4, VIRTUAL, 150);
        if matches!(self.format, Format::Rocm56 | Format::Rocm57 | Format::Rocm62) {
            let text = format_args!(
                "Signal = (0x7f8c00000080), start = {begin}, end = {end} time taken= {} ns",
                end - begin
            );
            return self.log(Book::Read, place, who, text, false);
        }
        let text = format_args!(
            "Signal = (0x7f8c00000080), Translated start/end = {begin} / {end}, Elapsed = {} ns, ticks start/end = 1 / 2, Ticks elapsed = 1",
            end - begin
        );
        self.log(Book::Read, place, who, text, false)
    }
}
