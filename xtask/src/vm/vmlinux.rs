//! The kernel proper inside a bzImage: found by the boot protocol's header and decompressed with the host's
//! tools. Out: the stripped vmlinux (ELF), which still has its .BTF section.

use anyhow::{Context as _, Result, bail};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Offsets in the setup header, see Documentation/arch/x86/boot.rst of the kernel.
const SETUP_SECTS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

/// The compressed payload, without the uncompressed size that the kernel's build appends to it.
fn payload(image: &[u8]) -> Result<&[u8]> {
    if image.get(MAGIC..MAGIC + 4) != Some(b"HdrS") {
        bail!("not a bzImage");
    }
    let sectors = match image[SETUP_SECTS] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + word(image, PAYLOAD_OFFSET)?;
    let length = word(image, PAYLOAD_LENGTH)?;
    let end = start.checked_add(length).and_then(|end| end.checked_sub(4));
    end.and_then(|end| image.get(start..end)).context("the bzImage's payload lies outside of it")
}

fn word(image: &[u8], offset: usize) -> Result<usize> {
    let bytes = image.get(offset..offset + 4).context("the bzImage is cut short")?;
    Ok(usize::try_from(u32::from_le_bytes(bytes.try_into()?))?)
}

/// The program that decompresses it, by the payload's first bytes.
fn tool(payload: &[u8]) -> Result<&'static str> {
    match payload {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Ok("xz"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok("zstd"),
        [0x1f, 0x8b, ..] => Ok("gzip"),
        _ => bail!("the bzImage's compression is not known"),
    }
}

/// vmlinux of a bzImage.
pub(crate) fn extract(image: &[u8]) -> Result<Vec<u8>> {
    let payload = payload(image)?;
    let tool = tool(payload)?;
    let mut child = Command::new(tool)
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {tool}: run `cargo xtask setup` first"))?;
    let mut stdin = child.stdin.take().context("no pipe to the decompressor")?;
    let done = std::thread::scope(|scope| {
        // Written from a thread: the output pipe fills before all input is written.
        scope.spawn(move || stdin.write_all(payload));
        child.wait_with_output()
    })?;
    if !done.status.success() {
        bail!("{tool} cannot decompress the kernel");
    }
    Ok(done.stdout)
}

#[cfg(test)]
mod tests {
    use super::{payload, tool};

    #[test]
    fn the_payload_is_found_without_its_size() {
        let mut image = vec![0u8; 4096];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&8u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&10u32.to_le_bytes());
        image[1032..1038].copy_from_slice(&[0xfd, b'7', b'z', b'X', b'Z', 0]);
        let found = payload(&image).expect("a payload");
        assert_eq!(found.len(), 6);
        assert_eq!(tool(found).expect("a known format"), "xz");
    }

    #[test]
    fn a_broken_image_is_an_error() {
        let mut image = vec![0u8; 4096];
        assert!(payload(&image).is_err());
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x250].copy_from_slice(&[0xff; 8]);
        assert!(payload(&image).is_err());
    }
}
