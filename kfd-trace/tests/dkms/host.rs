//! A package of a driver, headers of a kernel, and a module, made for a test. In: a dkms.conf and scripts. Out: what the
//! command makes of them.

use object::write::{Object, StandardSegment};
use object::{Architecture, BinaryFormat, Endianness, SectionKind};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

pub(crate) const RELEASE: &str = "5.10.0-46-amd64";

/// Parts of the headers and of the driver; also of the test of the service (tests/tests/install/package.rs).
const KBUILD: &str = include_str!("made/kbuild.mk");
const DRIVER: &str = include_str!("made/kfd_priv.h");
/// Headers that may be empty.
const EMPTY: &str = include_str!("made/headers.txt");

/// What a driver's Makefile adds for kbuild.
pub(crate) const FLAGS: &str = "ccflags-y := -I$(M)/include -include $(M)/include/config.h\n";

/// The configuration step of each package, after what a form adds.
pub(crate) const CONFIGURE: &str = "echo '#define CONFIGURED 24' > include/config.h\n";

pub(crate) struct Host {
    root: TempDir,
}

impl Host {
    /// A package with this dkms.conf and these further files; what ends in `.sh` can be executed.
    pub(crate) fn new(conf: &str, files: &[(&str, &str)]) -> Self {
        let host = Host { root: tempfile::tempdir().expect("a folder") };
        // Another user's scripts must reach it.
        host.mode("", 0o755);
        let release = format!("#define UTS_RELEASE \"{RELEASE}\"\n");
        host.put("headers/include/generated/utsrelease.h", &release);
        host.put("headers/Makefile", KBUILD);
        host.put("tmp/none", "");
        fs::remove_file(host.path("tmp/none")).expect("a folder");
        host.mode("tmp", 0o1777);
        let named = format!("PACKAGE_NAME=\"amdgpu\"\nPACKAGE_VERSION=\"6.12.12-1.22.04\"\n{conf}");
        host.put("source/dkms.conf", &named);
        host.put("source/Makefile", FLAGS);
        host.put("source/amd/amdgpu/Makefile", "");
        host.put("source/include/kfd_priv.h", DRIVER);
        // Of an earlier build for another kernel.
        host.put("source/include/config.h", "#define CONFIGURED 8\n");
        EMPTY.lines().for_each(|name| host.put(&format!("source/include/{name}"), ""));
        for (name, text) in files {
            let name = format!("source/{name}");
            host.put(&name, text);
            if name.ends_with(".sh") {
                host.mode(&name, 0o755);
            }
        }
        fs::write(host.path("amdgpu.ko"), module()).expect("a module");
        host
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    pub(crate) fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).expect("a mode");
    }

    /// The command, which writes `types.btf`.
    pub(crate) fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-trace"));
        command.args(["driver-types", "--source"]).arg(self.path("source"));
        command.arg("--headers").arg(self.path("headers")).arg("--module").arg(self.path("amdgpu.ko"));
        command.arg("--output").arg(self.types()).args(more).env("TMPDIR", self.path("tmp"));
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().expect("the program")
    }

    pub(crate) fn types(&self) -> PathBuf {
        self.path("types.btf")
    }

    /// What a failed build printed.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("types.log")).expect("a log beside the types file")
    }

    /// Whether the command left nothing where it worked.
    pub(crate) fn is_clean(&self) -> bool {
        fs::read_dir(self.path("tmp")).expect("a folder").next().is_none()
    }
}

/// A module that names its version and kernel.
fn module() -> Vec<u8> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let segment = object.segment_name(StandardSegment::Data).to_vec();
    let id = object.add_section(segment, b".modinfo".into(), SectionKind::ReadOnlyData);
    let info = format!("version=6.12.12\0srcversion=7C0E\0vermagic={RELEASE} SMP mod_unload \0");
    object.append_section_data(id, info.as_bytes(), 1);
    object.write().expect("an object")
}

/// The only word after this one in a text.
pub(crate) fn word_after<'a>(text: &'a str, name: &str) -> &'a str {
    let rest = text.split_once(name).unwrap_or_else(|| panic!("no {name} in {text}")).1;
    rest.split_whitespace().next().expect("a word")
}

/// Whether a process runs; one that ended may wait for its parent to hear of it.
pub(crate) fn is_running(pid: &str) -> bool {
    let status = fs::read_to_string(Path::new("/proc").join(pid).join("status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
