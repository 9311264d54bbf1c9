//! The daemon's requests to the program `lookup`: one entry of a hash map, to read or to remove. Arguments: a
//! verb, a table and two words of key. Result: a [`crate::peek::Answer`], whose length is 0 if there is no
//! such entry.

/// The first argument.
pub mod verb {
    /// Copies the value.
    pub const READ: u64 = 0;
    /// Removes the entry.
    pub const REMOVE: u64 = 1;
    /// From now on the programs cache which process a file belongs to; without a table.
    pub const REMEMBER: u64 = 2;
    /// Invalidates what they have cached; without a table.
    pub const VOID: u64 = 3;
    /// Removes the entry of a call whose return was missed, and counts that.
    pub const EXPIRE: u64 = 4;
}

/// The second argument, and the meaning of the key's words.
pub mod table {
    /// Process; command.
    pub const IOCTL_STATS: u64 = 0;
    /// Process; command, with the errno in the upper half.
    pub const IOCTL_ERRORS: u64 = 1;
    /// tid.
    pub const IN_FLIGHT: u64 = 2;
    /// Number of the slot; its entries are only removed.
    pub const CLAIMS: u64 = 3;
    /// Address of the `struct kfd_process`.
    pub const PROCESSES: u64 = 4;
    /// PASID.
    pub const PASIDS: u64 = 5;
    /// tid, as all that follow.
    pub const UPDATES: u64 = 6;
    pub const EVICTIONS: u64 = 7;
    pub const USER_QUEUES: u64 = 8;
    pub const RELEASING: u64 = 9;
    pub const SCHEDULES: u64 = 10;
    pub const SUSPENSIONS: u64 = 11;
    pub const MES_CALLS: u64 = 12;
}

/// In the result's length: the program has not run.
pub const NOT_RUN: u64 = u64::MAX;
