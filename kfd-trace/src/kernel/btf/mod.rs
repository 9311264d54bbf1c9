//! A read-only reader of BTF, the kernel's own type information. In: the bytes of /sys/kernel/btf/vmlinux, or
//! of a module's split BTF on top of it. Out: member offsets by path, sizes, and enum values by name.
//!
//! It is total: any bytes give a result or a [`BtfError`], never a panic and never a long search.
//! Format: Documentation/bpf/btf.rst.

mod error;
mod order;
mod parse;
mod path;
#[cfg(test)]
mod tests;
mod write;

pub use error::BtfError;
pub use parse::Btf;
use parse::{BtfKind, Type, name_hash};
pub use path::Member;
pub(crate) use write::BtfWriter;

impl Btf {
    /// Offset and size of a member: `offset_of("queue", "properties.queue_id")`. A path can pass through
    /// nested and anonymous structures and unions, typedefs and qualifiers, and array elements (`pdds[0]`),
    /// but not through pointers.
    ///
    /// # Errors
    /// Names what is missing, or why the member cannot be read; [`BtfError::Ambiguous`] if several structures
    /// of this name disagree.
    pub fn offset_of(&self, strukt: &str, path: &str) -> Result<Member, BtfError> {
        let segments = path::parse(path)?;
        let found = self.structs(strukt)?;
        let mut looks = path::MAX_LOOKS;
        agree(strukt, found.iter().map(|root| self.member(root, &segments, &mut looks)))
    }

    /// Size of a structure or union in bytes.
    ///
    /// # Errors
    /// No such structure, or several of different sizes.
    pub fn size_of(&self, strukt: &str) -> Result<u32, BtfError> {
        let found = self.structs(strukt)?;
        agree(strukt, found.iter().map(|found| Ok(found.size_or_type)))
    }

    /// Names and values of an enum, in source order.
    ///
    /// # Errors
    /// No such enum, or several that disagree.
    pub fn enum_values(&self, name: &str) -> Result<Vec<(String, i64)>, BtfError> {
        let found = self.named(name, |kind| matches!(kind, BtfKind::Enum | BtfKind::Enum64));
        if found.is_empty() {
            return Err(BtfError::NoEnum { name: name.to_owned() });
        }
        agree(name, found.iter().map(|found| self.enumerators(found)))
    }

    /// The BTF id of a function. Scans all types: not for repeated use.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<u32> {
        let is_it =
            |found: &Type| found.kind == BtfKind::Function && self.is_named(found.name, name) == Ok(true);
        let ids = (self.first_id..).take(self.starts.len());
        let found = ids.filter_map(|id| self.type_of(id).ok()).find(is_it);
        found.map(|found| found.id).or_else(|| self.base.as_ref()?.function(name))
    }

    /// Number of parameters of a function, by its prototype; `None` if these types do not have it.
    #[must_use]
    pub fn parameters(&self, name: &str) -> Option<usize> {
        let function = self.type_of(self.function(name)?).ok()?;
        let prototype = self.type_of(function.size_or_type).ok()?;
        (prototype.kind == BtfKind::Prototype).then_some(prototype.count as usize)
    }

    /// Texts about types (`BTF_KIND_DECL_TAG`), those of the base left out.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        let own = (self.first_id..).take(self.starts.len()).filter_map(|id| self.type_of(id).ok());
        own.filter(|found| found.kind == BtfKind::DeclTag).filter_map(|found| self.string(found.name).ok())
    }

    /// Whether a structure or union of this name is defined here or in the base.
    #[must_use]
    pub fn struct_exists(&self, name: &str) -> bool {
        self.structs(name).is_ok()
    }

    fn structs(&self, name: &str) -> Result<Vec<Type>, BtfError> {
        let found = self.named(name, |kind| matches!(kind, BtfKind::Struct | BtfKind::Union));
        if found.is_empty() { Err(BtfError::NoStruct { name: name.to_owned() }) } else { Ok(found) }
    }

    /// All own types of this name and kind; those of the base only if there is none: in a module that defines
    /// `struct queue` the name means its own.
    fn named(&self, name: &str, wanted: impl Fn(BtfKind) -> bool) -> Vec<Type> {
        let hash = u64::from(name_hash(name.as_bytes()));
        let start = self.by_name.partition_point(|entry| entry >> 32 < hash);
        let same_hash = self.by_name[start..].iter().take_while(|entry| *entry >> 32 == hash);
        let ids = same_hash.filter_map(|entry| u32::try_from(entry & u64::from(u32::MAX)).ok());
        let found: Vec<Type> = ids
            .filter_map(|id| self.type_of(id).ok())
            .filter(|found| wanted(found.kind) && self.is_named(found.name, name) == Ok(true))
            .collect();
        match &self.base {
            Some(base) if found.is_empty() => base.named(name, wanted),
            _ => found,
        }
    }

    fn enumerators(&self, found: &Type) -> Result<Vec<(String, i64)>, BtfError> {
        let words = if found.kind == BtfKind::Enum64 { 3 } else { 2 };
        (0..found.count)
            .map(|index| {
                let at = found.tail + index as usize * words * 4;
                let name = self.string(self.word_of(found, at)?)?.to_owned();
                let low = self.word_of(found, at + 4)?;
                let value = match found.kind {
                    BtfKind::Enum64 => i64::from(low) | i64::from(self.word_of(found, at + 8)?) << 32,
                    // The flag means that values are signed.
                    _ if found.flag => i64::from(low.cast_signed()),
                    _ => i64::from(low),
                };
                Ok((name, value))
            })
            .collect()
    }
}

/// The common result of all types of one name, or the error of all, or the disagreement.
fn agree<T: PartialEq>(
    name: &str,
    mut answers: impl ExactSizeIterator<Item = Result<T, BtfError>>,
) -> Result<T, BtfError> {
    let copies = answers.len();
    let Some(first) = answers.next() else { return Err(BtfError::NoStruct { name: name.to_owned() }) };
    let mut same = true;
    for other in answers {
        same &= match (&first, other) {
            // Not all of them were examined.
            (_, wide @ Err(BtfError::TooWide { .. })) => return wide,
            (Ok(a), Ok(b)) => *a == b,
            (Err(_), Err(_)) => true,
            _ => false,
        };
    }
    if same { first } else { Err(BtfError::Ambiguous { name: name.to_owned(), copies }) }
}
