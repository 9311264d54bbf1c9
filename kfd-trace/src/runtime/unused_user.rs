//! A user for a process that may be taken over: one that no account and no process has, so that it owns no file, and may
//! signal nothing.
//!
//! In: a root folder with /proc and the accounts. Out: a number for both the user and its group.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::ops::Range;
use std::path::Path;

/// Where numbers are taken from, the first first. systemd's table of users (its UIDS-GIDS.md) has nothing in either: the first
/// lies above what directory services map their accounts to by default (sssd: up to 2,000,200,000), the second is for
/// containers with 65,536 users.
const RANGES: [Range<u32>; 2] = [0x7800_0000..0x7ffe_0000, 65_520..65_534];

/// Numbers of a range that are tried: all of the second.
const TRIES: u64 = 64;

/// A number that is neither a user nor a group of an account or a process below `root`, and not within a range of numbers that
/// users may map (/etc/subuid, /etc/subgid). It is another one each time.
///
/// # Errors
/// If there is none that this user namespace has; if /proc cannot be read.
pub(crate) fn unused_user(root: &Path) -> io::Result<u32> {
    let taken = Taken::read(root)?;
    let maps = ["uid_map", "gid_map"].map(|map| mapped(root, map));
    let is_free = |id: &u32| {
        maps.iter().all(|map| map.iter().any(|ids| ids.contains(&u64::from(*id)))) && !taken.has(*id)
    };
    // A place in each range, and those after it: two processes that start at once find different ones.
    let place = RandomState::new().hash_one(());
    let after = |range: &Range<u32>| {
        let (start, length) = (u64::from(range.start), u64::from(range.end - range.start));
        (0..TRIES).filter_map(move |step| u32::try_from(start + place.wrapping_add(step) % length).ok())
    };
    let free = RANGES.iter().flat_map(after).find(is_free);
    free.ok_or_else(|| io::Error::other("there is no user that nothing else has"))
}

/// Users and groups that accounts or processes have.
struct Taken {
    ids: BTreeSet<u32>,
    ranges: Vec<Range<u64>>,
}

impl Taken {
    fn read(root: &Path) -> io::Result<Self> {
        let (mut ids, mut ranges) = (BTreeSet::new(), Vec::new());
        // A system without such a file has no such accounts.
        let lines = |file: &str| match fs::read(root.join(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            read => read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        };
        for file in ["etc/passwd", "etc/group"] {
            // NAME:PASSWORD:NUMBER, and in passwd the group's number.
            let fields = |line: &str| -> Vec<u32> {
                line.split(':').skip(2).take(2).filter_map(|field| field.parse().ok()).collect()
            };
            ids.extend(lines(file)?.lines().flat_map(fields));
        }
        for file in ["etc/subuid", "etc/subgid"] {
            // NAME:FIRST:COUNT
            ranges.extend(lines(file)?.lines().filter_map(|line| {
                let (_, numbers) = line.split_once(':')?;
                range(numbers.split(':'))
            }));
        }
        for process in fs::read_dir(root.join("proc"))?.filter_map(Result::ok) {
            // One that ends meanwhile has none.
            let status = fs::read(process.path().join("status")).unwrap_or_default();
            // A process chooses its name, which need not be UTF-8.
            let status = String::from_utf8_lossy(&status);
            let has_ids = |line: &&str| ["Uid:", "Gid:", "Groups:"].iter().any(|name| line.starts_with(name));
            let owned = status.lines().filter(has_ids);
            ids.extend(owned.flat_map(str::split_whitespace).filter_map(|word| word.parse::<u32>().ok()));
        }
        Ok(Taken { ids, ranges })
    }

    fn has(&self, id: u32) -> bool {
        self.ids.contains(&id) || self.ranges.iter().any(|ids| ids.contains(&u64::from(id)))
    }
}

/// Numbers of this user namespace: all, where the kernel has none (user_namespaces(7)).
fn mapped(root: &Path, map: &str) -> Vec<Range<u64>> {
    match fs::read_to_string(root.join("proc/self").join(map)) {
        Ok(map) => map.lines().filter_map(inside).collect(),
        Err(_) => std::iter::once(0..u64::from(u32::MAX)).collect(),
    }
}

/// The numbers inside, from a line `INSIDE OUTSIDE COUNT`.
fn inside(line: &str) -> Option<Range<u64>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [inside, _, count] = words[..] else { return None };
    range([inside, count].into_iter())
}

fn range<'a>(mut numbers: impl Iterator<Item = &'a str>) -> Option<Range<u64>> {
    let first: u64 = numbers.next()?.trim().parse().ok()?;
    let count: u64 = numbers.next()?.trim().parse().ok()?;
    Some(first..first.saturating_add(count))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A root with these files.
    pub(in crate::runtime) fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const ALL: &str = "         0          0 4294967295\n";

    #[test]
    fn it_is_no_account_no_process_and_no_number_that_a_user_may_map() {
        let status = |id: u32| {
            format!(
                "Name:\tx\nUid:\t{id}\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t4 {} \nThreads:\t65532\n",
                id + 1
            )
        };
        let small = "0 100000 65536\n";
        let root = root(&[
            ("proc/self/uid_map", small),
            ("proc/self/gid_map", small),
            ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\na:x:65520:65520::/:/bin/sh\n"),
            ("etc/group", "root:x:0:\nb:x:65521:\n"),
            ("etc/subuid", "a:65522:4\nbroken\n"),
            ("etc/subgid", "a:65526:2\n"),
            ("proc/7/status", &status(65528)),
            ("proc/8/status", &status(65530)),
        ]);
        for _ in 0..20 {
            assert!([65_532, 65_533].contains(&unused_user(root.path()).unwrap()));
        }
        fs::write(root.path().join("etc/subuid"), "a:65522:4\nb:65532:1000\n").unwrap();
        assert!(unused_user(root.path()).is_err());
    }

    #[test]
    fn where_there_is_room_two_have_no_number_in_common() {
        let root = root(&[("proc/self/uid_map", ALL), ("proc/self/gid_map", ALL)]);
        let drawn: BTreeSet<u32> = (0..20).map(|_| unused_user(root.path()).unwrap()).collect();
        assert_eq!(drawn.len(), 20);
        assert!(drawn.iter().all(|id| RANGES[0].contains(id)), "{drawn:?}");
    }

    #[test]
    fn a_user_namespace_must_have_it_as_user_and_as_group() {
        let one = |user: &str, group: &str| {
            let root = root(&[("proc/self/uid_map", user), ("proc/self/gid_map", group)]);
            unused_user(root.path()).ok()
        };
        assert!(one("0 1000 1\n", ALL).is_none());
        assert!(one(ALL, "0 1000 1\n").is_none());
        assert_eq!(one("0 1000 1\n65533 5 1\n", "0 1000 1\n65533 6 1\n"), Some(65_533));
    }
}
