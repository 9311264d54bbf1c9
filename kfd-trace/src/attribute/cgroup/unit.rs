//! The systemd unit. In a user's session or service it is the innermost one, which is what was started.

const KINDS: [&str; 2] = [".service", ".scope"];

pub(super) fn find(names: &[&str]) -> Option<String> {
    let is_unit = |name: &&&str| KINDS.iter().any(|kind| name.len() > kind.len() && name.ends_with(kind));
    names.iter().rev().find(is_unit).map(|name| (*name).to_owned())
}
