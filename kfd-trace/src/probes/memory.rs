//! Kernel memory, as the walks over the driver's structures read it.

/// Kernel memory, read a few bytes at a time.
pub trait KernelMemory {
    /// Fills `out` from `address`; false if it cannot be read.
    fn read(&mut self, address: u64, out: &mut [u8]) -> bool;
}

/// 8 bytes; `None` if they cannot be read.
pub(super) fn word(memory: &mut impl KernelMemory, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
}

/// 4 bytes.
pub(super) fn half(memory: &mut impl KernelMemory, address: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    memory.read(address, &mut bytes).then(|| u32::from_le_bytes(bytes))
}

/// 1 byte.
pub(super) fn byte(memory: &mut impl KernelMemory, address: u64) -> Option<u8> {
    let mut bytes = [0; 1];
    memory.read(address, &mut bytes).then_some(bytes[0])
}

/// 2 bytes.
pub(super) fn quarter(memory: &mut impl KernelMemory, address: u64) -> Option<u16> {
    let mut bytes = [0; 2];
    memory.read(address, &mut bytes).then(|| u16::from_le_bytes(bytes))
}

#[cfg(test)]
pub(crate) mod samples {
    use super::KernelMemory;
    use std::collections::BTreeMap;

    /// Memory as 8-byte words.
    #[derive(Default)]
    pub(crate) struct Words(pub(crate) BTreeMap<u64, u64>);

    impl KernelMemory for Words {
        fn read(&mut self, address: u64, out: &mut [u8]) -> bool {
            for (byte, at) in out.iter_mut().zip(address..) {
                let Some(word) = self.0.get(&(at & !7)) else { return false };
                *byte = word.to_le_bytes()[usize::try_from(at & 7).unwrap()];
            }
            true
        }
    }
}
