//! What ends a process, as clr and ROCr word it, and what they write of the queues then.

use crate::format::Format;
use crate::ledger::OfQueue;
use crate::writer::{Book, Who, Writer};
use std::io::{self, Write};

const DEVICE: &str = "rocdevice.cpp";

impl<W: Write> Writer<W> {
    /// Aborts in each wording: for want of memory, for all other errors, and as up to 5.2, without an address.
    pub(crate) fn aborts(&mut self, who: Who, queue: &mut OfQueue) -> io::Result<()> {
        queue.aborted += 1;
        self.ledger.aborts += 3;
        let at = self.address(queue);
        let place = (0, DEVICE, 2990);
        let text = format_args!(
            "Callback: Queue {at:#x} aborting with error : HSA_STATUS_ERROR_EXCEPTION: synthetic. code: 0x1016"
        );
        self.log(Book::Read, place, who, text, false)?;
        let text = format_args!(
            "Callback: Queue 0x7f0000dead00 Aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: synthetic. Code: 0x1008 Available Free mem : 0 MB"
        );
        self.log(Book::Read, place, who, text, false)?;
        let text = format_args!(
            "Device::callbackQueue aborting with error : HSA_STATUS_ERROR_MEMORY_FAULT: synthetic. code: 0x2b"
        );
        self.log(Book::Read, place, who, text, false)
    }

    /// ROCr's reports, in the midst of other output; from 2026 on clr's own, too, and its analysis of queues.
    pub(crate) fn faults(&mut self, who: Who, queue: &OfQueue) -> io::Result<()> {
        let agent = "(Agent handle: 0x55d000000001)";
        self.ledger.fault_reports += 3;
        self.crash(&format!(
            " 4%|#  | 2/48Memory access fault by GPU node-3 {agent} on address 0x7f6600001000. Reason: Unknown."
        ))?;
        self.crash(&format!("HW Exception by GPU node-4 {agent} reason :GPU Hang"))?;
        self.crash("Warning: Queue error - HSA_STATUS_ERROR_MEMORY_FAULT")?;
        if self.format != Format::Rocm2026 {
            return Ok(());
        }
        self.ledger.fault_reports += 1;
        let text = format_args!(
            "Memory Fault Error [host: node7, GPU index: 2, faulting addr: 0x7f6400800000, kernel: sum<int[2]>(int)]"
        );
        self.log(Book::Read, (0, DEVICE, 3678), who, text, false)?;
        self.ledger.analyzed += 3;
        let OfQueue { swq, hwq, id, .. } = *queue;
        self.ledger.with_hwq += 1;
        for line in [
            "VGPU(0x55e000000010) hang analysis:".to_owned(),
            format!("VGPU=0x55e000000010 SWq={swq:#x}, HWq={hwq:#x}, id={id}"),
            "\tDispatch Header =0xd02 (type=2, barrier=1, acquire=2, release=1), setup=3".to_owned(),
            "\tgrid=[2560, 1, 1], workgroup=[128, 1, 1]".to_owned(),
            "\tprivate_seg_size=0, group_seg_size=1638".to_owned(),
            "\tkernel_obj=0x7f6200000380, kernarg_address=0x0x7f6300000000".to_owned(),
            "\tcompletion_signal=0x0, correlation_id=0".to_owned(),
            "\trptr=62022, wptr=62024".to_owned(),
            "VGPU(0x55e000000020) Queue(0x7f6000004000) rptr=17, wptr=18. A barrier packet in the queue!"
                .to_owned(),
            "VGPU(0x55e000000030) Queue(0x7f6000006000) is idle".to_owned(),
        ] {
            self.crash(&line)?;
        }
        Ok(())
    }
}
