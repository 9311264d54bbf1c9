//! Writes BTF by hand, for tests: one method per kind; each returns the id of the type it wrote.

use super::Btf;
use std::sync::Arc;

pub(in crate::kernel) struct SyntheticBtf {
    types: Vec<u8>,
    strings: Vec<u8>,
    first_string: u32,
    next_id: u32,
}

impl SyntheticBtf {
    pub(in crate::kernel) fn new() -> Self {
        SyntheticBtf { types: Vec::new(), strings: vec![0], first_string: 0, next_id: 1 }
    }

    /// Split BTF on top of another.
    pub(in crate::kernel) fn on(base: &SyntheticBtf) -> Self {
        let first_string = u32::try_from(base.strings.len()).unwrap();
        SyntheticBtf { types: Vec::new(), strings: Vec::new(), first_string, next_id: base.next_id }
    }

    pub(in crate::kernel) fn int(&mut self, name: &str, size: u32) -> u32 {
        self.add(name, 1, 0, false, size, &[size * 8])
    }

    pub(in crate::kernel) fn partial_int(&mut self, name: &str, size: u32, bits: u32) -> u32 {
        self.add(name, 1, 0, false, size, &[bits])
    }

    pub(in crate::kernel) fn pointer(&mut self, to: u32) -> u32 {
        self.add("", 2, 0, false, to, &[])
    }

    pub(in crate::kernel) fn array(&mut self, of: u32, length: u32) -> u32 {
        self.add("", 3, 0, false, 0, &[of, of, length])
    }

    /// Members are (name, type, offset in bits).
    pub(in crate::kernel) fn strukt(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        self.composite(name, 4, false, size, members)
    }

    pub(in crate::kernel) fn union(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        self.composite(name, 5, false, size, members)
    }

    /// As `strukt`, with bitfields: the upper 8 bits of an offset are a width.
    pub(in crate::kernel) fn packed(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        self.composite(name, 4, true, size, members)
    }

    pub(in crate::kernel) fn function(&mut self, name: &str, prototype: u32) -> u32 {
        self.add(name, 12, 0, false, prototype, &[])
    }

    pub(in crate::kernel) fn typedef(&mut self, name: &str, to: u32) -> u32 {
        self.add(name, 8, 0, false, to, &[])
    }

    pub(in crate::kernel) fn constant(&mut self, of: u32) -> u32 {
        self.add("", 10, 0, false, of, &[])
    }

    pub(in crate::kernel) fn enumeration(&mut self, name: &str, signed: bool, values: &[(&str, u32)]) -> u32 {
        let words: Vec<u32> = values.iter().flat_map(|(name, value)| [self.string(name), *value]).collect();
        self.add(name, 6, values.len(), signed, 4, &words)
    }

    pub(in crate::kernel) fn enumeration64(&mut self, name: &str, values: &[(&str, u32, u32)]) -> u32 {
        let words: Vec<u32> =
            values.iter().flat_map(|(name, low, high)| [self.string(name), *low, *high]).collect();
        self.add(name, 19, values.len(), true, 8, &words)
    }

    /// A kind unknown to every reader.
    pub(in crate::kernel) fn unknown(&mut self) -> u32 {
        self.add("", 31, 0, false, 0, &[])
    }

    pub(in crate::kernel) fn bytes(&self) -> Vec<u8> {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let words = [24, 0, length(&self.types), length(&self.types), length(&self.strings)];
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(&self.types);
        bytes.extend(&self.strings);
        bytes
    }

    pub(in crate::kernel) fn btf(&self) -> Arc<Btf> {
        Arc::new(Btf::parse(self.bytes(), None).unwrap())
    }

    fn composite(
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
        let offset = self.first_string + u32::try_from(self.strings.len()).unwrap();
        self.strings.extend(text.bytes().chain([0]));
        offset
    }

    fn add(&mut self, name: &str, kind: u32, count: usize, flag: bool, last: u32, tail: &[u32]) -> u32 {
        let name = self.string(name);
        let info = kind << 24 | u32::try_from(count).unwrap() | u32::from(flag) << 31;
        let words = [name, info, last].into_iter().chain(tail.iter().copied());
        self.types.extend(words.flat_map(u32::to_le_bytes));
        self.next_id += 1;
        self.next_id - 1
    }
}
