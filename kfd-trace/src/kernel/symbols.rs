//! The kernel's symbols from /proc/kallsyms: vmlinux and modules, duplicates kept, in file order.
//!
//! A kernel lists 150,000 to 250,000 symbols, so names are kept in one buffer and found through a table of
//! buckets; no symbol owns an allocation. Suffixes (`.constprop.0`, `.isra.0`, `.part.0`) are part of the
//! name: such a function has other arguments than the one without.

use memchr::{memchr, memrchr};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Typical maximum size of a kallsyms file; reserved at once because procfs does not report its size.
const USUAL_TEXT: usize = 16 << 20;
/// About four symbols per bucket on a usual kernel.
const BUCKETS: usize = 1 << 16;
const VMLINUX: u16 = u16::MAX;

#[derive(Debug, thiserror::Error)]
pub enum SymbolError {
    #[error("cannot read the kernel's symbols from {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("no kernel symbols in {}: a kernel without CONFIG_KALLSYMS, or not a kallsyms file", path.display())]
    Empty { path: PathBuf },
}

/// One line of kallsyms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// 0 where the kernel hides addresses from this process (kptr_restrict, no CAP_SYSLOG).
    pub address: u64,
    /// Type letter as in nm(1): `t`/`T` code, `d`/`D`/`b`/`B` data, `r`/`R` read-only data, `w`/`W` weak.
    pub kind: char,
    /// None for the kernel image.
    pub module: Option<&'a str>,
}

impl Symbol<'_> {
    /// Whether it is a function, so that a kprobe can be attached.
    #[must_use]
    pub fn is_code(&self) -> bool {
        matches!(self.kind, 't' | 'T' | 'w' | 'W')
    }
}

struct SymbolEntry {
    address: u64,
    /// Start of its name in the buffer.
    name: u32,
    length: u16,
    module: u16,
    kind: u8,
}

/// All symbols of one kernel.
pub struct Symbols {
    names: Vec<u8>,
    entries: Vec<SymbolEntry>,
    modules: Vec<String>,
    /// For each module the range from its first entry to its last: usually without foreign entries.
    ranges: Vec<Range<usize>>,
    /// Entry numbers grouped by bucket, in file order within each; bucket b is starts[b]..starts[b + 1].
    order: Vec<u32>,
    starts: Vec<u32>,
    hidden: bool,
    malformed: usize,
    /// Other symbols of the kernel are unknown.
    partial: bool,
}

impl Symbols {
    /// Reads `<procfs>/kallsyms`.
    ///
    /// # Errors
    /// The file cannot be read, or no line of it is a symbol.
    pub fn read(procfs: &Path) -> Result<Self, SymbolError> {
        let path = procfs.join("kallsyms");
        let mut text = Vec::with_capacity(USUAL_TEXT);
        if let Err(source) = File::open(&path).and_then(|mut file| file.read_to_end(&mut text)) {
            return Err(SymbolError::Read { path, source });
        }
        let symbols = Self::parse(&text);
        if symbols.is_empty() { Err(SymbolError::Empty { path }) } else { Ok(symbols) }
    }

    /// The symbols of one module; in: address, type and name of each, in the order of a kallsyms file.
    pub(super) fn of_module<'a>(symbols: impl Iterator<Item = (u64, u8, &'a [u8])>, module: &str) -> Self {
        let mut text = Vec::new();
        for (address, kind, name) in symbols {
            // Writing to a vector cannot fail.
            let _ = write!(text, "{address:x}");
            text.extend_from_slice(&[b' ', kind, b' ']);
            for part in [name, b"\t[", module.as_bytes(), b"]\n"] {
                text.extend_from_slice(part);
            }
        }
        Symbols { partial: true, ..Self::parse(&text) }
    }

    /// Parses the text of a kallsyms file. A line that is not a symbol is counted, see
    /// [`Symbols::malformed_lines`].
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        // Not the size of the text, which is twice as large: the memory would be held while the programs are
        // loaded.
        let mut names = Vec::with_capacity(text.len() / 2);
        let mut entries = Vec::with_capacity(text.len() / 45);
        let mut buckets: Vec<u16> = Vec::with_capacity(entries.capacity());
        let mut modules = Modules::default();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let (mut malformed, mut hidden) = (0, true);
        let mut start = 0;
        while let Some(rest) = text.get(start..).filter(|rest| !rest.is_empty()) {
            let end = memchr(b'\n', rest).unwrap_or(rest.len());
            let line = &rest[..end];
            let parsed = parse_line(line).and_then(|line| {
                let name = u32::try_from(names.len()).ok()?;
                Some((name, modules.number(line.module)?, line))
            });
            if let Some((at, module, Line { address, kind, name, length, bucket, .. })) = parsed {
                names.extend_from_slice(name);
                hidden &= address == 0;
                buckets.push(bucket);
                let here = entries.len();
                match ranges.get_mut(usize::from(module)) {
                    Some(range) => range.end = here + 1,
                    None if module != VMLINUX => ranges.push(here..here + 1),
                    None => {}
                }
                entries.push(SymbolEntry { address, name: at, length, module, kind });
            } else {
                malformed += usize::from(end > 0);
            }
            start += end + 1;
        }
        names.shrink_to_fit();
        let (order, starts) = group(&buckets);
        let (hidden, modules) = (hidden && !entries.is_empty(), modules.names);
        Symbols { hidden, names, entries, modules, ranges, order, starts, malformed, partial: false }
    }

    /// Every symbol of this name, in file order, whatever its module and type.
    #[must_use]
    pub fn find(&self, name: &str) -> Vec<Symbol<'_>> {
        self.copies(name).map(|entry| self.symbol(entry)).collect()
    }

    /// Every symbol of this name in one module, or in the kernel image (None).
    #[must_use]
    pub fn find_in(&self, module: Option<&str>, name: &str) -> Vec<Symbol<'_>> {
        let mut found = self.find(name);
        found.retain(|symbol| symbol.module == module);
        found
    }

    /// Whether the name is known to occur exactly once in the kernel: register_kprobe requires that of a bare
    /// name.
    #[must_use]
    pub fn is_unique(&self, name: &str) -> bool {
        !self.partial && self.copies(name).take(2).count() == 1
    }

    /// Name and symbol of every symbol of one module, in file order.
    pub fn in_module(&self, module: &str) -> impl Iterator<Item = (&str, Symbol<'_>)> {
        let number = self.modules.iter().position(|known| known == module);
        let range = number.and_then(|number| self.ranges.get(number)).cloned().unwrap_or_default();
        let number = number.and_then(|number| u16::try_from(number).ok());
        let entries = self.entries[range].iter().filter(move |entry| Some(entry.module) == number);
        entries.filter_map(|entry| Some((str::from_utf8(self.name(entry)).ok()?, self.symbol(entry))))
    }

    /// Bytes from an address of a module to the module's next symbol: at least the size of the object there.
    /// `None` for the last one.
    #[must_use]
    pub fn room_at(&self, module: &str, address: u64) -> Option<u64> {
        let later = self.in_module(module).map(|(_, symbol)| symbol.address).filter(|other| *other > address);
        later.min().map(|next| next - address)
    }

    #[must_use]
    pub fn has_module(&self, module: &str) -> bool {
        self.modules.iter().any(|known| known == module)
    }

    /// All addresses are 0: this process may not see them, so nothing can be attached by address.
    #[must_use]
    pub fn addresses_hidden(&self) -> bool {
        self.hidden
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Lines that were not symbols.
    #[must_use]
    pub fn malformed_lines(&self) -> usize {
        self.malformed
    }

    fn copies(&self, name: &str) -> impl Iterator<Item = &SymbolEntry> {
        let bucket = usize::from(bucket_of(name.as_bytes()));
        let range = self.starts[bucket] as usize..self.starts[bucket + 1] as usize;
        let entries = self.order[range].iter().map(|number| &self.entries[*number as usize]);
        entries.filter(move |entry| self.name(entry) == name.as_bytes())
    }

    fn name(&self, entry: &SymbolEntry) -> &[u8] {
        let start = entry.name as usize;
        &self.names[start..start + usize::from(entry.length)]
    }

    fn symbol(&self, entry: &SymbolEntry) -> Symbol<'_> {
        Symbol {
            address: entry.address,
            kind: char::from(entry.kind),
            module: self.modules.get(usize::from(entry.module)).map(String::as_str),
        }
    }
}

struct Line<'a> {
    address: u64,
    kind: u8,
    name: &'a [u8],
    length: u16,
    bucket: u16,
    module: Option<&'a [u8]>,
}

/// Values of lower-case hexadecimal digits; [`NO_DIGIT`] for other bytes.
static DIGITS: [u8; 256] = digits();
const NO_DIGIT: u8 = 0xff;

const fn digits() -> [u8; 256] {
    let mut digits = [NO_DIGIT; 256];
    let (mut value, text) = (0, b"0123456789abcdef");
    while value < text.len() {
        #[expect(clippy::cast_possible_truncation, reason = "less than 16")]
        let digit = value as u8;
        digits[text[value] as usize] = digit;
        value += 1;
    }
    digits
}

/// One line, without its end. Checks few bytes individually: a kernel has 10 MiB of them.
/// `ffffffffc0a1b2c3 t update_mqd<tab>[amdgpu]`: kernel/kallsyms.c, s_show.
fn parse_line(line: &[u8]) -> Option<Line<'_>> {
    let mut address = 0u64;
    let mut digits = 0;
    for byte in line {
        let digit = DIGITS[usize::from(*byte)];
        if digit == NO_DIGIT {
            break;
        }
        address = address << 4 | u64::from(digit);
        digits += 1;
    }
    let &[b' ', kind, b' ', ref rest @ ..] = &line[digits..] else { return None };
    let (name, module) = match rest.strip_suffix(b"]").and_then(|rest| Some((rest, memrchr(b'\t', rest)?))) {
        Some((rest, tab)) => (&rest[..tab], Some(rest[tab + 1..].strip_prefix(b"[")?)),
        None => (rest, None),
    };
    if !(1..=16).contains(&digits) || name.is_empty() || !kind.is_ascii_graphic() || !is_graphic(name) {
        return None;
    }
    let length = u16::try_from(name.len()).ok()?;
    Some(Line { address, kind, name, length, bucket: bucket_of(name), module })
}

/// Printable ASCII without spaces.
fn is_graphic(name: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 0xff;
    let (eights, rest) = name.as_chunks::<8>();
    // A byte below '!' borrows, one above '~' carries into its highest bit; others do neither.
    let odd = |eight: &[u8; 8]| {
        let word = u64::from_le_bytes(*eight);
        (word.wrapping_sub(ONES * 0x21) | word.wrapping_add(ONES) | word) & (ONES * 0x80)
    };
    eights.iter().map(odd).fold(0, |all, odd| all | odd) == 0 && rest.iter().all(u8::is_ascii_graphic)
}

/// The modules seen so far.
#[derive(Default)]
struct Modules<'a> {
    names: Vec<String>,
    numbers: HashMap<&'a [u8], u16>,
    /// The lines of a module are contiguous, so the last one is nearly always the right one.
    last: Option<(&'a [u8], u16)>,
}

impl<'a> Modules<'a> {
    /// `None` for an invalid module name.
    fn number(&mut self, module: Option<&'a [u8]>) -> Option<u16> {
        let Some(module) = module else { return Some(VMLINUX) };
        if let Some((_, number)) = self.last.filter(|(name, _)| *name == module) {
            return Some(number);
        }
        let number = match self.numbers.get(module) {
            Some(number) => *number,
            None => self.add(module)?,
        };
        self.last = Some((module, number));
        Some(number)
    }

    fn add(&mut self, module: &'a [u8]) -> Option<u16> {
        let number = u16::try_from(self.names.len()).ok().filter(|number| *number != VMLINUX)?;
        let plain = !module.is_empty() && is_graphic(module) && !module.contains(&b']');
        let name = str::from_utf8(module).ok().filter(|_| plain)?;
        self.names.push(name.to_owned());
        self.numbers.insert(module, number);
        Some(number)
    }
}

/// Hashes eight bytes at a time.
fn bucket_of(name: &[u8]) -> u16 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    let (eights, rest) = name.as_chunks::<8>();
    let hash = eights.iter().fold(0, |hash, eight| step(hash, u64::from_le_bytes(*eight)));
    let last = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let [.., low, high] = step(hash, last).to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// A counting sort: linear, and it keeps file order within a bucket.
fn group(buckets: &[u16]) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0u32; BUCKETS + 1];
    for bucket in buckets {
        starts[usize::from(*bucket) + 1] += 1;
    }
    for bucket in 0..BUCKETS {
        starts[bucket + 1] += starts[bucket];
    }
    let mut next = starts.clone();
    let mut order = vec![0u32; buckets.len()];
    for (number, bucket) in (0u32..).zip(buckets) {
        let slot = &mut next[usize::from(*bucket)];
        order[*slot as usize] = number;
        *slot += 1;
    }
    (order, starts)
}

#[cfg(test)]
mod tests;
