//! A browser's PNG, a fifth smaller: pages are flat colours and text, which a strong compression packs better than the
//! filters of the format do. In and out: the file's bytes, of the same picture.

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, Crc, read::ZlibDecoder, write::ZlibEncoder};
use std::io::{Read as _, Write as _};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// 8 bits, red, green and blue, not interlaced: what follows width and height in IHDR.
const FORM: [u8; 5] = [8, 2, 0, 0, 0];
/// Bytes of a pixel.
const PIXEL: usize = 3;

/// # Errors
/// When it is no PNG, or not of the one form that Chromium writes.
pub(super) fn smaller(png: &[u8]) -> Result<Vec<u8>> {
    let mut rest = png.strip_prefix(SIGNATURE).context("no PNG")?;
    let (mut head, mut packed) = (None, Vec::new());
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length))?;
        let (name, after) = after.split_first_chunk::<4>().context("a chunk without a name")?;
        let (body, after) = after.split_at_checked(length).context("a chunk that is cut")?;
        match name {
            b"IHDR" => head = Some(body),
            b"IDAT" => packed.extend_from_slice(body),
            _ => {}
        }
        rest = after.get(4..).context("a chunk without a sum")?;
    }
    let head = head.context("no header")?;
    ensure!(head.get(8..) == Some(&FORM), "another form of PNG: {head:?}");
    let width = usize::try_from(u32::from_be_bytes(*head.first_chunk().context("no width")?))?;
    let mut lines = Vec::new();
    ZlibDecoder::new(&packed[..]).read_to_end(&mut lines)?;
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&unfiltered(&lines, width * PIXEL)?)?;
    let chunks = [(b"IHDR", head), (b"IDAT", &encoder.finish()?), (b"IEND", &[])];
    let mut out = SIGNATURE.to_vec();
    chunks.into_iter().try_for_each(|(name, body)| chunk(&mut out, name, body))?;
    Ok(out)
}

fn chunk(out: &mut Vec<u8>, name: &[u8; 4], body: &[u8]) -> Result<()> {
    let mut sum = Crc::new();
    sum.update(name);
    sum.update(body);
    out.extend(u32::try_from(body.len())?.to_be_bytes());
    out.extend(name);
    out.extend(body);
    out.extend(sum.sum().to_be_bytes());
    Ok(())
}

/// The lines of pixels, each behind a 0: no filter. (PNG, 9: a filter stores a byte's difference to the one at its
/// left, above it, their mean, or the nearest of both and the one between.)
fn unfiltered(lines: &[u8], length: usize) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(lines.len());
    let mut above = vec![0; length];
    for line in lines.chunks(length + 1) {
        let (filter, bytes) = line.split_first().context("an empty line")?;
        ensure!(bytes.len() == length && *filter < 5, "a line that is cut, or filter {filter}");
        let mut pixels: Vec<u8> = Vec::with_capacity(length);
        for (x, byte) in bytes.iter().enumerate() {
            let before = |line: &[u8]| x.checked_sub(PIXEL).map_or(0, |at| line[at]);
            let (left, up, corner) = (before(&pixels), above[x], before(&above));
            let guess = match filter {
                0 => 0,
                1 => left,
                2 => up,
                3 => left.midpoint(up),
                _ => nearest(left, up, corner),
            };
            pixels.push(byte.wrapping_add(guess));
        }
        out.push(0);
        out.extend_from_slice(&pixels);
        above = pixels;
    }
    Ok(out)
}

/// Paeth's predictor.
fn nearest(left: u8, up: u8, corner: u8) -> u8 {
    let [a, b, c] = [left, up, corner].map(i16::from);
    let far = |from: i16| (a + b - c - from).abs();
    if far(a) <= far(b) && far(a) <= far(c) {
        left
    } else if far(b) <= far(c) {
        up
    } else {
        corner
    }
}

#[cfg(test)]
mod tests {
    use super::{FORM, SIGNATURE, chunk, nearest, smaller, unfiltered};
    use flate2::{Compression, read::ZlibDecoder, write::ZlibEncoder};
    use std::io::{Read as _, Write as _};

    #[test]
    fn filters_are_undone() {
        // Two pixels a line; each line is the first one, by another filter.
        let first = [10, 20, 30, 11, 21, 31];
        let lines = [
            [1, 10, 20, 30, 1, 1, 1],
            [2, 0, 0, 0, 0, 0, 0],
            [3, 5, 10, 15, 1, 1, 1],
            [4, 0, 0, 0, 0, 0, 0],
            [0, 10, 20, 30, 11, 21, 31],
        ];
        let plain = unfiltered(&lines.concat(), 6).unwrap();
        for line in plain.chunks(7) {
            assert_eq!((line[0], &line[1..]), (0, &first[..]));
        }
        assert!(unfiltered(&[5, 0, 0, 0], 3).is_err() && unfiltered(&[0, 0, 0], 3).is_err());
        assert_eq!([nearest(9, 1, 1), nearest(1, 9, 1), nearest(1, 9, 5)], [9, 9, 5]);
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Two pixels wide and two lines high, with its data in two chunks.
    fn picture(form: &[u8]) -> Vec<u8> {
        let data = packed(&[1, 10, 20, 30, 1, 1, 1, 2, 0, 0, 0, 0, 0, 0]);
        let (one, other) = data.split_at(5);
        let head = [&[0, 0, 0, 2, 0, 0, 0, 2][..], form].concat();
        let mut out = SIGNATURE.to_vec();
        for (name, body) in
            [(b"IHDR", &head[..]), (b"tEXt", b"a\0b"), (b"IDAT", one), (b"IDAT", other), (b"IEND", b"")]
        {
            chunk(&mut out, name, body).unwrap();
        }
        out
    }

    #[test]
    fn a_picture_stays_the_same() {
        let made = smaller(&picture(&FORM)).unwrap();
        assert_eq!(smaller(&made).unwrap(), made);
        let from = made.windows(4).position(|name| name == b"IDAT").unwrap() + 4;
        let mut pixels = Vec::new();
        ZlibDecoder::new(&made[from..]).read_to_end(&mut pixels).unwrap();
        assert_eq!(pixels, [0, 10, 20, 30, 11, 21, 31, 0, 10, 20, 30, 11, 21, 31]);
    }

    #[test]
    fn what_is_no_such_picture_is_refused() {
        let whole = picture(&FORM);
        for bytes in [b"GIF89a", &whole[..30], &picture(&[8, 6, 0, 0, 0])] {
            assert!(smaller(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_chunk_has_the_sum_of_its_name_and_body() {
        let mut out = Vec::new();
        chunk(&mut out, b"IEND", &[]).unwrap();
        assert_eq!(out, b"\0\0\0\0IEND\xae\x42\x60\x82");
    }
}
