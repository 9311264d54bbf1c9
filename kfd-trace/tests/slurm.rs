//! The scripts of deploy/slurm: what the prolog writes is what the tracer reads, and nothing makes either fail a job.

use kfd_trace::attribute::{SlurmJob, slurm_jobs};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/slurm").join(name)
}

/// Runs it as slurmd does. Whatever happens it succeeds, and writes nothing that slurmd would log.
fn run(name: &str, folder: &Path, job: &[(&str, &str)]) {
    let mut command = Command::new(script(name));
    command.env_clear().env("KFD_TRACE_SLURM_FOLDER", folder).envs(job.iter().copied());
    let done = command.output().expect("the script is there");
    assert!(done.status.success() && done.stdout.is_empty() && done.stderr.is_empty(), "{name}: {done:?}");
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name in UTF-8"))
        .collect();
    names.sort();
    names
}

#[test]
fn the_tracer_reads_what_the_prolog_writes_until_the_epilog() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run/slurm");
    let of_7 = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_ACCOUNT", "physics b"), ("SLURM_JOB_PARTITION", "gpu")];
    run("prolog", &folder, &of_7);
    // Slurm did not pass the account.
    run("prolog", &folder, &[("SLURM_JOB_ID", "8"), ("SLURM_JOB_PARTITION", "gpu")]);
    assert_eq!(files(&folder), ["7", "8"]);
    let job = |account: Option<&str>| {
        Some(SlurmJob { account: account.map(str::to_owned), partition: Some("gpu".to_owned()) })
    };
    assert_eq!(slurm_jobs::read(&folder, 7), job(Some("physics b")));
    assert_eq!(slurm_jobs::read(&folder, 8), job(None));
    run("prolog", &folder, &[("SLURM_JOB_ACCOUNT", "biology"), of_7[0], of_7[2]]);
    assert_eq!(slurm_jobs::read(&folder, 7), job(Some("biology")));
    run("epilog", &folder, &of_7);
    run("epilog", &folder, &of_7);
    assert_eq!(files(&folder), ["8"]);
}

#[test]
fn no_job_fails_by_them() {
    let root = tempfile::tempdir().unwrap();
    let no_folder = root.path().join("file");
    fs::write(&no_folder, "kept").unwrap();
    for name in ["prolog", "epilog"] {
        for id in ["7", "", "../file", "7; exit 1", "*"] {
            run(name, &no_folder, &[("SLURM_JOB_ID", id)]);
            run(name, root.path(), &[("SLURM_JOB_ID", id)]);
        }
        run(name, root.path(), &[]);
    }
    assert_eq!(
        (files(root.path()), fs::read_to_string(&no_folder).unwrap()),
        (vec!["file".to_owned()], "kept".to_owned())
    );
    // A folder is in the file's place.
    fs::create_dir(root.path().join("9")).unwrap();
    fs::write(root.path().join("9/inner"), "").unwrap();
    for name in ["prolog", "epilog"] {
        run(name, root.path(), &[("SLURM_JOB_ID", "9")]);
    }
    assert_eq!(slurm_jobs::read(root.path(), 9), None);
    assert_eq!(files(&root.path().join("9")), ["inner"]);
}

#[test]
fn they_are_read_by_any_shell() {
    for name in ["prolog", "epilog"] {
        for shell in ["sh", "dash", "bash"] {
            // One that is not installed here needs no check here.
            if let Ok(done) = Command::new(shell).arg("-n").arg(script(name)).output() {
                assert!(done.status.success(), "{shell} {name}: {done:?}");
            }
        }
    }
}
