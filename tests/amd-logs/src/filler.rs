//! Lines between those that a reader needs: most of a log of level 5.

use crate::writer::{Book, Who, Writer};
use std::io::{self, Write};

/// Writes this many lines of a kernel's launch: arguments, calls of the API, and signals.
pub(crate) fn launch<W: Write>(writer: &mut Writer<W>, who: Who, lines: u32, turn: u64) -> io::Result<()> {
    for index in 0..lines {
        match index % 10 {
            0 => writer.log(
                Book::Other,
                (3, "hip_module.cpp", 683),
                who,
                format_args!(" hipExtModuleLaunchKernel ( 0x0x{turn:x}, 20480, 1, 1, 256, 1, 1, 0, stream:<null>, char array:<null>, char array:<null>, event:0, event:0, 0 ) "),
                true,
            )?,
            1 => writer.foreign("KernargSegmentByteSize = 160")?,
            2 => writer.log(
                Book::Other,
                (4, "rocvirtual.cpp", 1002),
                who,
                format_args!("Host active wait for Signal = (0x7faf{:08x}) for -1 ns", turn & 0xffff_ffff),
                false,
            )?,
            _ => writer.log(
                Book::Other,
                (4, "kernel.cpp", 612),
                who,
                format_args!("Arg{index}: Argument_{index}   = ptr:0x7fad{:08x} obj:[0x7fad00000000-0x7fad{:08x}]", turn, turn + 4096),
                false,
            )?,
        }
    }
    Ok(())
}
