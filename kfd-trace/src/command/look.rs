//! One look at the driver's lists: begun with what only the tracer can read, finished without it.

use super::clock;
use super::standing::{Standings, list};
use crate::attribute::Topology;
use crate::events::event::ProcessId;
use crate::probes::walk;
use crate::state::{List, Read, Source};
use std::sync::Arc;

/// The driver's lists at one look.
#[derive(Clone, Debug)]
pub struct Look {
    pub sysfs: List,
    pub kernel: Walked,
}

/// What a walk read of the kernel's memory, with the numbers by which the BPF side knows the processes.
pub(super) type Numbered = (Read, Vec<(walk::StandingProcess, Option<ProcessId>)>);

/// A look of which sysfs and procfs are missing. It holds nothing of the tracer, so that reading them keeps nobody waiting.
pub struct Begun {
    standings: Arc<Standings>,
    kernel: Walked<Numbered>,
    topology: bool,
}

impl Begun {
    pub(super) fn new(standings: Arc<Standings>, kernel: Walked<Numbered>, topology: bool) -> Self {
        Begun { standings, kernel, topology }
    }

    /// Reads sysfs, and procfs of the processes that stand.
    #[must_use]
    pub fn finish(self) -> Seen {
        let Begun { standings, kernel, topology } = self;
        let from_ns = clock::mono_ns();
        let listed = standings.listed();
        let read = Read { from_ns, until_ns: clock::mono_ns() };
        let kernel = kernel.map(|(read, numbered)| list(Source::Kernel, read, standings.found(numbered)));
        let look = listed.map(|found| Look { sysfs: list(Source::Sysfs, read, found), kernel });
        Seen { topology: topology.then(|| Topology::read(&standings.roots.sysfs)), look }
    }
}

/// What a look saw.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Where it was asked for: GPUs come after the driver, and partitions change.
    pub topology: Option<Topology>,
    /// `None` where sysfs could not be read whole: what it does not tell is not gone.
    pub look: Option<Look>,
}

/// What a walk over the kernel's own table gave.
#[derive(Clone, Debug)]
pub enum Walked<T = List> {
    Told(T),
    /// It was not asked for at this look.
    NotAsked,
    /// Something could not be read, or was freed under it.
    Broke,
    /// This kernel does not tell where the table is, or refuses to let its memory be read.
    Impossible,
}

impl<T> Walked<T> {
    fn map<U>(self, act: impl FnOnce(T) -> U) -> Walked<U> {
        match self {
            Walked::Told(told) => Walked::Told(act(told)),
            Walked::NotAsked => Walked::NotAsked,
            Walked::Broke => Walked::Broke,
            Walked::Impossible => Walked::Impossible,
        }
    }
}

impl Walked {
    #[must_use]
    pub fn list(&self) -> Option<&List> {
        match self {
            Walked::Told(list) => Some(list),
            Walked::NotAsked | Walked::Broke | Walked::Impossible => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::layout::QueueLayout;
    use crate::kernel::Roots;
    use std::fs;
    use std::path::Path;

    fn begun(sysfs: &Path, topology: bool) -> Begun {
        let roots = Roots { procfs: sysfs.join("proc"), sysfs: sysfs.to_owned() };
        let walk = Err("no symbols".to_owned());
        let standings = Standings { roots, layout: QueueLayout::default(), walk, tgids: vec![4711] };
        Begun { standings: Arc::new(standings), kernel: Walked::Impossible, topology }
    }

    fn put(sysfs: &Path, path: &str, text: &str) {
        let path = sysfs.join("class/kfd/kfd/proc").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_look_has_the_queues_that_sysfs_lists_of_those_who_are_asked_for() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["4711/queues/2", "90/queues/3"] {
            for (file, text) in [("gpuid", "7"), ("size", "4096"), ("type", "0")] {
                put(root.path(), &format!("{folder}/{file}"), text);
            }
        }
        let Seen { topology, look } = begun(root.path(), true).finish();
        let look = look.expect("sysfs was read whole");
        assert!(look.sysfs.queue((4711, None), 2).is_some_and(|(_, queue)| queue.ring_size == Some(4096)));
        assert!(!look.sysfs.has((90, None)), "not asked for");
        assert!(look.sysfs.read.from_ns <= look.sysfs.read.until_ns && look.sysfs.read.from_ns > 0);
        assert!(topology.is_some() && begun(root.path(), false).finish().topology.is_none());
        put(root.path(), "4711/queues/2/size", "lots");
        assert!(begun(root.path(), true).finish().look.is_none(), "what cannot be read is not gone");
    }
}
