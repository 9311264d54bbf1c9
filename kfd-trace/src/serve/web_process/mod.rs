//! The web server in a process of its own: an attacker who takes it over by a request or a handshake holds no capability,
//! opens no file, and sees no memory but that of this process.
//!
//! The tracer's process binds the sockets, reads the configuration and makes the documents; it starts the other
//! ([`start`]), which serves ([`run`]). Between them: one socket by which it is configured ([`control`]), and one for
//! each sort of question ([`lane`]).

mod child;
mod control;
mod lane;
mod supervise;

pub use child::run;
pub use supervise::{Running, WebServer, start};

use std::io::{self, Read, Write};

/// Writes the length, then the bytes.
fn write_frame(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(bytes)
}

/// Reads a frame of at most this length.
fn read_frame(from: &mut impl Read, longest: u32) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    read_rest(from, length, longest)
}

fn read_rest(from: &mut impl Read, length: [u8; 4], longest: u32) -> io::Result<Vec<u8>> {
    let length = u32::from_le_bytes(length);
    if length > longest {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes")));
    }
    let mut bytes = Vec::new();
    let read = from.take(length.into()).read_to_end(&mut bytes)?;
    if read < length as usize { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests;
