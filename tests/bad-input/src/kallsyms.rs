//! The reader of kallsyms.

use crate::allocation::{Bound, within};
use kfd_trace::kernel::Symbols;

/// A symbol takes 24 bytes besides its name, a module 48, and their shortest lines have 6 and 10 bytes; each
/// table may double when it grows. The table of buckets always exists.
const PARSE: Bound = Bound { a_byte: 24, always: 1 << 20 };
const LOOK_UP: Bound = Bound { a_byte: 16, always: 4 << 10 };

/// Reads the text, and looks up symbols that exist and some that may not. Returns the number of symbols.
///
/// # Panics
/// When a guarantee was violated, or a line was neither a symbol nor counted.
#[must_use]
pub fn read(text: &[u8]) -> usize {
    let symbols = within("kallsyms", text.len(), PARSE, || Symbols::parse(text));
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    assert_eq!(symbols.len() + symbols.malformed_lines(), lines, "every line is a symbol or is counted");
    within("questions on kallsyms", text.len(), LOOK_UP, || look_up(&symbols));
    symbols.len()
}

fn look_up(symbols: &Symbols) {
    let there = symbols.in_module("amdgpu").take(3).map(|(name, symbol)| (name.to_owned(), symbol.address));
    for (name, address) in there.collect::<Vec<_>>() {
        let copies = symbols.find(&name);
        assert!(copies.iter().any(|symbol| symbol.address == address), "{name} was listed, and is not found");
        assert_eq!(symbols.is_unique(&name), copies.len() == 1);
        assert!(symbols.room_at("amdgpu", address).is_none_or(|room| room > 0));
    }
    for name in ["kfd_ioctl", "update_mqd", "", "a"] {
        let in_all = symbols.find(name).len();
        assert!(symbols.find_in(None, name).len() + symbols.find_in(Some("amdgpu"), name).len() <= in_all);
    }
    let _ = symbols.addresses_hidden();
}
