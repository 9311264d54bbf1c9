//! The ioctls that a process issued, by command and outcome: the reference that kfd-trace's counts are
//! compared with.

use super::errno::Errno;
use super::uapi::{self, Command};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Counts of ioctls by (command, errno); `None` is success.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<(Command, Option<Errno>), u64>);

impl Tally {
    pub fn add(&mut self, cmd: Command, outcome: Result<(), Errno>) {
        *self.0.entry((cmd, outcome.err())).or_default() += 1;
    }

    pub fn merge(&mut self, other: &Self) {
        for (key, count) in &other.0 {
            *self.0.entry(*key).or_default() += count;
        }
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// `[{"nr":1,"cmd":2148027137,"size":8,"errno":null,"count":3},...]`, ordered by command.
    pub fn to_json(&self) -> Value {
        self.0
            .iter()
            .map(|((cmd, errno), count)| {
                json!({
                    "nr": uapi::nr(*cmd),
                    "cmd": cmd,
                    "size": uapi::size(*cmd),
                    "errno": errno.map(Errno::name),
                    "count": count,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_of_one_command_are_counted_apart() {
        let mut tally = Tally::default();
        tally.add(uapi::GET_VERSION, Ok(()));
        tally.add(uapi::GET_VERSION, Ok(()));
        tally.add(uapi::GET_VERSION, Err(Errno(libc::EBADF)));
        assert_eq!(tally.total(), 3);
        assert_eq!(
            tally.to_json(),
            json!([
                {"nr": 1, "cmd": 0x8008_4b01_u32, "size": 8, "errno": null, "count": 2},
                {"nr": 1, "cmd": 0x8008_4b01_u32, "size": 8, "errno": "EBADF", "count": 1},
            ])
        );
    }

    #[test]
    fn merging_adds_up() {
        let mut one = Tally::default();
        one.add(uapi::GET_VERSION, Ok(()));
        let mut two = one.clone();
        two.add(uapi::CREATE_QUEUE, Err(Errno(libc::EINVAL)));
        one.merge(&two);
        assert_eq!(one.total(), 3);
    }
}
