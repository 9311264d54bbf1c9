//! What names a loaded driver: version, source version and build id, and the kernel that it runs on.
//!
//! In: sysfs and procfs, or the tags of a types file. Out: an identity, the name of its types file, and how two
//! of them differ.

use crate::kernel::Roots;
use std::fs;
use std::path::Path;

/// A driver on a kernel. `None`: it has none, or none is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverIdentity {
    /// MODULE_VERSION: drivers outside of the kernel's own tree have one (`6.12.12`).
    pub version: Option<String>,
    /// A checksum of its source, which modpost writes for a module that has a version.
    pub srcversion: Option<String>,
    /// The linker's checksum of the module, hexadecimal: what the in-tree driver has.
    pub build_id: Option<String>,
    /// `uname -r`
    pub release: Option<String>,
}

/// Begins each of this program's tags in a types file.
const TAG: &str = "kfd-trace:";

impl DriverIdentity {
    /// The loaded amdgpu module, on this kernel.
    #[must_use]
    pub fn loaded(roots: &Roots) -> Self {
        let module = roots.sysfs.join("module/amdgpu");
        let note = fs::read(module.join("notes/.note.gnu.build-id")).ok();
        DriverIdentity {
            version: text(&module.join("version")),
            srcversion: text(&module.join("srcversion")),
            build_id: note.as_deref().and_then(build_id),
            release: text(&roots.procfs.join("sys/kernel/osrelease")),
        }
    }

    fn parts(&self) -> [(&'static str, Option<&String>); 4] {
        [
            ("version", self.version.as_ref()),
            ("srcversion", self.srcversion.as_ref()),
            ("build_id", self.build_id.as_ref()),
            ("release", self.release.as_ref()),
        ]
    }

    /// The name of its types file: `amdgpu-6.12.12-7C0E9A3B5D6F1E2A4B8C9D0-5.10.0-46-amd64.btf`. `None` if nothing
    /// names the driver or the kernel.
    #[must_use]
    pub fn file_name(&self) -> Option<String> {
        let release = self.release.as_ref()?;
        let by_source = self.version.iter().chain(&self.srcversion);
        let by_build = self.build_id.iter().filter(|_| self.srcversion.is_none());
        let names: Vec<&str> = by_source.chain(by_build).map(String::as_str).collect();
        if names.is_empty() {
            return None;
        }
        let safe = |letter: char| letter.is_ascii_alphanumeric() || ".-_+".contains(letter);
        let name = format!("amdgpu-{}-{release}.btf", names.join("-"));
        Some(name.chars().map(|letter| if safe(letter) { letter } else { '_' }).collect())
    }

    /// The texts that a types file carries.
    #[must_use]
    pub fn tags(&self) -> Vec<String> {
        let known = self.parts().into_iter().filter_map(|(name, value)| Some((name, value?)));
        known.map(|(name, value)| format!("{TAG}{name}={value}")).collect()
    }

    /// From the tags of a types file; `None` if it has none of this program's.
    #[must_use]
    pub fn from_tags<'a>(tags: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut found = None;
        let named = tags.filter_map(|tag| tag.strip_prefix(TAG)?.split_once('='));
        // Values are shown: what is no name of a driver or kernel stays out.
        for (name, value) in named.filter(|(_, value)| value.chars().all(|letter| letter.is_ascii_graphic()))
        {
            let identity: &mut Self = found.get_or_insert_default();
            let value = Some(value.to_owned());
            match name {
                "version" => identity.version = value,
                "srcversion" => identity.srcversion = value,
                "build_id" => identity.build_id = value,
                "release" => identity.release = value,
                _ => {}
            }
        }
        found
    }

    /// Why types of this driver are not those of the loaded one; `None` if they are. Two modules of one source
    /// can have different build ids: that is compared only where a source version is missing.
    #[must_use]
    pub fn differs_from(&self, loaded: &Self) -> Option<String> {
        let both = |of: fn(&Self) -> &Option<String>| Some((of(self).as_ref()?, of(loaded).as_ref()?));
        let release = both(|identity| &identity.release);
        let driver = both(|identity| &identity.srcversion)
            .or_else(|| both(|identity| &identity.build_id))
            .or_else(|| both(|identity| &identity.version));
        let other = |what: &str, (mine, theirs): (&String, &String)| {
            (mine != theirs).then(|| format!("it is of {what} {mine}, and {theirs} is here"))
        };
        match (release, driver) {
            (None, _) => {
                Some("it does not name a kernel, or this kernel does not report its release".to_owned())
            }
            (_, None) => Some("nothing names both its driver and the loaded one".to_owned()),
            (Some(release), Some(driver)) => other("kernel", release).or_else(|| other("driver", driver)),
        }
    }
}

impl std::fmt::Display for DriverIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = self.parts().into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        f.write_str(&parts.collect::<Vec<_>>().join(", "))
    }
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The description of the first note, hexadecimal: sizes of name and description, type, "GNU\0", description
/// (elf(5), Nhdr).
pub(crate) fn build_id(note: &[u8]) -> Option<String> {
    const BUILD_ID: u32 = 3;
    let word = |at: usize| Some(u32::from_le_bytes(note.get(at..at + 4)?.try_into().ok()?));
    let (name, length, kind) = (word(0)?, word(4)?, word(8)?);
    let from = 12 + usize::try_from(name.checked_next_multiple_of(4)?).ok()?;
    let description = note.get(from..from.checked_add(usize::try_from(length).ok()?)?)?;
    let usable = kind == BUILD_ID && (1..=64).contains(&description.len());
    usable.then(|| description.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dkms() -> DriverIdentity {
        DriverIdentity {
            version: Some("6.12.12".to_owned()),
            srcversion: Some("7C0E".to_owned()),
            build_id: Some("ab12".to_owned()),
            release: Some("5.10.0-46-amd64".to_owned()),
        }
    }

    fn with(change: impl FnOnce(&mut DriverIdentity)) -> DriverIdentity {
        let mut identity = dkms();
        change(&mut identity);
        identity
    }

    #[test]
    fn a_loaded_driver_is_read() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::under(root.path());
        assert_eq!(DriverIdentity::loaded(&roots), DriverIdentity::default());
        let put = |path: &str, bytes: &[u8]| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        put("sys/module/amdgpu/version", b"6.12.12\n");
        put("sys/module/amdgpu/srcversion", b"7C0E\n");
        put("sys/module/amdgpu/notes/.note.gnu.build-id", b"\x04\0\0\0\x02\0\0\0\x03\0\0\0GNU\0\xab\x12");
        put("proc/sys/kernel/osrelease", b"5.10.0-46-amd64\n");
        assert_eq!(DriverIdentity::loaded(&roots), dkms());
    }

    #[test]
    fn a_damaged_note_names_nothing() {
        let note = b"\x04\0\0\0\x02\0\0\0\x03\0\0\0GNU\0\xab\x12";
        assert_eq!(build_id(note).as_deref(), Some("ab12"));
        for length in 0..note.len() {
            assert_eq!(build_id(&note[..length]), None, "{length}");
        }
        assert_eq!(build_id(&[0xff; 40]), None);
    }

    #[test]
    fn a_file_is_named_by_source_or_else_by_build() {
        assert_eq!(dkms().file_name().as_deref(), Some("amdgpu-6.12.12-7C0E-5.10.0-46-amd64.btf"));
        let in_tree = with(|identity| (identity.version, identity.srcversion) = (None, None));
        assert_eq!(in_tree.file_name().as_deref(), Some("amdgpu-ab12-5.10.0-46-amd64.btf"));
        assert_eq!(with(|identity| identity.release = None).file_name(), None);
        let hostile = with(|identity| identity.version = Some("../6 1".to_owned()));
        assert_eq!(hostile.file_name().as_deref(), Some("amdgpu-.._6_1-7C0E-5.10.0-46-amd64.btf"));
    }

    #[test]
    fn tags_carry_an_identity() {
        let tags = dkms().tags();
        let read =
            DriverIdentity::from_tags(tags.iter().map(String::as_str).chain(["other", "kfd-trace:x=y"]));
        assert_eq!(read, Some(dkms()));
        assert_eq!(DriverIdentity::from_tags(["user", "rcu"].into_iter()), None);
        let steering = ["kfd-trace:version=\u{1b}[2J", "kfd-trace:release=6.1"];
        let read = DriverIdentity::from_tags(steering.into_iter()).unwrap();
        assert_eq!((read.version, read.release.as_deref()), (None, Some("6.1")));
    }

    #[test]
    fn only_the_same_source_on_the_same_kernel_has_the_same_types() {
        let loaded = dkms();
        assert_eq!(with(|identity| identity.build_id = Some("cd".to_owned())).differs_from(&loaded), None);
        let other = with(|identity| identity.srcversion = Some("99".to_owned())).differs_from(&loaded);
        assert_eq!(other.as_deref(), Some("it is of driver 99, and 7C0E is here"));
        let older = with(|identity| identity.release = Some("5.10.0-45-amd64".to_owned()));
        assert!(older.differs_from(&loaded).is_some_and(|why| why.contains("kernel 5.10.0-45-amd64")));
        let built = |id: &str| DriverIdentity {
            build_id: Some(id.to_owned()),
            release: loaded.release.clone(),
            ..DriverIdentity::default()
        };
        assert_eq!(built("ab12").differs_from(&loaded), None);
        assert!(built("ff").differs_from(&loaded).is_some());
        assert!(DriverIdentity::default().differs_from(&loaded).is_some());
        assert!(dkms().differs_from(&DriverIdentity::default()).is_some());
    }
}
