//! With which errno `kfd_ioctl` refuses a number that it has no command of: no probe sees it, since no handler
//! is called. Drivers differ (-EINVAL, and since Linux 6.18 and its stable updates -ENOTTY), and ROCm's own
//! drivers have other versions: what decides is the constant in the function's code.
//!
//! In: the driver's functions, kernel memory. Out: the errno, for the map `NO_COMMAND` of the programs.

use super::error::{LoadError, chain};
use super::functions::Functions;
use super::memory::KernelMemory;
use aya::Ebpf;
use aya::maps::Array;
use kfd_trace_common::rules::{EINVAL, ENOTTY};

const MAP: &str = "NO_COMMAND";

/// Longest code that is read; `kfd_ioctl` has some 1,200 bytes.
const CODE_MAX: u64 = 16 << 10;

/// -ENOTTY as x86-64 has it in its instructions, in 4 bytes or sign-extended to 8.
const MINUS_ENOTTY: [u8; 4] = (-25_i32).to_le_bytes();

/// The errno, positive. `None` if the code cannot be read, or is of another processor.
pub(super) fn no_command(functions: &impl Functions, memory: &mut impl KernelMemory) -> Option<u32> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    let [address] = functions.copies("kfd_ioctl")[..] else { return None };
    let room = functions.room(address).filter(|room| address != 0 && *room <= CODE_MAX)?;
    let mut code = vec![0; usize::try_from(room).ok()?];
    memory.read(address, &mut code).then(|| errno_of(&code))
}

/// The default of the function's result is -EINVAL (`retcode`).
fn errno_of(code: &[u8]) -> u32 {
    let has = code.windows(MINUS_ENOTTY.len()).any(|bytes| bytes == MINUS_ENOTTY);
    if has { ENOTTY } else { EINVAL }
}

/// Hands it to the programs.
pub(super) fn fill(ebpf: &mut Ebpf, errno: u32) -> Result<(), LoadError> {
    let map = ebpf.map_mut(MAP).ok_or(LoadError::NoMap(MAP))?;
    let error = |error: aya::maps::MapError| LoadError::Map { map: MAP, why: chain(&error) };
    Array::<_, u32>::try_from(map).map_err(error)?.set(0, errno, 0).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::runlist::Callers;
    use std::collections::BTreeMap;

    /// `kfd_ioctl` at 0x1000, with the given bytes to its next symbol.
    struct Code<'a>(&'a [u8]);

    impl Functions for Code<'_> {
        fn copies(&self, name: &str) -> Vec<u64> {
            BTreeMap::from([("kfd_ioctl", vec![0x1000])]).remove(name).unwrap_or_default()
        }
        fn is_unique(&self, _: &str) -> bool {
            true
        }
        fn beginning(&self, _: &str) -> Vec<String> {
            Vec::new()
        }
        fn room(&self, address: u64) -> Option<u64> {
            (address == 0x1000 && !self.0.is_empty()).then_some(self.0.len() as u64)
        }
        fn callers(&self) -> Callers {
            Callers::default()
        }
    }

    struct Memory<'a>(Option<&'a [u8]>);

    impl KernelMemory for Memory<'_> {
        fn read(&mut self, address: u64, out: &mut [u8]) -> bool {
            let Some(bytes) = self.0.filter(|_| address == 0x1000) else { return false };
            out.copy_from_slice(&bytes[..out.len()]);
            true
        }
    }

    #[test]
    fn the_constant_in_the_code_decides() {
        // mov $0xffffffffffffffe7,%rbx (Debian's 6.12); mov $0xffffffffffffffea,%r12 (ROCm's 6.0.5)
        let enotty = [0x90, 0x48, 0xc7, 0xc3, 0xe7, 0xff, 0xff, 0xff, 0xc3];
        let einval = [0x90, 0x49, 0xc7, 0xc4, 0xea, 0xff, 0xff, 0xff, 0xc3];
        let read = |code: &[u8]| no_command(&Code(code), &mut Memory(Some(code)));
        assert_eq!((read(&enotty), read(&einval)), (Some(25), Some(22)));
        // cut off at the next symbol: what is behind it is another function's
        assert_eq!(no_command(&Code(&enotty[..5]), &mut Memory(Some(&enotty))), Some(22));
    }

    #[test]
    fn code_that_cannot_be_read_decides_nothing() {
        assert_eq!(no_command(&Code(&[0xc3; 8]), &mut Memory(None)), None);
        assert_eq!(no_command(&Code(&[]), &mut Memory(Some(&[]))), None);
        assert_eq!(no_command(&Code(&vec![0; 1 << 20]), &mut Memory(Some(&vec![0; 1 << 20]))), None);
    }
}
