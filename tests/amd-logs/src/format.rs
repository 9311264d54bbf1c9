//! Versions that write differently.

/// Of ROCm, by what changes in its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// 5.6: the process before the bracket, blank lines.
    #[value(name = "5.6")]
    Rocm56,
    /// 5.7, 6.0 and 6.1.
    #[value(name = "5.7")]
    Rocm57,
    /// SWq, id and pointers in packets.
    #[value(name = "6.2")]
    Rocm62,
    /// No process in lines of levels below 4.
    #[value(name = "6.3")]
    Rocm63,
    /// As shipped: a stray `d`, threads without `0x`.
    #[value(name = "6.3.2")]
    Rocm632,
    /// Commands tell their host queue.
    #[value(name = "7.2")]
    Rocm72,
    /// Of 2026: threads as a hash of 20 bits, more fields in packets.
    #[value(name = "2026")]
    Rocm2026,
}

impl Format {
    pub const ALL: [Format; 7] = [
        Format::Rocm56,
        Format::Rocm57,
        Format::Rocm62,
        Format::Rocm63,
        Format::Rocm632,
        Format::Rocm72,
        Format::Rocm2026,
    ];

    /// 6.2 and later: packets show SWq and id, lives of queues the HWq.
    #[must_use]
    pub fn has_software_queue(self) -> bool {
        !matches!(self, Format::Rocm56 | Format::Rocm57)
    }

    /// 6.3 and later: lines of levels below 4 show no process. 6.3.2 as shipped is assumed to show it in all.
    #[must_use]
    pub fn hides_process(self) -> bool {
        matches!(self, Format::Rocm63 | Format::Rocm72 | Format::Rocm2026)
    }

    /// 7.x: commands show their host queue, barriers their pointers.
    #[must_use]
    pub fn is_7(self) -> bool {
        matches!(self, Format::Rocm72 | Format::Rocm2026)
    }
}
