//! What names a driver by its module file. In: amdgpu.ko, as it is or compressed. Out: its version, source
//! version, build id, and the kernel that it is for.

use crate::kernel::types::{self, DriverIdentity};
use object::{Object as _, ObjectSection as _};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

/// Reads a module file.
///
/// # Errors
/// One line: it cannot be read, or is no module.
pub(super) fn identity(path: &Path) -> Result<DriverIdentity, String> {
    let cannot = |why: String| format!("cannot read {}: {why}", path.display());
    let bytes = fs::read(path).map_err(|error| cannot(error.to_string()))?;
    let bytes = uncompressed(path, bytes).map_err(cannot)?;
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

/// Modules are compressed with xz, zstd or gzip; there is no library for the first one here.
fn uncompressed(path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let text = |error: std::io::Error| error.to_string();
    match path.extension().and_then(|end| end.to_str()) {
        Some("gz") => {
            flate2::read::MultiGzDecoder::new(&*bytes).read_to_end(&mut out).map_err(text)?;
        }
        Some("zst") => {
            let mut decoder =
                ruzstd::decoding::StreamingDecoder::new(&*bytes).map_err(|error| error.to_string())?;
            decoder.read_to_end(&mut out).map_err(text)?;
        }
        Some("xz") => {
            let xz = Command::new("xz").args(["--decompress", "--stdout"]).arg(path).output();
            let xz = xz.map_err(|error| format!("xz: {error}"))?;
            if !xz.status.success() {
                return Err(format!("xz: {}", String::from_utf8_lossy(&xz.stderr).trim()));
            }
            out = xz.stdout;
        }
        _ => return Ok(bytes),
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::write::{Object, StandardSegment};
    use object::{Architecture, BinaryFormat, Endianness, SectionKind};

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
