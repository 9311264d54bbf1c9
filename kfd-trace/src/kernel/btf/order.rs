//! Whether a structure can be what a compiler made: its members come in the order of their declaration, do not
//! overlap, and end where it ends.

use super::parse::{BtfKind, Type};
use super::{Btf, BtfError};

/// Maximum nesting of structures and unions without a name.
const MAX_NESTING: usize = 16;

impl Btf {
    /// The first member of a structure that is not where it can be, also of structures and unions without a
    /// name in it; `None` if there is none.
    ///
    /// # Errors
    /// No such structure, or a type cannot be read.
    pub fn misplaced(&self, structure: &str) -> Result<Option<String>, BtfError> {
        for found in self.structs(structure)? {
            if let Some(member) = self.misplaced_in(&found, 0)? {
                return Ok(Some(format!("{structure}.{member}")));
            }
        }
        Ok(None)
    }

    fn misplaced_in(&self, within: &Type, depth: usize) -> Result<Option<String>, BtfError> {
        if depth > MAX_NESTING {
            return Err(BtfError::TooDeep { id: within.id });
        }
        // A size of 0 is one that is not known.
        let whole = if within.size_or_type == 0 { u64::MAX } else { u64::from(within.size_or_type) * 8 };
        let is_union = within.kind == BtfKind::Union;
        let mut end = 0;
        for index in 0..within.count as usize {
            let at = within.tail + index * 12;
            let name = self.string(self.word_of(within, at)?)?;
            let declared = self.resolve(self.word_of(within, at + 4)?)?;
            let place = self.word_of(within, at + 8)?;
            let (bits, width) = if within.flag { (place & 0x00ff_ffff, place >> 24) } else { (place, 0) };
            let length = if width == 0 { u64::from(self.size(&declared, 0)?) * 8 } else { u64::from(width) };
            let begin = u64::from(bits);
            if begin < end || begin + length > whole || (is_union && begin > 0) {
                return Ok(Some(name.to_owned()));
            }
            end = if is_union { 0 } else { begin + length };
            let has_members = matches!(declared.kind, BtfKind::Struct | BtfKind::Union);
            let is_part = has_members && self.is_named(declared.name, "")?;
            if is_part && let Some(inner) = self.misplaced_in(&declared, depth + 1)? {
                return Ok(Some(if name.is_empty() { inner } else { format!("{name}.{inner}") }));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::super::BtfWriter;

    fn misplaced(members: &[(&str, u32)], size: u32) -> Option<String> {
        let mut types = BtfWriter::new();
        let word = types.int("int", 4);
        let part = types.strukt("", 8, &[("a", word, 0), ("b", word, 32)]);
        let members: Vec<(&str, u32, u32)> = members
            .iter()
            .map(|(name, bytes)| (*name, if *name == "part" { part } else { word }, bytes * 8))
            .collect();
        types.strukt("queue", size, &members);
        types.btf().misplaced("queue").unwrap()
    }

    #[test]
    fn members_in_order_are_where_they_can_be() {
        assert_eq!(misplaced(&[("x", 0), ("part", 4), ("y", 16)], 20), None);
        assert_eq!(misplaced(&[("x", 0), ("y", 16)], 0), None, "its size is not known");
    }

    #[test]
    fn a_member_that_was_moved_is_found() {
        assert_eq!(misplaced(&[("x", 8), ("y", 4)], 20).as_deref(), Some("queue.y"));
        assert_eq!(misplaced(&[("x", 0), ("part", 4), ("y", 8)], 20).as_deref(), Some("queue.y"));
        assert_eq!(misplaced(&[("x", 0), ("y", 17)], 20).as_deref(), Some("queue.y"));
    }

    #[test]
    fn parts_without_a_name_are_looked_into() {
        let mut types = BtfWriter::new();
        let word = types.int("int", 4);
        let part = types.strukt("", 8, &[("a", word, 32), ("b", word, 0)]);
        types.strukt("queue", 8, &[("part", part, 0)]);
        assert_eq!(types.btf().misplaced("queue").unwrap().as_deref(), Some("queue.part.b"));
        let choice = types.union("", 8, &[("a", word, 0), ("part", part, 0)]);
        types.strukt("either", 8, &[("choice", choice, 0)]);
        assert_eq!(types.btf().misplaced("either").unwrap().as_deref(), Some("either.choice.part.b"));
        let choice = types.union("", 8, &[("a", word, 32)]);
        types.strukt("none_of_it", 8, &[("", choice, 0)]);
        assert_eq!(types.btf().misplaced("none_of_it").unwrap().as_deref(), Some("none_of_it.a"));
        let bits = types.packed("bits", 4, &[("a", word, 3 << 24), ("b", word, 5 << 24 | 3)]);
        types.strukt("other", 4, &[("inner", bits, 0)]);
        assert_eq!(types.btf().misplaced("bits").unwrap(), None);
        assert!(types.btf().misplaced("none").is_err());
    }
}
