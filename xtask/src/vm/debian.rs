//! A Debian 12 with systemd, dpkg and Prometheus, to be booted into: a disk image made of packages at first
//! use; each guest writes to its own copy. A boot's additions are in the initramfs, below [`OVERLAY`].

use crate::run::{self, step};
use crate::stamp::Stamp;
use crate::vm::initramfs::Archive;
use crate::vm::kernels::Kernel;
use crate::vm::modules::{self, sbin};
use crate::{apt, paths};
use anyhow::{Context as _, Result};
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

/// Copied over the root by the initramfs's init (tests/src/bin/vm-init/disk.rs).
pub(crate) const OVERLAY: &str = "overlay/";

/// Modules that the disk and its file system need.
const MODULES: [&str; 3] = ["virtio_blk", CHECKSUM, "ext4"];

/// ext4 asks for it by another name; newer kernels have it built in.
const CHECKSUM: &str = "crc32c_generic";

/// systemd's packages, `modprobe`, what loads profiles of AppArmor, the server that scrapes the daemon, other clients of its pages,
/// what reads their JSON, and what builds a driver.
const PACKAGES: &str =
    "apparmor,curl,dbus,gcc,init-system-helpers,jq,kmod,make,openssl,prometheus,systemd-sysv,udev,wrk";

/// Files that no program reads in a guest; packages installed there later have them.
const LEFT_OUT: [&str; 5] = ["doc", "man", "locale", "javascript", "fonts"];

/// The tests start Prometheus by themselves; the timers would interfere.
const DISABLED: &str = "systemctl disable prometheus.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer";

/// The file that makes dpkg leave them out (mmdebstrap's --dpkgopt).
const LEAVES_OUT: &str = "etc/dpkg/dpkg.cfg.d/99mmdebstrap";

const SIZE: u64 = 2 << 30;

/// The unit by which the guest continues its job.
const UNIT: &str = "\
[Unit]
Description=The job of the test bed
After=multi-user.target

[Service]
ExecStart=/usr/bin/vm-init
Environment=HOME=/root
StandardOutput=journal+console
";

/// The image, made at first use.
pub(crate) fn image() -> Result<PathBuf> {
    let image = paths::cache().join("debian.ext2");
    let key = format!("{PACKAGES}\n{}\n{DISABLED}\n{LEAVES_OUT}\n{SIZE}\n", LEFT_OUT.join(" "));
    let stamp = Stamp::beside(&image, key);
    if image.exists() && stamp.holds() {
        return Ok(image);
    }
    stamp.clear()?;
    step("making a Debian 12 with systemd and Prometheus (half a minute)");
    let (main, security) = apt::archives()?;
    let log = paths::cache().join("debian.log");
    let mut command = Command::new("mmdebstrap");
    command.args(["--mode=auto", "--variant=minbase", "--architectures=amd64"]);
    command.arg(format!("--include={PACKAGES}"));
    command.args(LEFT_OUT.map(|folder| format!("--dpkgopt=path-exclude=/usr/share/{folder}/*")));
    command.arg(format!("--customize-hook=chroot \"$1\" {DISABLED}"));
    command.arg(format!("--customize-hook=rm \"$1\"/{LEAVES_OUT}"));
    command.arg("bookworm").arg(&image);
    for (uri, suite) in [(&main, "bookworm"), (&security, "bookworm-security")] {
        command.arg(format!("deb [signed-by={}] {uri} {suite} main", apt::KEYRING));
    }
    run::logged(&mut command, &log)?;
    // The image is as small as what is in it.
    File::options()
        .write(true)
        .open(&image)
        .and_then(|file| file.set_len(SIZE))
        .context("cannot widen the image")?;
    run::output(Command::new(sbin("resize2fs")).arg("-f").arg(&image))?;
    stamp.set()?;
    Ok(image)
}

/// Adds the unit, enabled at every start.
pub(crate) fn units(archive: &mut Archive) {
    const FOLDER: &str = "etc/systemd/system";
    for folder in ["etc/systemd", FOLDER, "etc/systemd/system/multi-user.target.wants"] {
        archive.dir(folder);
    }
    archive.file(&format!("{FOLDER}/kfd-vm.service"), 0o644, UNIT.into());
    archive.symlink(&format!("{FOLDER}/multi-user.target.wants/kfd-vm.service"), "../kfd-vm.service");
}

/// The initramfs that finds the disk and switches to it.
pub(crate) fn initramfs(kernel: &Kernel, init: Vec<u8>) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    for folder in ["dev", "disk", "etc", "modules", OVERLAY.trim_end_matches('/')] {
        archive.dir(folder);
    }
    archive.file("init", 0o755, init);
    let mut listed = String::new();
    for name in MODULES {
        if name == CHECKSUM && modules::find(kernel, name)?.is_none() {
            continue;
        }
        for path in modules::with_needs(kernel, name)? {
            let place = format!("modules/{}.ko", modules::module_name(&path.to_string_lossy()));
            archive.file(&place, 0o644, modules::read(&path)?);
            listed += &format!("/{place}\n");
        }
    }
    archive.file("etc/disk-modules", 0o644, listed.into_bytes());
    archive.finish()
}
