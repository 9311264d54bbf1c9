//! `criu`, the operation of `script`: one step of saving or restoring a process, and the file between them.

use crate::kfd::criu::{self, Checkpoint};
use crate::kfd::{Client, uapi};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// For the check of capabilities.
    Nothing,
    Info,
    /// To this file, after [`Step::Info`].
    Checkpoint(PathBuf),
    Unpause,
    /// From this file.
    Restore(PathBuf),
    Resume,
}

impl Step {
    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        Ok(match words {
            [] => Self::Nothing,
            ["info"] => Self::Info,
            ["checkpoint", file] => Self::Checkpoint(file.into()),
            ["unpause"] => Self::Unpause,
            ["restore", file] => Self::Restore(file.into()),
            ["resume"] => Self::Resume,
            _ => bail!("criu [info | checkpoint FILE | unpause | restore FILE | resume]"),
        })
    }

    /// Issues one ioctl, whose failure the client stores; `info` is the result of the last [`Step::Info`].
    pub(crate) fn take(&self, client: &mut Client, info: &mut Option<uapi::Criu>) -> Result<Value> {
        let _ = match self {
            Self::Nothing => criu::nothing(client),
            Self::Info => {
                *info = criu::process_info(client).ok();
                return Ok(json!({"objects": info.map(|info| info.num_objects)}));
            }
            Self::Checkpoint(file) => {
                let info = info.as_ref().context("without `criu info` before it")?;
                if let Ok(checkpoint) = criu::checkpoint(client, info) {
                    save(&checkpoint, file)?;
                }
                Ok(())
            }
            Self::Unpause => criu::unpause(client),
            Self::Restore(file) => {
                // a GPU made of memory has no render node, and its driver reads none
                let render = File::open("/dev/null").context("open /dev/null")?;
                criu::restore(client, load(file)?, &render)
            }
            Self::Resume => criu::resume(client, std::process::id()),
        };
        Ok(json!({}))
    }
}

fn save(checkpoint: &Checkpoint, file: &Path) -> Result<()> {
    let text = serde_json::to_vec(checkpoint)?;
    fs::write(file, text).with_context(|| format!("write {}", file.display()))
}

fn load(file: &Path) -> Result<Checkpoint> {
    let text = fs::read(file).with_context(|| format!("read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is no checkpoint", file.display()))
}
