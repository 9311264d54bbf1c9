//! Whose processes are traced.

/// The processes that are traced, by tgid of the initial PID namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selected {
    #[default]
    All,
    Processes(Vec<u32>),
    /// The descendants of a process, itself not included. `first`: one of them that is selected as such, too, for
    /// kernels whose tasks cannot be read; 0 for none.
    Descendants {
        of: u32,
        first: u32,
    },
}

impl Selected {
    /// tgids that are selected as such; none for all.
    #[must_use]
    pub fn tgids(&self) -> &[u32] {
        match self {
            Selected::Processes(tgids) => tgids,
            Selected::Descendants { first, .. } if *first != 0 => std::slice::from_ref(first),
            Selected::All | Selected::Descendants { .. } => &[],
        }
    }

    /// The ancestor by which processes are selected.
    #[must_use]
    pub fn ancestor(&self) -> Option<u32> {
        match self {
            Selected::Descendants { of, .. } => Some(*of),
            Selected::All | Selected::Processes(_) => None,
        }
    }

    /// Whether a process is selected; `descends` is asked whether it descends from another one.
    pub fn includes(&self, tgid: u32, descends: impl FnOnce(u32) -> bool) -> bool {
        match self {
            Selected::All => true,
            Selected::Processes(tgids) => tgids.contains(&tgid),
            Selected::Descendants { of, first } => (*first == tgid && tgid != 0) || descends(*of),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_selected_by_its_number_or_its_ancestor() {
        let never = |_| unreachable!("not asked");
        assert!(Selected::All.includes(7, never));
        let named = Selected::Processes(vec![7]);
        assert!(named.includes(7, never) && !named.includes(8, never));
        let descendants = Selected::Descendants { of: 3, first: 5 };
        assert!(descendants.includes(7, |of| of == 3) && descendants.includes(5, never));
        assert!(!descendants.includes(3, |_| false) && !descendants.includes(0, |_| false));
        assert_eq!((named.tgids(), descendants.tgids()), (&[7][..], &[5][..]));
        assert_eq!(Selected::Descendants { of: 3, first: 0 }.tgids(), Vec::<u32>::new());
        assert_eq!((named.ancestor(), descendants.ancestor()), (None, Some(3)));
    }
}
