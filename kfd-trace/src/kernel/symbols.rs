//! The kernel's symbols as /proc/kallsyms lists them: vmlinux and modules, duplicates kept, in file order.
//!
//! A kernel lists 150,000 to 250,000 of them, so names are kept in one buffer and found through a table of
//! buckets; no symbol owns an allocation. Suffixes (`.constprop.0`, `.isra.0`, `.part.0`) belong to the name:
//! such a function has other arguments than the one without.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Most of a kallsyms file; reserved at once because procfs does not tell its size.
const USUAL_TEXT: usize = 16 << 20;
/// About four symbols a bucket on a usual kernel.
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
    /// As nm(1) has it: `t`/`T` code, `d`/`D`/`b`/`B` data, `r`/`R` read-only data, `w`/`W` weak.
    pub kind: char,
    /// None for the kernel image.
    pub module: Option<&'a str>,
}

impl Symbol<'_> {
    /// A function, so a kprobe can sit on it.
    #[must_use]
    pub fn is_code(&self) -> bool {
        matches!(self.kind, 't' | 'T' | 'w' | 'W')
    }
}

struct Entry {
    address: u64,
    name: u32,
    length: u16,
    module: u16,
    kind: u8,
}

/// All symbols of one kernel.
pub struct Symbols {
    names: Vec<u8>,
    entries: Vec<Entry>,
    modules: Vec<String>,
    /// Entry numbers grouped by bucket, in file order within each; bucket b is starts[b]..starts[b + 1].
    order: Vec<u32>,
    starts: Vec<u32>,
    hidden: bool,
    malformed: usize,
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

    /// Parses the text of a kallsyms file. A line that is not a symbol is counted, see
    /// [`Symbols::malformed_lines`].
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let mut names = Vec::with_capacity(text.len() / 2);
        let mut entries = Vec::with_capacity(text.len() / 45);
        let mut buckets: Vec<u16> = Vec::with_capacity(entries.capacity());
        let mut modules = Modules::default();
        let (mut malformed, mut hidden) = (0, true);
        let mut rest = text;
        while !rest.is_empty() {
            let parsed = parse_line(rest).and_then(|(line, after)| {
                let name = u32::try_from(names.len()).ok()?;
                Some((name, modules.number(line.module)?, line, after))
            });
            let Some((name, module, line, after)) = parsed else {
                let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                malformed += usize::from(end > 0);
                rest = rest.get(end + 1..).unwrap_or_default();
                continue;
            };
            rest = after;
            names.extend_from_slice(line.name);
            hidden &= line.address == 0;
            buckets.push(line.bucket);
            let Line { address, length, kind, .. } = line;
            entries.push(Entry { address, name, length, module, kind });
        }
        names.shrink_to_fit();
        let (order, starts) = group(&buckets);
        let (hidden, modules) = (hidden && !entries.is_empty(), modules.names);
        Symbols { hidden, names, entries, modules, order, starts, malformed }
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

    /// The name stands once in the whole kernel: what register_kprobe asks of a bare name.
    #[must_use]
    pub fn is_unique(&self, name: &str) -> bool {
        self.copies(name).take(2).count() == 1
    }

    /// Name and symbol of all that one module brings, in file order.
    pub fn in_module(&self, module: &str) -> impl Iterator<Item = (&str, Symbol<'_>)> {
        let number = self.modules.iter().position(|known| known == module);
        let number = number.and_then(|number| u16::try_from(number).ok());
        let entries = self.entries.iter().filter(move |entry| Some(entry.module) == number);
        entries.filter_map(|entry| Some((str::from_utf8(self.name(entry)).ok()?, self.symbol(entry))))
    }

    /// Bytes from an address of a module to the module's next symbol: at least the size of what stands there. `None` for
    /// the last one.
    #[must_use]
    pub fn room_at(&self, module: &str, address: u64) -> Option<u64> {
        let later = self.in_module(module).map(|(_, symbol)| symbol.address).filter(|other| *other > address);
        later.min().map(|next| next - address)
    }

    #[must_use]
    pub fn has_module(&self, module: &str) -> bool {
        self.modules.iter().any(|known| known == module)
    }

    /// All addresses are 0: this process may not see them, and nothing can be attached by address.
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

    /// Lines that were no symbols.
    #[must_use]
    pub fn malformed_lines(&self) -> usize {
        self.malformed
    }

    fn copies(&self, name: &str) -> impl Iterator<Item = &Entry> {
        let hash = name.bytes().fold(HASH_START, hash_step);
        let bucket = usize::from(bucket_of(hash));
        let range = self.starts[bucket] as usize..self.starts[bucket + 1] as usize;
        let entries = self.order[range].iter().map(|number| &self.entries[*number as usize]);
        entries.filter(move |entry| self.name(entry) == name.as_bytes())
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        let start = entry.name as usize;
        &self.names[start..start + usize::from(entry.length)]
    }

    fn symbol(&self, entry: &Entry) -> Symbol<'_> {
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

/// One line and what comes after it. Looks at every byte once: a kernel has 10 MiB of them.
/// `ffffffffc0a1b2c3 t update_mqd<tab>[amdgpu]`: kernel/kallsyms.c, s_show.
fn parse_line(text: &[u8]) -> Option<(Line<'_>, &[u8])> {
    let mut address = 0u64;
    let mut digits = 0;
    for byte in text {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => break,
        };
        address = address << 4 | u64::from(digit);
        digits += 1;
    }
    let &[b' ', kind, b' ', ref rest @ ..] = &text[digits..] else { return None };
    let mut hash = HASH_START;
    let mut end = 0;
    for byte in rest {
        if !byte.is_ascii_graphic() {
            break;
        }
        hash = hash_step(hash, *byte);
        end += 1;
    }
    let (name, rest) = rest.split_at(end);
    let (module, rest) = match rest {
        [] => (None, rest),
        [b'\n', rest @ ..] => (None, rest),
        [b'\t', b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| matches!(byte, b']' | b'\n'))?;
            match &rest[end..] {
                [b']'] => (Some(&rest[..end]), &rest[end + 1..]),
                [b']', b'\n', after @ ..] => (Some(&rest[..end]), after),
                _ => return None,
            }
        }
        _ => return None,
    };
    if !(1..=16).contains(&digits) || name.is_empty() || !kind.is_ascii_graphic() {
        return None;
    }
    let length = u16::try_from(name.len()).ok()?;
    Some((Line { address, kind, name, length, bucket: bucket_of(hash), module }, rest))
}

/// The modules met so far.
#[derive(Default)]
struct Modules<'a> {
    names: Vec<String>,
    numbers: HashMap<&'a [u8], u16>,
    /// The lines of a module stand together, so the last one is nearly always the right one.
    last: Option<(&'a [u8], u16)>,
}

impl<'a> Modules<'a> {
    /// `None` for what is no name of a module.
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
        let plain = !module.is_empty() && module.iter().all(u8::is_ascii_graphic);
        let name = str::from_utf8(module).ok().filter(|_| plain)?;
        self.names.push(name.to_owned());
        self.numbers.insert(module, number);
        Some(number)
    }
}

/// FNV-1a.
const HASH_START: u32 = 0x811c_9dc5;

fn hash_step(hash: u32, byte: u8) -> u32 {
    (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
}

/// Folded to the number of buckets.
fn bucket_of(hash: u32) -> u16 {
    let [a, b, c, d] = hash.to_le_bytes();
    u16::from_le_bytes([a ^ c, b ^ d])
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
