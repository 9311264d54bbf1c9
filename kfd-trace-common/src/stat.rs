//! Sums of ioctls, kept by CPU: counts and latencies without a record per call.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Buckets of the latency histogram. Bucket `i` counts calls of less than `2^(10 + i)` ns (1.024 us,
/// doubling); the last one has no upper edge.
pub const BUCKETS: usize = LAST_BUCKET as usize + 1;

const LAST_BUCKET: u32 = 26;

/// Power of two of the first bucket's upper edge, in nanoseconds.
pub const FIRST_EDGE_LOG2: u32 = 10;

/// Key of [`IoctlStat`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct IoctlKey {
    /// The process, as in [`crate::record::Header::process`].
    pub process: u64,
    /// The command as user space passed it: number, size and direction.
    pub cmd: u32,
    /// Always 0.
    pub pad: u32,
}

/// Key of the count of errors.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct ErrorKey {
    /// The process, as in [`crate::record::Header::process`].
    pub process: u64,
    /// The command as user space passed it.
    pub cmd: u32,
    /// Positive errno.
    pub errno: u32,
}

/// Sums over one process's calls of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct IoctlStat {
    /// Calls that entered `kfd_ioctl`.
    pub entered: u64,
    /// Calls that returned, or whose handler did where that is probed instead.
    pub returned: u64,
    /// Calls that `kfd_ioctl` refuses before any handler (ENOTTY or EINVAL, EBADF, EACCES), by its own rules.
    pub refused: u64,
    /// Calls whose end was not seen: the thread entered `kfd_ioctl` again without a return.
    pub no_return_seen: u64,
    /// Sum of the latencies of `returned`, in nanoseconds.
    pub latency_ns: u64,
    /// Histogram of the latencies of `returned`.
    pub buckets: [u64; BUCKETS],
}

impl IoctlStat {
    /// Nothing counted yet.
    pub const ZERO: Self =
        Self { entered: 0, returned: 0, refused: 0, no_return_seen: 0, latency_ns: 0, buckets: [0; BUCKETS] };

    /// Adds what another CPU, process or command counted.
    pub fn add(&mut self, other: &Self) {
        let Self { entered, returned, refused, no_return_seen, latency_ns, buckets } = other;
        self.entered += entered;
        self.returned += returned;
        self.refused += refused;
        self.no_return_seen += no_return_seen;
        self.latency_ns += latency_ns;
        for (sum, bucket) in self.buckets.iter_mut().zip(buckets) {
            *sum += bucket;
        }
    }

    /// Takes off what was counted earlier.
    pub fn subtract(&mut self, earlier: &Self) {
        let Self { entered, returned, refused, no_return_seen, latency_ns, buckets } = earlier;
        let of = |sum: &mut u64, before: &u64| *sum = sum.saturating_sub(*before);
        of(&mut self.entered, entered);
        of(&mut self.returned, returned);
        of(&mut self.refused, refused);
        of(&mut self.no_return_seen, no_return_seen);
        of(&mut self.latency_ns, latency_ns);
        self.buckets.iter_mut().zip(buckets).for_each(|(sum, before)| of(sum, before));
    }
}

/// A sum that one thread keeps in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Sum {
    /// As in [`IoctlKey`]; 0 if unused.
    pub process: u64,
    /// As in [`IoctlKey`].
    pub cmd: u32,
    /// 1 when every call of the command by a thread of the process gets to a handler whose return is awaited.
    pub awaited: u32,
    pub stat: IoctlStat,
    /// The bucket of the last latency, where the search for the next one starts.
    pub bucket: u32,
    /// The first errno; 0 for none.
    pub errno: u32,
    /// How often it occurred.
    pub errors: u64,
}

const _: () = assert!(size_of::<IoctlKey>() == 16 && size_of::<ErrorKey>() == 16);
const _: () = assert!(size_of::<IoctlStat>() == 256 && size_of::<Sum>() == 288);

/// The bucket that a latency belongs to.
#[must_use]
#[inline(always)]
pub fn bucket_of(latency_ns: u64) -> usize {
    let bits = u64::BITS - (latency_ns >> FIRST_EDGE_LOG2).leading_zeros();
    (if bits > LAST_BUCKET { LAST_BUCKET } else { bits }) as usize
}

/// Whether a latency is in the upper half of what this bucket can hold, which is all of it but for the first
/// one; never in the last one. Checking a guess is cheaper than finding the bucket, as programs have no
/// instruction that counts zeros.
#[must_use]
#[inline(always)]
pub fn is_in(bucket: u32, latency_ns: u64) -> bool {
    // One comparison of the bucket itself, so that the verifier knows its range.
    bucket < LAST_BUCKET && latency_ns >> (FIRST_EDGE_LOG2 - 1 + bucket) == 1
}

/// Upper edge of a bucket in nanoseconds, exclusive; `None` for the last one.
#[must_use]
pub fn upper_edge_ns(bucket: usize) -> Option<u64> {
    let shift = FIRST_EDGE_LOG2.checked_add(u32::try_from(bucket).ok()?)?;
    (bucket + 1 < BUCKETS).then(|| 1u64 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_below_the_edge_of_its_bucket() {
        for latency in [0, 1, 1023, 1024, 1025, 2047, 2048, 1 << 35, (1 << 35) - 1, u64::MAX] {
            let bucket = bucket_of(latency);
            assert!(upper_edge_ns(bucket).is_none_or(|edge| latency < edge), "{latency} in {bucket}");
            assert!(
                bucket == 0 || upper_edge_ns(bucket - 1).is_some_and(|edge| latency >= edge),
                "{latency} not below {bucket}"
            );
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        for latency in (0..36).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]) {
            let own = u32::try_from(bucket_of(latency)).unwrap();
            for bucket in 0..=LAST_BUCKET + 1 {
                let sure = bucket == own && latency >= 512 && own != LAST_BUCKET;
                assert_eq!(is_in(bucket, latency), sure, "{latency} in {bucket}");
            }
        }
        assert_eq!([1 << 10, 1 << 11, 1 << 12, 1 << 20].map(bucket_of), [1, 2, 3, 11]);
    }
}
