//! Maps of bounded size. Entries that do not fit are counted.

use std::collections::HashMap;
use std::hash::Hash;

/// At most `CAP` keys.
#[derive(Clone, Debug)]
pub struct Capped<K, V, const CAP: usize> {
    map: HashMap<K, V>,
    left_out: u64,
}

impl<K, V, const CAP: usize> Default for Capped<K, V, CAP> {
    fn default() -> Self {
        Capped { map: HashMap::new(), left_out: 0 }
    }
}

impl<K: Copy + Eq + Hash + Ord, V: Default, const CAP: usize> Capped<K, V, CAP> {
    /// The value of this key; `None` if there is no room, which is counted.
    pub fn at(&mut self, key: K) -> Option<&mut V> {
        if self.map.len() >= CAP && !self.map.contains_key(&key) {
            self.left_out += 1;
            return None;
        }
        Some(self.map.entry(key).or_default())
    }

    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key)
    }

    /// Removes a key; what was left out stays so.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.map.remove(key)
    }

    /// All entries, sorted by key.
    #[must_use]
    pub fn sorted(&self) -> Vec<(K, &V)> {
        let mut all: Vec<(K, &V)> = self.map.iter().map(|(key, value)| (*key, value)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    /// Lines for which there was no room.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// Counts per name. Limits the number of names, their total bytes and the length of each.
#[derive(Clone, Debug)]
pub struct Names {
    /// Number in the order of the first occurrence, and occurrences.
    counts: HashMap<Box<[u8]>, (u32, u64)>,
    bytes: usize,
    left_out: u64,
    most: usize,
    most_bytes: usize,
    longest: usize,
}

impl Names {
    #[must_use]
    pub fn new(most: usize, most_bytes: usize, longest: usize) -> Self {
        Names { counts: HashMap::new(), bytes: 0, left_out: 0, most, most_bytes, longest }
    }

    /// Counts one occurrence of the name; returns its number, `None` if there is no room.
    pub fn count(&mut self, name: &[u8]) -> Option<u32> {
        if let Some((number, count)) = self.counts.get_mut(name) {
            *count += 1;
            return Some(*number);
        }
        let bytes = self.bytes + name.len();
        if name.len() > self.longest || bytes > self.most_bytes || self.counts.len() >= self.most {
            self.left_out += 1;
            return None;
        }
        self.bytes = bytes;
        let number = u32::try_from(self.counts.len()).ok()?;
        self.counts.insert(name.into(), (number, 1));
        Some(number)
    }

    /// Names by their numbers.
    #[must_use]
    pub fn by_number(&self) -> HashMap<u32, &[u8]> {
        self.counts.iter().map(|(name, (number, _))| (*number, &**name)).collect()
    }

    /// Most frequent first, ties by name.
    #[must_use]
    pub fn sorted(&self) -> Vec<(&[u8], u64)> {
        let mut all: Vec<(&[u8], u64)> =
            self.counts.iter().map(|(name, (_, count))| (&**name, *count)).collect();
        all.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        all
    }

    /// Occurrences of names that were not kept.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_counted_and_what_has_goes_on() {
        let mut map: Capped<u32, u64, 2> = Capped::default();
        for key in [1, 2, 3, 1, 4, 2] {
            if let Some(value) = map.at(key) {
                *value += 1;
            }
        }
        assert_eq!((map.sorted(), map.left_out()), (vec![(1, &2), (2, &2)], 2));
    }

    #[test]
    fn names_are_bounded_in_number_length_and_bytes() {
        let mut names = Names::new(2, 6, 4);
        for name in ["abcde", "abcd", "xyz", "x", "y", "abcd", "x"] {
            names.count(name.as_bytes());
        }
        assert_eq!(names.sorted(), [(b"abcd".as_slice(), 2), (b"x".as_slice(), 2)]);
        assert_eq!(names.left_out(), 3);
    }
}
