//! Errors on the way from BTF to an offset.

/// Each variant names what is missing, so that it can be shown as the reason of a probe's verdict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The bytes are not BTF that this reader understands.
    #[error("malformed BTF: {what} at byte {at}")]
    Malformed { what: &'static str, at: usize },
    #[error("BTF of another byte order or not BTF at all (magic {magic:#06x})")]
    NotBtf { magic: u16 },
    /// A type kind newer than this reader; its length is unknown, and so is the start of the next type.
    #[error("type {id} has kind {kind}, which this reader does not know")]
    UnknownKind { id: u32, kind: u8 },
    #[error("no struct {name}")]
    NoStruct { name: String },
    #[error("no enum {name}")]
    NoEnum { name: String },
    #[error("struct {strukt} has no member {member}")]
    NoMember { strukt: String, member: String },
    #[error("{copies} types are named {name}, and they do not agree")]
    Ambiguous { name: String, copies: usize },
    #[error("{member} of struct {strukt} is a bitfield")]
    Bitfield { strukt: String, member: String },
    #[error("{segment} in the path is not a structure: a path cannot go through it")]
    NotAStruct { segment: String },
    #[error("{segment} in the path is not an array")]
    NotAnArray { segment: String },
    #[error("index {index} of {segment}, which has {length} elements")]
    OutOfRange { segment: String, index: u32, length: u32 },
    #[error("the path {path:?} is not of the form a.b[0].c")]
    BadPath { path: String },
    #[error("type {id} has no size")]
    NoSize { id: u32 },
    #[error("type {id} is referred to, and the types end before {end}")]
    NoType { id: u32, end: u32 },
    /// A cycle, or more nesting than any real structure has.
    #[error("the types below type {id} nest too deeply")]
    TooDeep { id: u32 },
    /// More members and structures of one name than any real kernel has.
    #[error("the search for {member} in struct {strukt} is too long")]
    TooWide { strukt: String, member: String },
    #[error("{what} lies beyond 4 GiB")]
    TooFar { what: String },
}
