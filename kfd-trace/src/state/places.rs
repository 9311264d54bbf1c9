//! Rows by the place of their process, found in the same time however many there are.

use super::process::ProcessKey;
use crate::model::inventory::Place;
use std::collections::HashMap;

/// The row last seen at each place, while it lives.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// By tgid; the contexts of each, of which there is nearly always one, in their order.
    by_tgid: HashMap<u32, Vec<(Option<u32>, ProcessKey)>>,
}

impl Places {
    pub(super) fn get(&self, (tgid, context_id): Place) -> Option<ProcessKey> {
        let contexts = self.by_tgid.get(&tgid)?;
        contexts.iter().find(|(context, _)| *context == context_id).map(|(_, key)| *key)
    }

    /// The row of a tgid: of several contexts the first one.
    pub(super) fn first(&self, tgid: u32) -> Option<ProcessKey> {
        self.by_tgid.get(&tgid)?.first().map(|(_, key)| *key)
    }

    pub(super) fn insert(&mut self, (tgid, context_id): Place, key: ProcessKey) {
        let contexts = self.by_tgid.entry(tgid).or_default();
        match contexts.binary_search_by_key(&context_id, |(context, _)| *context) {
            Ok(at) => contexts[at].1 = key,
            Err(at) => contexts.insert(at, (context_id, key)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_tgid.values().map(Vec::len).sum()
    }

    /// All of them, in their order.
    pub(super) fn entries(&self) -> Vec<(Place, ProcessKey)> {
        let of = |(tgid, contexts): (&u32, &Vec<(Option<u32>, ProcessKey)>)| {
            let tgid = *tgid;
            contexts.iter().map(move |(context, key)| ((tgid, *context), *key)).collect::<Vec<_>>()
        };
        let mut entries: Vec<_> = self.by_tgid.iter().flat_map(of).collect();
        entries.sort_unstable();
        entries
    }

    /// Removes this row from the place, unless another row has taken it.
    pub(super) fn remove(&mut self, (tgid, context_id): Place, key: ProcessKey) {
        let Some(contexts) = self.by_tgid.get_mut(&tgid) else { return };
        contexts.retain(|entry| *entry != (context_id, key));
        if contexts.is_empty() {
            self.by_tgid.remove(&tgid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_kept_in_order_and_only_their_own_row_leaves() {
        let mut places = Places::default();
        let [one, two, three] = [1, 2, 3].map(ProcessKey::Adopted);
        for (place, key) in [((7, Some(2)), one), ((7, None), two), ((8, None), three)] {
            places.insert(place, key);
        }
        assert_eq!((places.get((7, Some(2))), places.get((7, Some(1)))), (Some(one), None));
        assert_eq!((places.first(7), places.first(8), places.first(9)), (Some(two), Some(three), None));
        places.remove((7, None), one);
        assert_eq!(places.first(7), Some(two), "it is at another place");
        places.insert((7, None), three);
        places.remove((7, None), two);
        assert_eq!(places.get((7, None)), Some(three), "another has taken its place");
        places.remove((7, None), three);
        assert_eq!(places.first(7), Some(one));
        places.remove((7, Some(2)), one);
        assert!(places.first(7).is_none() && !places.by_tgid.contains_key(&7));
    }
}
