//! Several inputs in one: each part is its length (u16, little-endian) and its bytes; the last one may be
//! truncated.

/// The parts, in order.
pub fn split(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = input.split_first_chunk::<2>()?;
        let (part, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
        input = rest;
        Some(part)
    })
}

/// One input of these parts. A part longer than the length field can express is truncated.
#[must_use]
pub fn join<T: AsRef<[u8]>>(parts: &[T]) -> Vec<u8> {
    let mut input = Vec::new();
    for part in parts {
        let length = u16::try_from(part.as_ref().len()).unwrap_or(u16::MAX);
        input.extend(length.to_le_bytes());
        input.extend(&part.as_ref()[..usize::from(length)]);
    }
    input
}
