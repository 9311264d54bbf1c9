//! Where the kernel has kprobes and kretprobes, from its own list. Pure except for [`read`].

use anyhow::{Context, Result};
use std::fs;

const LIST: &str = "/sys/kernel/debug/kprobes/list";

/// An attached probe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Site {
    pub(super) address: u64,
    pub(super) is_return: bool,
    /// With the module's name.
    pub(super) function: String,
}

/// All probes attached now.
pub(super) fn read() -> Result<Vec<Site>> {
    let text = fs::read_to_string(LIST).with_context(|| format!("read {LIST}"))?;
    parse(&text)
}

/// Lines of `kernel/kprobes.c:report_probe`: address, `k` or `r`, function, module.
fn parse(text: &str) -> Result<Vec<Site>> {
    let lines = text.lines().map(|line| site(line).with_context(|| format!("`{line}` in {LIST}")));
    let mut sites: Vec<Site> = lines.collect::<Result<_>>()?;
    sites.sort_unstable();
    Ok(sites)
}

fn site(line: &str) -> Option<Site> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_return = match words.next()? {
        "k" => false,
        "r" => true,
        _ => return None,
    };
    let rest: Vec<&str> = words.filter(|word| !(word.starts_with('[') && word.ends_with(']'))).collect();
    Some(Site { address, is_return, function: rest.join(" ") })
}

/// Those of `now` that were not in `before`: each as often as it was added.
pub(super) fn added(before: &[Site], now: &[Site]) -> Vec<Site> {
    let mut left = before.to_vec();
    let mut is_new = |site: &&Site| match left.iter().position(|old| old == *site) {
        Some(place) => {
            left.swap_remove(place);
            false
        }
        None => true,
    };
    now.iter().filter(|site| is_new(site)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "ffffffffc0a01000  k  kfd_bind_process_to_device+0x0  amdgpu [FTRACE]\n";

    const NOW: &str = "ffffffffc0a02000  r  kfd_ioctl_create_queue+0x4  amdgpu [FTRACE]\n\
        ffffffffc0a01000  k  kfd_bind_process_to_device+0x0  amdgpu [FTRACE]\n\
        ffffffffc0a01000  k  kfd_bind_process_to_device+0x0  amdgpu [FTRACE]\n\
        ffffffff81000000  k  vfs_read+0x0   [DISABLED][FTRACE]\n";

    #[test]
    fn what_was_added_is_distinguished_from_what_was_there() {
        let (before, now) = (parse(BEFORE).unwrap(), parse(NOW).unwrap());
        let site =
            |address, is_return, function: &str| Site { address, is_return, function: function.to_owned() };
        let expected = [
            site(0xffff_ffff_8100_0000, false, "vfs_read+0x0"),
            site(0xffff_ffff_c0a0_1000, false, "kfd_bind_process_to_device+0x0 amdgpu"),
            site(0xffff_ffff_c0a0_2000, true, "kfd_ioctl_create_queue+0x4 amdgpu"),
        ];
        assert_eq!(added(&before, &now), expected);
        assert_eq!(added(&now, &now), []);
    }

    #[test]
    fn an_unknown_line_is_an_error() {
        assert!(parse("ffffffff81000000  j  vfs_read+0x0\n").is_err());
        assert!(parse("(null)  k  vfs_read+0x0\n").is_err());
    }
}
