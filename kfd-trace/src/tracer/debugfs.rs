//! The driver's dumps in debugfs: reads them, and joins that of the MQDs with sysfs.

use crate::attribute::{KfdSysfs, SysfsProcess, Topology, births};
use crate::hw::{Generation, Listing, MqdFile, existing};
use crate::kernel::Roots;
use crate::model::inventory::Listed;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::spawn;
use std::time::Duration;

/// A longer file is no dump: the slots of 64 GPUs with 8 XCCs are 50 MB.
const LONGEST: u64 = 256 << 20;

/// The dump waits for the ioctls of each process that are under way, in turn.
const TIMEOUT: Duration = Duration::from_secs(3);

/// `mqds` or `hqds`.
#[must_use]
pub fn path(roots: &Roots, name: &str) -> PathBuf {
    roots.sysfs.join("kernel/debug/kfd").join(name)
}

/// The text of a dump, or of a copy.
///
/// # Errors
/// It cannot be read, or is too long for one.
pub fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if read as u64 > LONGEST {
        return Err(io::Error::other("it is longer than 256 MiB"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What debugfs has of existing queues.
pub(super) struct Dumped {
    /// What sysfs listed when it was read.
    pub(super) sysfs: KfdSysfs,
    /// The processes that the dump has, with the queues that it describes with certainty.
    pub(super) processes: Vec<Listed>,
}

/// Joins what sysfs lists now with the dump of MQDs.
///
/// # Errors
/// One line: debugfs cannot be read or understood.
pub(super) fn queues(roots: &Roots, now: KfdSysfs, topology: &Topology) -> Result<Dumped, String> {
    let before = listing(roots, now.processes)?;
    let path = path(roots, "mqds");
    let cannot = |why: &dyn std::fmt::Display| format!("{} cannot be read: {why}", path.display());
    // In a thread of its own: it may wait for as long as an ioctl does.
    let (sender, text) = mpsc::channel();
    let asked = path.clone();
    spawn(move || {
        // The receiver may be gone.
        let _ = sender.send(read(&asked));
    });
    let text = text.recv_timeout(TIMEOUT).map_err(|_| cannot(&"it takes too long"))?;
    let dump = MqdFile::parse(&text.map_err(|error| cannot(&error))?);
    let sysfs = KfdSysfs::queues(&roots.sysfs);
    let after = listing(roots, sysfs.processes.clone())?;
    let generation = |gpu_id| Generation::of_target(topology.gpu(gpu_id)?.gfx_target_version?).ok();
    Ok(Dumped { sysfs, processes: existing(&before, &dump, &after, generation)? })
}

fn listing(roots: &Roots, processes: Vec<SysfsProcess>) -> Result<Listing, String> {
    let births = births(&roots.sysfs, &processes)
        .ok_or_else(|| format!("{} is not sysfs itself", roots.sysfs.display()))?;
    Ok(Listing { processes, births })
}
