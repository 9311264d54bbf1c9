//! Writes BTF: one method per kind; each returns the id of the type it wrote. For the types of a driver without
//! BTF (`driver-types`, the shipped table), and for tests.

#[cfg(test)]
use super::Btf;
use std::collections::HashMap;
#[cfg(test)]
use std::sync::Arc;

/// Types in the order in which they were written, and their names.
pub(crate) struct BtfWriter {
    types: Vec<u8>,
    strings: Vec<u8>,
    /// Offsets of names that are there already.
    named: HashMap<String, u32>,
    first_string: u32,
    next_id: u32,
}

impl BtfWriter {
    pub(crate) fn new() -> Self {
        BtfWriter { types: Vec::new(), strings: vec![0], named: HashMap::new(), first_string: 0, next_id: 1 }
    }

    /// Split BTF on top of another.
    #[cfg(test)]
    pub(crate) fn on(base: &BtfWriter) -> Self {
        let (first_string, next_id) = (length(&base.strings), base.next_id);
        BtfWriter { types: Vec::new(), strings: Vec::new(), named: HashMap::new(), first_string, next_id }
    }

    pub(crate) fn int(&mut self, name: &str, size: u32) -> u32 {
        self.add(name, 1, 0, false, size, &[size * 8])
    }

    #[cfg(test)]
    pub(crate) fn partial_int(&mut self, name: &str, size: u32, bits: u32) -> u32 {
        self.add(name, 1, 0, false, size, &[bits])
    }

    pub(crate) fn pointer(&mut self, to: u32) -> u32 {
        self.add("", 2, 0, false, to, &[])
    }

    pub(crate) fn array(&mut self, of: u32, length: u32) -> u32 {
        self.add("", 3, 0, false, 0, &[of, of, length])
    }

    /// Members are (name, type, offset in bits).
    pub(crate) fn strukt(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        self.composite_of(name, 4, false, size, members)
    }

    /// A structure or union; the upper 8 bits of an offset are the width of a bitfield, 0 for others.
    pub(crate) fn composite(
        &mut self,
        name: &str,
        union: bool,
        size: u32,
        members: &[(&str, u32, u32)],
    ) -> u32 {
        self.composite_of(name, if union { 5 } else { 4 }, true, size, members)
    }

    #[cfg(test)]
    pub(crate) fn union(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        self.composite_of(name, 5, false, size, members)
    }

    /// As `strukt`, with bitfields: the upper 8 bits of an offset are a width.
    #[cfg(test)]
    pub(crate) fn packed(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        self.composite_of(name, 4, true, size, members)
    }

    /// A function type: its result, and the types of its parameters.
    pub(crate) fn prototype(&mut self, result: u32, parameters: &[u32]) -> u32 {
        let words: Vec<u32> = parameters.iter().flat_map(|parameter| [0, *parameter]).collect();
        self.add("", 13, parameters.len(), false, result, &words)
    }

    /// A text about a type.
    pub(crate) fn tag(&mut self, of: u32, text: &str) -> u32 {
        self.add(text, 17, 0, false, of, &[u32::MAX])
    }

    pub(crate) fn function(&mut self, name: &str, prototype: u32) -> u32 {
        self.add(name, 12, 0, false, prototype, &[])
    }

    #[cfg(test)]
    pub(crate) fn typedef(&mut self, name: &str, to: u32) -> u32 {
        self.add(name, 8, 0, false, to, &[])
    }

    #[cfg(test)]
    pub(crate) fn constant(&mut self, of: u32) -> u32 {
        self.add("", 10, 0, false, of, &[])
    }

    /// An enum of this many bytes, whose values are signed.
    pub(crate) fn enumeration_of(&mut self, name: &str, size: u32, values: &[(&str, u32)]) -> u32 {
        let words: Vec<u32> = values.iter().flat_map(|(name, value)| [self.string(name), *value]).collect();
        self.add(name, 6, values.len(), true, size, &words)
    }

    pub(crate) fn enumeration(&mut self, name: &str, signed: bool, values: &[(&str, u32)]) -> u32 {
        let words: Vec<u32> = values.iter().flat_map(|(name, value)| [self.string(name), *value]).collect();
        self.add(name, 6, values.len(), signed, 4, &words)
    }

    #[cfg(test)]
    pub(crate) fn enumeration64(&mut self, name: &str, values: &[(&str, u32, u32)]) -> u32 {
        let words: Vec<u32> =
            values.iter().flat_map(|(name, low, high)| [self.string(name), *low, *high]).collect();
        self.add(name, 19, values.len(), true, 8, &words)
    }

    /// A kind unknown to every reader.
    #[cfg(test)]
    pub(crate) fn unknown(&mut self) -> u32 {
        self.add("", 31, 0, false, 0, &[])
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let words = [24, 0, length(&self.types), length(&self.types), length(&self.strings)];
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(&self.types);
        bytes.extend(&self.strings);
        bytes
    }

    #[cfg(test)]
    pub(crate) fn btf(&self) -> Arc<Btf> {
        Arc::new(Btf::parse(self.bytes(), None).unwrap())
    }

    fn composite_of(
        &mut self,
        name: &str,
        kind: u32,
        flag: bool,
        size: u32,
        members: &[(&str, u32, u32)],
    ) -> u32 {
        let words: Vec<u32> =
            members.iter().flat_map(|(name, id, bits)| [self.string(name), *id, *bits]).collect();
        self.add(name, kind, members.len(), flag, size, &words)
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(offset) = self.named.get(text) {
            return *offset;
        }
        let offset = self.first_string + length(&self.strings);
        self.strings.extend(text.bytes().chain([0]));
        self.named.insert(text.to_owned(), offset);
        offset
    }

    fn add(&mut self, name: &str, kind: u32, count: usize, flag: bool, last: u32, tail: &[u32]) -> u32 {
        let name = self.string(name);
        // No structure of a kernel comes near 65,535 members.
        let count = u32::try_from(count).unwrap_or(u32::MAX) & 0xffff;
        let info = kind << 24 | count | u32::from(flag) << 31;
        let words = [name, info, last].into_iter().chain(tail.iter().copied());
        self.types.extend(words.flat_map(u32::to_le_bytes));
        self.next_id += 1;
        self.next_id - 1
    }
}

/// The format has 32 bits for it; what is written here has some 300 KB.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}
