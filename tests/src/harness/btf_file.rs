//! A file of BTF as bytes, in which a member of a structure can be moved: types as another driver might have them.

use anyhow::{Context, Result, ensure};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The types file of the driver, in a guest whose module has no BTF.
const FILES: &str = "/var/lib/kfd-trace/drivers";
const MODULE: &str = "/sys/kernel/btf/amdgpu";
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// Types of the running driver: the module's own BTF, else its file.
pub struct BtfFile {
    bytes: Vec<u8>,
    types: Vec<Type>,
    by_name: HashMap<String, usize>,
    /// Number of the first of `types`.
    first_id: u32,
    base_strings: Vec<u8>,
}

/// Place in the file, and the fields of `struct btf_type` (include/uapi/linux/btf.h).
struct Type {
    at: usize,
    kind: u32,
    vlen: u32,
    size_or_type: u32,
}

const STRUCT: u32 = 4;
const UNION: u32 = 5;
/// Typedef, volatile, const, restrict.
const SAME: std::ops::RangeInclusive<u32> = 8..=11;

struct Header {
    types: std::ops::Range<usize>,
    strings: std::ops::Range<usize>,
}

fn word(bytes: &[u8], at: usize) -> Result<u32> {
    let four = bytes.get(at..at + 4).context("cut short")?;
    Ok(u32::from_le_bytes(four.try_into()?))
}

fn header(bytes: &[u8]) -> Result<Header> {
    ensure!(bytes.starts_with(&[0x9f, 0xeb]), "no BTF");
    let [length, types, types_len, strings, strings_len] =
        [4, 8, 12, 16, 20].map(|at| word(bytes, at).map(|word| word as usize));
    let length = length?;
    let range = |from: usize, len: usize| length + from..length + from + len;
    Ok(Header { types: range(types?, types_len?), strings: range(strings?, strings_len?) })
}

fn types(bytes: &[u8]) -> Result<Vec<Type>> {
    let Header { types, .. } = header(bytes)?;
    let (mut at, mut found) = (types.start, Vec::new());
    while at < types.end {
        let info = word(bytes, at + 4)?;
        let (kind, vlen) = (info >> 24 & 0x1f, info & 0xffff);
        found.push(Type { at, kind, vlen, size_or_type: word(bytes, at + 8)? });
        let each = vlen as usize;
        at += 12
            + match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                STRUCT | UNION | 15 | 19 => each * 12,
                6 | 13 => each * 8,
                _ => 0,
            };
    }
    Ok(found)
}

impl BtfFile {
    /// The file in use, if the module has no BTF.
    ///
    /// # Errors
    /// When there are several.
    pub fn path() -> Result<Option<PathBuf>> {
        if Path::new(MODULE).exists() {
            return Ok(None);
        }
        let files = fs::read_dir(FILES).with_context(|| format!("no {MODULE}, and no {FILES}"))?;
        let files: Vec<PathBuf> = files.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        let [file] = &*files else { anyhow::bail!("one file, not {files:?}") };
        Ok(Some(file.clone()))
    }

    /// # Errors
    /// When there are none, or they cannot be understood.
    pub fn of_driver() -> Result<Self> {
        let path = Self::path()?;
        let bytes = fs::read(path.as_deref().unwrap_or(Path::new(MODULE)))?;
        // A module's are numbered after the kernel's, and so are the places of its names.
        let base = if path.is_none() { Some(fs::read(VMLINUX)?) } else { None };
        let (first_id, base_strings) = match &base {
            Some(base) => (u32::try_from(types(base)?.len())? + 1, base[header(base)?.strings].to_vec()),
            None => (1, Vec::new()),
        };
        let mut file =
            BtfFile { types: types(&bytes)?, bytes, by_name: HashMap::new(), first_id, base_strings };
        for (index, one) in file.types.iter().enumerate().filter(|(_, one)| one.kind == STRUCT) {
            file.by_name.insert(file.name(word(&file.bytes, one.at)?)?, index);
        }
        Ok(file)
    }

    /// The file as it is.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn name(&self, offset: u32) -> Result<String> {
        let offset = offset as usize;
        let (strings, at) = match offset.checked_sub(self.base_strings.len()) {
            Some(at) => (&self.bytes[header(&self.bytes)?.strings], at),
            None => (&*self.base_strings, offset),
        };
        let rest = strings.get(at..).context("a name beyond the strings")?;
        let end = rest.iter().position(|byte| *byte == 0).context("an endless name")?;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    /// The type of this number without its qualifiers; `None` if it is the kernel's.
    fn resolved(&self, id: u32) -> Option<&Type> {
        let found = self.types.get(id.checked_sub(self.first_id)? as usize)?;
        if SAME.contains(&found.kind) { self.resolved(found.size_or_type) } else { Some(found) }
    }

    /// Place in the file of a member's offset, which is in bits. `path`: `pqm.queues`. `None`: this driver has
    /// no such member, or the kernel's types have it.
    fn place(&self, inside: &Type, path: &str) -> Option<usize> {
        let (own, rest) = path.split_once('.').unwrap_or((path, ""));
        for index in 0..inside.vlen as usize {
            let at = inside.at + 12 + 12 * index;
            let [name, id] = [0, 4].map(|part| word(&self.bytes, at + part).ok());
            let name = self.name(name?).ok()?;
            if name.is_empty() {
                // A part without a name: its members are looked for as those of the whole.
                if let Some(place) = self.resolved(id?).and_then(|part| self.place(part, path)) {
                    return Some(place);
                }
            } else if name == own {
                return if rest.is_empty() { Some(at + 8) } else { self.place(self.resolved(id?)?, rest) };
            }
        }
        None
    }

    /// Size of a structure, bytes.
    #[must_use]
    pub fn size(&self, structure: &str) -> Option<u32> {
        Some(self.types[*self.by_name.get(structure)?].size_or_type)
    }

    /// Offset of a member in its structure, bytes. `None`: this driver has no such member.
    #[must_use]
    pub fn offset(&self, structure: &str, path: &str) -> Option<u32> {
        self.offset_in(&self.types[*self.by_name.get(structure)?], path)
    }

    /// The same within a type. A member without a name has members of its own.
    fn offset_in(&self, inside: &Type, path: &str) -> Option<u32> {
        let (own, rest) = path.split_once('.').unwrap_or((path, ""));
        for index in 0..inside.vlen as usize {
            let at = inside.at + 12 + 12 * index;
            let [name, id, bits] = [0, 4, 8].map(|part| word(&self.bytes, at + part).ok());
            let (name, bytes) = (self.name(name?).ok()?, (bits? & 0xff_ffff) / 8);
            let within = |path| Some(bytes + self.offset_in(self.resolved(id?)?, path)?);
            match &*name {
                "" => match within(path) {
                    None => {}
                    found => return found,
                },
                name if name == own => return if rest.is_empty() { Some(bytes) } else { within(rest) },
                _ => {}
            }
        }
        None
    }

    /// The file with one member moved by some bytes. `None`: as for a member that this driver does not have.
    #[must_use]
    pub fn moved(&self, structure: &str, path: &str, bytes: i32) -> Option<Vec<u8>> {
        let place = self.place(&self.types[*self.by_name.get(structure)?], path)?;
        let bits = word(&self.bytes, place).ok()?.checked_add_signed(bytes * 8)?;
        let mut moved = self.bytes.clone();
        moved[place..place + 4].copy_from_slice(&bits.to_le_bytes());
        Some(moved)
    }

    /// The file with the names of two members exchanged: what no compiler's rule contradicts. `None`: as above.
    #[must_use]
    pub fn exchanged(&self, structure: &str, one: &str, other: &str) -> Option<Vec<u8>> {
        let whole = &self.types[*self.by_name.get(structure)?];
        // A member begins with its name, eight bytes before its offset.
        let [one, other] = [self.place(whole, one)? - 8, self.place(whole, other)? - 8];
        let mut exchanged = self.bytes.clone();
        exchanged[one..one + 4].copy_from_slice(&self.bytes[other..other + 4]);
        exchanged[other..other + 4].copy_from_slice(&self.bytes[one..one + 4]);
        Some(exchanged)
    }
}
