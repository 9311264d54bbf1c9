//! The label text of a process: made by the first exposition that shows it, and kept with its row until what it
//! is made from changes.

use std::sync::{Arc, OnceLock, Weak};

/// Labels of a process as they are in an exposition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelText {
    all: Box<str>,
    identity: usize,
}

impl LabelText {
    /// `identity`: how many bytes of `all` identify the process.
    #[must_use]
    pub fn new(all: String, identity: usize) -> Self {
        LabelText { all: all.into(), identity }
    }

    /// Those of all series of the process.
    #[must_use]
    pub fn identity(&self) -> &str {
        self.all.get(..self.identity).unwrap_or(&self.all)
    }

    /// With those that describe it.
    #[must_use]
    pub fn all(&self) -> &str {
        &self.all
    }
}

/// Shared by a row and its copies: a scrape works on a copy, and the row keeps what it made.
#[derive(Clone, Debug, Default)]
pub struct KeptLabels(Arc<OnceLock<LabelText>>);

impl KeptLabels {
    /// The text that is kept; `make` makes it from the rest of the row.
    pub fn get_or_make(&self, make: impl Fn() -> LabelText) -> &LabelText {
        let kept = self.0.get_or_init(&make);
        debug_assert_eq!(*kept, make(), "a change of the row forgets its text");
        kept
    }

    /// What the text is made from changes. A copy of the row keeps its text, or makes it later, for itself.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Identifies the row until its labels are forgotten.
    pub(super) fn version(&self) -> RowVersion {
        RowVersion(Arc::downgrade(&self.0))
    }
}

/// A row as it is until its labels are forgotten. It holds the allocation but not the text, so that no later version has
/// the same address.
#[derive(Clone, Debug, Default)]
pub(super) struct RowVersion(Weak<OnceLock<LabelText>>);

impl RowVersion {
    /// Heap bytes that a version holds once its row has another one, allocator overhead included.
    pub(super) const HEAP: usize = size_of::<OnceLock<LabelText>>() + 2 * size_of::<usize>() + 16;

    pub(super) fn is_of(&self, labels: &KeptLabels) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&labels.0))
    }
}

/// It adds nothing to what was made from the row.
impl PartialEq for RowVersion {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for RowVersion {}

/// It follows from the rest of the row.
impl PartialEq for KeptLabels {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(all: &str) -> LabelText {
        LabelText::new(all.to_owned(), 1)
    }

    #[test]
    fn a_row_keeps_what_its_copy_made_and_no_longer_than_it_is_true() {
        let mut row = KeptLabels::default();
        let copy = row.clone();
        assert_eq!(copy.get_or_make(|| text("ab")).identity(), "a");
        assert!(std::ptr::eq(row.get_or_make(|| text("ab")), copy.get_or_make(|| text("ab"))));
        row.forget();
        assert_eq!(
            (row.get_or_make(|| text("cd")).all(), copy.get_or_make(|| text("ab")).all()),
            ("cd", "ab")
        );
        let late = row.clone();
        row.forget();
        let older = row.clone();
        row.forget();
        older.get_or_make(|| text("ef"));
        assert_eq!(row.get_or_make(|| text("gh")).all(), "gh", "made by a copy of the row before the change");
        assert_eq!(late.get_or_make(|| text("cd")).all(), "cd");
    }

    #[test]
    fn a_version_is_that_of_a_row_and_its_copies_until_it_changes() {
        let mut row = KeptLabels::default();
        let (copy, mut versions) = (row.clone(), vec![row.version()]);
        assert!(versions[0].is_of(&row) && versions[0].is_of(&copy));
        drop(copy);
        for _ in 0..100 {
            row.forget();
            assert!(!versions.iter().any(|version| version.is_of(&row)), "an address is not given again");
            versions.push(row.version());
        }
        assert!(!RowVersion::default().is_of(&row));
    }
}
