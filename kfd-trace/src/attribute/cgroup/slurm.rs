//! Slurm jobs and steps, as named by Slurm's cgroup plugins.
//!
//! v1: `/slurm/uid_1000/job_7/step_0/task_0`, with several slurmd on a node `/slurm_NODE/...`.
//! v2: `/system.slice/slurmstepd.scope/job_7/step_0/user/task_0`, with several slurmd
//! `NODE_slurmstepd.scope`.

use serde::{Deserialize, Serialize};

/// A job, and the step in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmStep {
    pub job: u32,
    /// A number, or `batch`, `extern`, `interactive`.
    pub step: Option<String>,
    /// User of the job: only in v1 paths.
    pub uid: Option<u32>,
}

pub(super) fn find(names: &[&str]) -> Option<SlurmStep> {
    let root = names.iter().position(|name| is_root(name))?;
    // Below anything else a user or a container may have made cgroups of these names: a job has an account that pays.
    if !names[..root].iter().all(|name| ["..", "system.slice"].contains(name)) {
        return None;
    }
    let mut names = names[root + 1..].iter().peekable();
    let uid = names.peek().and_then(|name| number(name, "uid_"));
    if uid.is_some() {
        names.next();
    }
    let job = number(names.next()?, "job_")?;
    let step = names.next().and_then(|name| name.strip_prefix("step_"));
    Some(SlurmStep { job, step: step.filter(|step| is_step(step)).map(str::to_owned), uid })
}

fn is_root(name: &str) -> bool {
    name == "slurm"
        || name.strip_prefix("slurm_").is_some_and(|node| !node.is_empty())
        || name == "slurmstepd.scope"
        || name.strip_suffix("_slurmstepd.scope").is_some_and(|node| !node.is_empty())
}

fn number(name: &str, prefix: &str) -> Option<u32> {
    name.strip_prefix(prefix)?.parse().ok()
}

fn is_step(step: &str) -> bool {
    !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte))
}
