//! Account and partition of a Slurm job, from the file that deploy/slurm/prolog writes on its node. Uses no Slurm.
//!
//! In: a folder with one file per job, named by its number. Out: a [`SlurmJob`]. A file has lines `account=NAME` and
//! `partition=NAME`; other names are for later versions.

use super::regular_file;
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Longest file that is read.
const LONGEST: u64 = 4096;

/// Longest name, bytes: the size of a column of Slurm's database.
const NAME: usize = 255;

/// What a job's file has. `None`: the job has no such thing, or Slurm did not pass it to the prolog.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmJob {
    pub account: Option<String>,
    pub partition: Option<String>,
}

/// Why the last file could not be used: one line is enough for a prolog that writes all of them so.
static LOGGED: Mutex<Option<String>> = Mutex::new(None);

/// `None`: the job has no file, or one that cannot be used, which is logged where the last one could, or could not for another reason.
#[must_use]
pub fn read(folder: &Path, job: u32) -> Option<SlurmJob> {
    let path = folder.join(job.to_string());
    let parsed = match text(&path) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => Err(error.to_string()),
    };
    let why = parsed.as_ref().err().cloned();
    let before = std::mem::replace(&mut *LOGGED.lock().unwrap_or_else(PoisonError::into_inner), why.clone());
    if let Some(why) = why.filter(|why| before.as_ref() != Some(why)) {
        let file = path.display();
        log::warn!("{file}: {why}: Slurm accounts are not known of this job, and of others like it");
    }
    parsed.ok()
}

fn text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    regular_file::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it has more than {LONGEST} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// # Errors
/// What is wrong with it.
fn parse(text: &str) -> Result<SlurmJob, String> {
    let mut job = SlurmJob::default();
    for (number, line) in (1..).zip(text.lines()) {
        let (key, value) =
            line.split_once('=').ok_or_else(|| format!("line {number} is not of the form NAME=VALUE"))?;
        let place = match key {
            "account" => &mut job.account,
            "partition" => &mut job.partition,
            _ => continue,
        };
        if value.len() > NAME || value.chars().any(char::is_control) {
            return Err(format!("line {number}: {key} has control characters or more than {NAME} bytes"));
        }
        *place = Some(value.to_owned()).filter(|value| !value.is_empty());
    }
    Ok(job)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn job(account: Option<&str>, partition: Option<&str>) -> SlurmJob {
        SlurmJob { account: account.map(str::to_owned), partition: partition.map(str::to_owned) }
    }

    #[test]
    fn what_is_known_is_read_and_the_rest_passed_over() {
        for (text, wanted) in [
            ("account=physics\npartition=gpu\n", job(Some("physics"), Some("gpu"))),
            ("cluster=a=b\npartition=gpu", job(None, Some("gpu"))),
            ("account=\npartition=gpu\n", job(None, Some("gpu"))),
            ("account=a b=ü\n", job(Some("a b=ü"), None)),
            ("", job(None, None)),
        ] {
            assert_eq!(parse(text), Ok(wanted), "{text:?}");
        }
    }

    #[test]
    fn a_damaged_file_is_refused_whole() {
        let long = format!("partition=gpu\naccount={}\n", "a".repeat(NAME + 1));
        for (text, why) in [
            ("physics\n", "line 1 is not of the form NAME=VALUE"),
            (
                "partition=gpu\naccount=a\u{1b}[2J\n",
                "line 2: account has control characters or more than 255 bytes",
            ),
            (&long, "line 2: account has control characters or more than 255 bytes"),
        ] {
            assert_eq!(parse(text), Err(why.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn a_file_is_found_by_its_number_and_has_a_length() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
        put("7", b"account=physics\n");
        put("8", &[b'\n'; 5000]);
        put("9", b"account=\xff\n");
        fs::create_dir(folder.path().join("10")).unwrap();
        assert_eq!(read(folder.path(), 7), Some(job(Some("physics"), None)));
        let pipe = folder.path().join("12");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        for bad in [8, 9, 10, 11, 12] {
            assert_eq!(read(folder.path(), bad), None, "{bad}");
        }
        let why = |name: &str| text(&folder.path().join(name)).unwrap_err().to_string();
        assert_eq!(why("8"), "it has more than 4096 bytes");
        assert_eq!(why("9"), "it is not UTF-8");
        assert_eq!([why("10"), why("12")], ["it is not a regular file"; 2]);
    }
}
