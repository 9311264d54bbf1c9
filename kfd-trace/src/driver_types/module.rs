//! What names a driver by its module file. In: amdgpu.ko, as it is or compressed. Out: its version, source
//! version, build id, and the kernel that it is for.

use crate::kernel::types::{self, DriverIdentity};
use object::{Object as _, ObjectSection as _};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// Reads a module file.
///
/// # Errors
/// One line: it cannot be read, or is no module.
pub(super) fn identity(path: &Path) -> Result<DriverIdentity, String> {
    let cannot = |why: String| format!("cannot read {}: {why}", path.display());
    let bytes = module(path).map_err(cannot)?;
    let object = object::File::parse(&*bytes).map_err(|error| cannot(error.to_string()))?;
    let data = |name: &str| object.section_by_name(name).and_then(|section| section.data().ok());
    let info = data(".modinfo").ok_or_else(|| cannot("it is no kernel module (no .modinfo)".to_owned()))?;
    let value = |name: &str| {
        let lines = info.split(|byte| *byte == 0).filter_map(|line| str::from_utf8(line).ok());
        lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).next().map(str::to_owned)
    };
    let release = value("vermagic").and_then(|magic| Some(magic.split(' ').next()?.to_owned()));
    Ok(DriverIdentity {
        version: value("version"),
        srcversion: value("srcversion"),
        build_id: data(".note.gnu.build-id").and_then(types::build_id),
        release,
    })
}

/// Bytes of a module that are read, when it is no longer compressed: ROCm's has some 30 MB, 500 MB with debug information.
const LARGEST: u64 = 2 << 30;

/// Modules are compressed with xz, zstd or gzip; there is no library for the first one here.
fn module(path: &Path) -> Result<Vec<u8>, String> {
    let text = |error: std::io::Error| error.to_string();
    let file = File::open(path).map_err(text)?;
    if !file.metadata().map_err(text)?.is_file() {
        return Err("it is no regular file".to_owned());
    }
    match path.extension().and_then(|end| end.to_str()) {
        Some("gz") => bounded(flate2::read::MultiGzDecoder::new(file)),
        Some("zst") => {
            bounded(ruzstd::decoding::StreamingDecoder::new(file).map_err(|error| error.to_string())?)
        }
        Some("xz") => {
            let mut xz = Command::new("xz");
            xz.args(["--decompress", "--stdout"]).stdin(file).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut xz = xz.spawn().map_err(|error| format!("xz: {error}"))?;
            let bytes = xz.stdout.take().map_or(Ok(Vec::new()), bounded);
            let status = xz.wait().map_err(text)?;
            if status.success() { bytes } else { Err(format!("xz: {status}")) }
        }
        _ => bounded(file),
    }
}

fn bounded(from: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    from.take(LARGEST).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::write::{Object, StandardSegment};
    use object::{Architecture, BinaryFormat, Endianness, SectionKind};
    use std::fs;

    fn module() -> Vec<u8> {
        let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let segment = object.segment_name(StandardSegment::Data).to_vec();
        let mut add = |name: &str, bytes: &[u8]| {
            let id = object.add_section(segment.clone(), name.into(), SectionKind::ReadOnlyData);
            object.append_section_data(id, bytes, 1);
        };
        add(
            ".modinfo",
            b"license=GPL\0version=6.12.12\0srcversion=7C0E\0vermagic=5.10.0-46-amd64 SMP mod_unload \0",
        );
        add(".note.gnu.build-id", b"\x04\0\0\0\x02\0\0\0\x03\0\0\0GNU\0\xab\x12");
        object.write().unwrap()
    }

    #[test]
    fn a_module_names_itself_and_its_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("amdgpu.ko");
        fs::write(&path, module()).unwrap();
        let driver = identity(&path).unwrap();
        assert_eq!(driver.file_name().as_deref(), Some("amdgpu-6.12.12-7C0E-5.10.0-46-amd64.btf"));
        assert_eq!(driver.build_id.as_deref(), Some("ab12"));
        fs::write(&path, "text").unwrap();
        assert!(identity(&path).unwrap_err().contains("amdgpu.ko"));
        assert!(identity(&folder.path().join("none")).is_err());
    }

    #[test]
    fn a_compressed_module_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("amdgpu.ko.gz");
        let module = module();
        let mut encoder = flate2::read::GzEncoder::new(&*module, flate2::Compression::fast());
        let mut bytes = Vec::new();
        encoder.read_to_end(&mut bytes).unwrap();
        fs::write(&path, bytes).unwrap();
        assert_eq!(identity(&path).unwrap().version.as_deref(), Some("6.12.12"));
        fs::write(folder.path().join("broken.xz"), "no xz").unwrap();
        assert!(identity(&folder.path().join("broken.xz")).is_err());
    }
}
