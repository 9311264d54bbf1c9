//! Kubernetes pods, as the kubelet names their cgroups: `podUID` by the cgroupfs driver,
//! `kubepods-QOS-podUID.slice` by the systemd driver, which writes `_` for each `-` of the UID.

/// Groups of hexadecimal digits in a UID (RFC 9562).
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
/// Digits of a static pod's UID: a hash.
const HASH: usize = 32;

/// The outermost pod: its UID, and the index of the first name below it.
pub(super) fn find(names: &[&str]) -> Option<(String, usize)> {
    names.iter().enumerate().find_map(|(at, name)| {
        let (uid, whole) = of_name(name, at > 0 && is_kubepods(names[at - 1]))?;
        // `SLICE:cri-containerd:ID` is pod and container in one.
        Some((uid, if whole { at + 1 } else { at }))
    })
}

/// `below_kubepods`: the parent belongs to the kubelet.
fn of_name(name: &str, below_kubepods: bool) -> Option<(String, bool)> {
    let (slice, whole) = name.split_once(':').map_or((name, true), |(slice, _)| (slice, false));
    if let Some(name) = slice.strip_suffix(".slice") {
        // The name includes those of its parents: for a kubelet in a container `kubelet-kubepods-...`.
        let (parents, uid) = name.rsplit_once("-pod")?;
        let kubepods = parents.split('-').any(|parent| parent == "kubepods");
        return uid_of(&uid.replace('_', "-")).filter(|_| kubepods).map(|uid| (uid, whole));
    }
    let uid = slice.strip_prefix("pod")?;
    uid_of(uid).filter(|_| below_kubepods).map(|uid| (uid, whole))
}

/// `..`: a tracer in a pod sees other paths relative to its own cgroup, if it has a cgroup namespace.
fn is_kubepods(parent: &str) -> bool {
    matches!(parent, "kubepods" | "burstable" | "besteffort" | "..")
}

fn uid_of(text: &str) -> Option<String> {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let groups: Vec<&str> = text.split('-').collect();
    let uid = groups.iter().map(|group| group.len()).eq(GROUPS) && groups.iter().all(|group| digits(group));
    let hash = text.len() == HASH && digits(text);
    (uid || hash).then(|| text.to_owned())
}
