//! BPF arrays that are mapped into this process: read and cleared without a system call.
//!
//! A bpf(2) lookup keeps kprobe programs from running on its CPU (`bpf_disable_instrumentation`,
//! kernel/bpf/syscall.c), and if the kernel preempts it half-way, whatever runs there meanwhile is not seen.

use crate::kernel::bpf::Mapping;
use crate::probes::error::{LoadError, chain};
use aya::maps::{Array, Map};
use aya::{Ebpf, Pod};
use kfd_trace_common::counter::{COUNTERS, STRIDE};
use rustix::param::page_size;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::{FromBytes, IntoBytes};

/// The words of an array created with `BPF_F_MMAPABLE`, at their current values; programs continue to write
/// them.
pub(crate) struct Mapped {
    mapping: Mapping,
    /// Words of the mapping before the first one that was asked for.
    before: usize,
    words: usize,
}

impl Mapped {
    /// Maps a whole array of `T`; the kernel aligns each element to a multiple of 8 bytes. The mapping
    /// outlives the object: it holds a reference to the array.
    pub(crate) fn new<T: Pod>(ebpf: &Ebpf, name: &'static str) -> Result<Self, LoadError> {
        let Some(map @ Map::Array(data)) = ebpf.map(name) else { return Err(LoadError::NoMap(name)) };
        let error = |why| LoadError::Map { map: name, why };
        let array: Array<_, T> = map.try_into().map_err(|why| error(chain(&why)))?;
        let words = array.len() as usize * size_of::<T>().div_ceil(size_of::<u64>());
        Mapped::part(data.fd().as_fd(), 0, words).map_err(|why| error(format!("mmap: {why}")))
    }

    /// Maps `words` words of an array from the word `first` on.
    fn part(array: BorrowedFd<'_>, first: usize, words: usize) -> io::Result<Self> {
        let before = first % (page_size() / size_of::<u64>());
        let [offset, bytes] = [first - before, before + words].map(|words| words * size_of::<u64>());
        Ok(Mapped { mapping: Mapping::new(array, offset, bytes)?, before, words })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped until this is dropped, page-aligned, and only ever used as atomics; programs write
        // aligned words of 8 bytes and halves of such.
        let all = unsafe {
            std::slice::from_raw_parts(self.mapping.start().cast().as_ptr(), self.before + self.words)
        };
        all.get(self.before..).unwrap_or_default()
    }

    /// All words.
    pub(crate) fn load(&self) -> impl Iterator<Item = u64> + '_ {
        self.words().iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Overwrites the first word.
    pub(crate) fn set_first(&self, value: u64) {
        if let Some(first) = self.words().first() {
            first.store(value, Ordering::SeqCst);
        }
    }

    /// The elements of an array of `T`, which consists of whole words.
    pub(crate) fn elements<T: Pod>(&self) -> impl Iterator<Item = Element<'_>> {
        self.words().chunks_exact(words_of::<T>()).map(Element)
    }
}

/// An array of which a part is mapped at the first reading after a program has used it: all pages of a mapping count
/// as this process's memory from the start.
pub(crate) struct Parted {
    name: &'static str,
    array: OwnedFd,
    /// Of each part, whether it is in use.
    used: Mapped,
    parts: Vec<OnceLock<Mapped>>,
    /// Words of a part.
    words: usize,
}

impl Parted {
    /// An array of `T` in parts of `each`, and the array that has a word for each part.
    pub(crate) fn new<T: Pod>(
        ebpf: &Ebpf,
        name: &'static str,
        used: &'static str,
        each: u32,
    ) -> Result<Self, LoadError> {
        let Some(Map::Array(data)) = ebpf.map(name) else { return Err(LoadError::NoMap(name)) };
        let array = data.fd().as_fd().try_clone_to_owned();
        let array = array.map_err(|why| LoadError::Map { map: name, why: why.to_string() })?;
        let used = Mapped::new::<u64>(ebpf, used)?;
        let parts = used.words().iter().map(|_| OnceLock::new()).collect();
        Ok(Parted { name, array, used, parts, words: each as usize * words_of::<T>() })
    }

    /// The elements of all parts in use, with their numbers.
    ///
    /// # Errors
    /// If a part cannot be mapped.
    pub(crate) fn elements<T: Pod>(&self) -> Result<Vec<(u32, Element<'_>)>, LoadError> {
        let parts: Vec<_> = self.in_use::<T>().collect::<Result<_, _>>()?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// Those of the parts that are or can be mapped; of others only the log tells.
    pub(crate) fn at_hand<T: Pod>(&self) -> Vec<(u32, Element<'_>)> {
        let told = |error: &LoadError| log::warn!("the last counts of some threads are lost: {error}");
        self.in_use::<T>().filter_map(|part| part.inspect_err(told).ok()).flatten().collect()
    }

    /// The elements of each part, or why it cannot be mapped.
    fn in_use<T: Pod>(
        &self,
    ) -> impl Iterator<Item = Result<impl Iterator<Item = (u32, Element<'_>)>, LoadError>> {
        (0..self.parts.len()).filter_map(|number| {
            let first = u32::try_from(number * self.words / words_of::<T>()).unwrap_or(u32::MAX);
            let part = self.part(number).transpose()?;
            Some(part.map(|part| (first..).zip(part.elements::<T>())))
        })
    }

    /// `None` if it is not in use.
    fn part(&self, number: usize) -> Result<Option<&Mapped>, LoadError> {
        let Some(part) = self.parts.get(number) else { return Ok(None) };
        let is_used = || self.used.words().get(number).is_some_and(|word| word.load(Ordering::Acquire) != 0);
        if part.get().is_none() && is_used() {
            let mapped = Mapped::part(self.array.as_fd(), number * self.words, self.words);
            let mapped =
                mapped.map_err(|why| LoadError::Map { map: self.name, why: format!("mmap: {why}") })?;
            // Where another thread was faster, its mapping stays.
            let _ = part.set(mapped);
        }
        Ok(part.get())
    }
}

/// Words of the largest value that is copied.
const WORDS_MAX: usize = 36;

/// Words of a type whose size is a whole number of words.
const fn words_of<T>() -> usize {
    size_of::<T>() / size_of::<u64>()
}

/// One element of a mapped array, or a part of it. Its first word is the owner; 0 if it has none.
#[derive(Clone, Copy)]
pub(crate) struct Element<'a>(&'a [AtomicU64]);

impl<'a> Element<'a> {
    /// The owner; `None` if it has none.
    pub(crate) fn owner(&self) -> Option<u64> {
        self.0.first().map(|word| word.load(Ordering::Acquire)).filter(|owner| *owner != 0)
    }

    /// The elements of an array of `T` that starts `offset` bytes from the start of this element.
    pub(crate) fn parts<T: Pod>(self, offset: usize, len: usize) -> impl Iterator<Item = Element<'a>> {
        let from = self.0.get(offset / size_of::<u64>()..).unwrap_or_default();
        from.chunks_exact(words_of::<T>()).take(len).map(Element)
    }

    /// The current value at the start of the element, copied word by word: a concurrent write of a program
    /// may be visible in part.
    pub(crate) fn copy<T: FromBytes>(&self) -> T {
        const { assert!(size_of::<T>() <= size_of::<[u64; WORDS_MAX]>()) };
        let mut words = [0; WORDS_MAX];
        for (copy, word) in words.iter_mut().zip(self.0) {
            *copy = word.load(Ordering::Acquire);
        }
        T::read_from_prefix(words.as_bytes()).expect("as many bytes as it needs, as asserted").0
    }

    /// Clears the owner if it is still this one; everything else stays unchanged, for the next owner to
    /// clear.
    pub(crate) fn release(&self, owner: u64) -> bool {
        self.passes(owner, 0)
    }

    /// Undoes that if no other owner has taken it yet.
    pub(crate) fn give_back(&self, owner: u64) -> bool {
        self.passes(0, owner)
    }

    fn passes(&self, from: u64, to: u64) -> bool {
        let Some(first) = self.0.first() else { return false };
        first.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    #[cfg(test)]
    pub(crate) fn over(words: &'a [AtomicU64]) -> Self {
        Element(words)
    }
}

/// Words of the counters for this many CPUs.
pub(crate) fn counters_len(cpu_ids: u32) -> u32 {
    cpu_ids.max(1).saturating_mul(STRIDE)
}

/// Each counter summed over the CPUs.
pub(crate) fn sums(words: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut sums = vec![0u64; COUNTERS as usize];
    for (at, word) in words.enumerate() {
        // The padding of a CPU's part has no counter.
        if let Some(sum) = sums.get_mut(at % STRIDE as usize) {
            *sum += word;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use kfd_trace_common::counter;
    use kfd_trace_common::kind::Kind;
    use std::fs::File;
    use std::io::Write as _;

    #[test]
    fn each_cpu_has_its_part_and_its_padding_is_not_counted() {
        let mut words = vec![0; counters_len(3) as usize];
        let last = *Kind::ALL.last().unwrap();
        for (cpu, part) in words.chunks_mut(STRIDE as usize).enumerate() {
            part[counter::sent(last) as usize] = 10u64.pow(u32::try_from(cpu).unwrap());
            part[COUNTERS as usize..].fill(77);
        }
        let sums = sums(words.into_iter());
        assert_eq!((sums.len(), sums.iter().sum::<u64>()), (COUNTERS as usize, 111));
        assert_eq!(sums[counter::sent(last) as usize], 111);
    }

    /// A file stands for the array: 1,024 elements of 5 words, each of which is its own place.
    fn parted() -> Parted {
        const WORDS: usize = 5 * 1024;
        let file = |words: Vec<u64>| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(words.as_bytes()).unwrap();
            OwnedFd::from(file)
        };
        let array = file((0..WORDS as u64).collect());
        let used = Mapped::part(file(vec![0, 0, 1, 1]).as_fd(), 0, 4).unwrap();
        let parts = (0..4).map(|_| OnceLock::new()).collect();
        Parted { name: "ARRAY", array, used, parts, words: WORDS / 4 }
    }

    #[test]
    fn the_parts_in_use_are_mapped_wherever_they_begin() {
        let parted = parted();
        let elements = parted.elements::<[u64; 5]>().unwrap();
        assert_eq!((elements.len(), elements[0].0, elements.last().unwrap().0), (512, 512, 1023));
        for (number, element) in elements {
            let first = u64::from(number) * 5;
            assert_eq!(element.copy::<[u64; 5]>(), [first, first + 1, first + 2, first + 3, first + 4]);
        }
        assert!(parted.parts[0].get().is_none() && parted.parts[3].get().is_some());
        parted.used.set_first(1);
        assert_eq!(parted.elements::<[u64; 5]>().unwrap().len(), 768, "a part that comes into use later");
    }

    #[test]
    fn what_cannot_be_mapped_is_an_error_and_the_rest_is_at_hand() {
        let parted = Parted { array: File::open("/dev/null").unwrap().into(), ..parted() };
        assert!(parted.elements::<[u64; 5]>().is_err_and(|why| why.to_string().contains("ARRAY")));
        assert!(parted.at_hand::<[u64; 5]>().is_empty());
    }

    fn words(values: &[u64]) -> Vec<AtomicU64> {
        values.iter().copied().map(AtomicU64::new).collect()
    }

    #[test]
    fn who_lets_go_leaves_the_rest() {
        let memory = words(&[7, 1, 2]);
        let element = Element(&memory);
        assert_eq!((element.owner(), element.copy::<[u64; 2]>()), (Some(7), [7, 1]));
        assert!(!element.release(6) && element.release(7) && !element.release(7));
        assert_eq!((element.owner(), element.copy::<[u64; 3]>()), (None, [0, 1, 2]));
    }

    #[test]
    fn only_slots_without_an_owner_are_given_back() {
        let memory = words(&[7]);
        assert!(
            !Element(&memory).give_back(8) && Element(&memory).release(7) && Element(&memory).give_back(7)
        );
        assert_eq!(Element(&memory).owner(), Some(7));
    }

    #[test]
    fn parts_begin_where_they_are_and_none_lies_beyond_the_end() {
        let memory = words(&[7, 10, 11, 20, 21, 30]);
        let parts = |len| {
            Vec::from_iter(Element(&memory).parts::<[u64; 2]>(8, len).map(|part| part.copy::<[u64; 2]>()))
        };
        assert_eq!(parts(1), [[10, 11]]);
        assert_eq!(parts(9), [[10, 11], [20, 21]]);
        assert_eq!(Element(&memory).parts::<u64>(64, 1).count(), 0);
    }
}
