//! Messages between processes of this program: a length, then as many bytes.

use std::io::{self, Read, Write};

/// Writes the length, then the bytes.
///
/// # Errors
/// Those of `out`; if they are more than 4 GiB.
pub(crate) fn write_frame(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(bytes)
}

/// Reads a frame of at most this length.
///
/// # Errors
/// Those of `from`; if it is longer, or is cut off.
pub(crate) fn read_frame(from: &mut impl Read, longest: u32) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    read_rest(from, length, longest)
}

/// The bytes after a length.
///
/// # Errors
/// As [`read_frame`].
pub(crate) fn read_rest(from: &mut impl Read, length: [u8; 4], longest: u32) -> io::Result<Vec<u8>> {
    let length = u32::from_le_bytes(length);
    if length > longest {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes")));
    }
    let mut bytes = Vec::new();
    let read = from.take(length.into()).read_to_end(&mut bytes)?;
    if read < length as usize { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
}
