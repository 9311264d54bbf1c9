//! The shell script that builds a driver, and the `make` that it finds first. In: the folders of a build. Out: their
//! text; pure.
//!
//! The forms of dkms.conf differ: some call kbuild, some a Makefile of their own that calls it. So the command is the
//! driver's own, and the call of kbuild is recognized where it comes by.

use super::find::Layout;
use super::wanted::NAME;
use std::path::Path;

/// What the scripts name.
pub(super) struct Places<'a> {
    pub(super) layout: &'a Layout,
    /// The copy of the source.
    pub(super) tree: &'a Path,
    /// dkms.conf in it.
    pub(super) conf: &'a Path,
    pub(super) work: &'a Path,
    pub(super) headers: &'a Path,
    pub(super) release: &'a str,
    /// As the headers name it.
    pub(super) compiler: &'a str,
    /// The system's `make`.
    pub(super) real: &'a Path,
    /// For the compiler.
    pub(super) flags: &'a str,
    pub(super) is_clang: bool,
}

impl Places<'_> {
    /// The C file below a folder that kbuild is called for, without its ending.
    fn file(&self) -> String {
        match self.layout {
            Layout::Dkms(_) => format!("amd/amdgpu/{NAME}"),
            Layout::InTree => NAME.to_owned(),
        }
    }

    /// The C file, without its ending: the folder of the driver's own files, whose flags it is compiled with.
    pub(super) fn source(&self) -> std::path::PathBuf {
        match self.layout {
            Layout::Dkms(_) => self.tree.join(self.file()),
            Layout::InTree => self.tree.join("amdgpu").join(NAME),
        }
    }

    /// Where the object is put.
    pub(super) fn object(&self) -> std::path::PathBuf {
        self.work.join(NAME).with_extension("o")
    }

    fn make(&self) -> std::path::PathBuf {
        self.work.join("bin/make")
    }

    /// The script that is first in PATH as `make`.
    pub(super) fn wrapper(&self) -> String {
        let variables = [
            ("real", self.real.display().to_string()),
            ("self", self.make().display().to_string()),
            ("headers", self.headers.display().to_string()),
            ("file", self.file()),
            ("flags", self.flags.to_owned()),
            ("more", if self.is_clang { "LLVM=1".to_owned() } else { String::new() }),
            ("made", self.object().display().to_string()),
        ];
        format!("#!/bin/sh\n{}{}", assigned(&variables), include_str!("scripts/make.sh"))
    }

    /// The script for bash that builds the driver.
    pub(super) fn build(&self) -> String {
        let headers = self.headers.display().to_string();
        match self.layout {
            Layout::Dkms(version) => {
                let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                let variables = [
                    ("kernelver", self.release.to_owned()),
                    ("kernel_source_dir", headers),
                    ("dkms_tree", self.work.join("dkms").display().to_string()),
                    ("source_tree", self.work.display().to_string()),
                    ("module", "amdgpu".to_owned()),
                    ("module_version", version.clone()),
                    ("arch", std::env::consts::ARCH.to_owned()),
                    ("parallel_jobs", jobs.to_string()),
                    ("conf", self.conf.display().to_string()),
                    ("compiler", self.compiler.to_owned()),
                    ("real", self.real.display().to_string()),
                    ("self", self.make().display().to_string()),
                ];
                format!("{}{}", assigned(&variables), include_str!("scripts/dkms.sh"))
            }
            // FULL_AMD_PATH as the kernel's own build has it; below M= the path is wrong before Linux 6.12.
            Layout::InTree => format!(
                "make -C {} M={} FULL_AMD_PATH={}\n",
                quoted(&headers),
                quoted(&self.tree.join("amdgpu").display().to_string()),
                quoted(&self.tree.display().to_string())
            ),
        }
    }
}

fn assigned(variables: &[(&str, String)]) -> String {
    variables.iter().map(|(name, value)| format!("{name}={}\n", quoted(value))).collect()
}

/// A word for the shell.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn words_for_the_shell_are_one_word() {
        let printed =
            Command::new("sh").args(["-c", &format!("printf %s {}", quoted("a 'b' $HOME"))]).output();
        assert_eq!(printed.unwrap().stdout, b"a 'b' $HOME");
    }
}
