//! `alloc`, `import`, `free`, `map` and `unmap`, operations of `script`: one call that changes which memory a process holds, or
//! on which GPUs.

use super::operation::{Place, gpu_word, only_gpu};
use super::script::at;
use crate::kfd::{Client, Gpu, uapi};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Alloc {
        /// `uapi::MEMORY_*`
        flags: u32,
        /// In bytes.
        size: u64,
        gpu: Place,
    },
    /// On a simulated GPU, which looks at no descriptor.
    Import {
        gpu: Place,
    },
    Free {
        handle: u64,
    },
    Map {
        handle: u64,
        gpus: Vec<Place>,
    },
    Unmap {
        handle: u64,
        gpus: Vec<Place>,
    },
}

impl Step {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Alloc { .. } => "alloc",
            Self::Import { .. } => "import",
            Self::Free { .. } => "free",
            Self::Map { .. } => "map",
            Self::Unmap { .. } => "unmap",
        }
    }

    pub(crate) fn parse(name: &str, words: &[&str]) -> Result<Self> {
        let gpus = |words: &[&str]| words.iter().map(|word| gpu_word(word)).collect::<Result<_>>();
        Ok(match (name, words) {
            ("alloc", [kind, size, rest @ ..]) => {
                Self::Alloc { flags: flags(kind)?, size: size.parse()?, gpu: only_gpu(rest)? }
            }
            ("import", rest) => Self::Import { gpu: only_gpu(rest)? },
            ("free", [handle]) => Self::Free { handle: handle.parse()? },
            ("map", [handle, first, rest @ ..]) => {
                Self::Map { handle: handle.parse()?, gpus: gpus(&[&[*first], rest].concat())? }
            }
            ("unmap", [handle, first, rest @ ..]) => {
                Self::Unmap { handle: handle.parse()?, gpus: gpus(&[&[*first], rest].concat())? }
            }
            _ => bail!("alloc KIND BYTES [gpu=N] | import [gpu=N] | free HANDLE | map|unmap HANDLE gpu=N.."),
        })
    }

    /// Issues one ioctl, whose failure the client stores. `va_addr`: for an allocation.
    pub(crate) fn take(&self, client: &mut Client, gpus: &[Gpu], va_addr: u64) -> Result<Value> {
        let id = |place| at(gpus, place).map(|gpu| gpu.gpu_id);
        let mut map = |map, handle, places: &[Place]| -> Result<Value> {
            let ids = places.iter().map(|place| id(*place)).collect::<Result<Vec<u32>>>().context("a GPU")?;
            let done = client.map_memory(map, handle, &ids);
            Ok(json!({"handle": handle, "gpu_ids": ids, "done": done}))
        };
        Ok(match *self {
            Self::Alloc { flags, size, gpu } => {
                let gpu_id = id(gpu)?;
                let flags = flags | uapi::MEMORY_WRITABLE;
                // That of user memory is where it lies.
                let args =
                    uapi::AllocMemory { va_addr, size, mmap_offset: va_addr, gpu_id, flags, handle: 0 };
                json!({"gpu_id": gpu_id, "handle": client.alloc_memory(args).ok()})
            }
            Self::Import { gpu } => {
                let gpu_id = id(gpu)?;
                let args = uapi::ImportDmabuf { va_addr, gpu_id, ..Default::default() };
                json!({"gpu_id": gpu_id, "handle": client.import_dmabuf(args).ok()})
            }
            Self::Free { handle } => {
                let _ = client.free_memory(handle);
                json!({"handle": handle})
            }
            Self::Map { handle, ref gpus } => map(true, handle, gpus)?,
            Self::Unmap { handle, ref gpus } => map(false, handle, gpus)?,
        })
    }
}

fn flags(kind: &str) -> Result<u32> {
    Ok(match kind {
        "vram" => uapi::MEMORY_VRAM,
        "gtt" => uapi::MEMORY_GTT,
        "userptr" => uapi::MEMORY_USERPTR,
        "ring" => uapi::MEMORY_VRAM | uapi::MEMORY_TWICE,
        other => bail!("no memory `{other}`: vram, gtt, userptr or ring (VRAM that is mapped twice)"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_steps() {
        let parse = |text: &str| {
            let words: Vec<&str> = text.split(' ').collect();
            Step::parse(words[0], &words[1..])
        };
        let gpus = vec![Place::Gpu(1), Place::Nowhere];
        assert_eq!(parse("map 9 gpu=1 gpu=none").unwrap(), Step::Map { handle: 9, gpus: gpus.clone() });
        assert_eq!(parse("unmap 9 gpu=1 gpu=none").unwrap(), Step::Unmap { handle: 9, gpus });
        let ring = uapi::MEMORY_VRAM | uapi::MEMORY_TWICE;
        let alloc = Step::Alloc { flags: ring, size: 4096, gpu: Place::Gpu(0) };
        assert_eq!(parse("alloc ring 4096").unwrap(), alloc);
        assert!(
            ["map 9", "unmap", "alloc vram", "alloc disk 1", "free", "map x gpu=0"]
                .into_iter()
                .all(|text| parse(text).is_err())
        );
    }
}
