//! The ioctls of the loaded driver that this program knows by name.

use super::{Def, IOCTLS, def, nr};
use serde::{Deserialize, Serialize};

/// In the range of ROCm if the driver has one, else in the upstream range.
const SHARED: &str = "kfd_ioctl_profiler";

/// Numbers whose handler is in the driver. A number without one has no name: a patched driver may use it for
/// something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named([u64; 4]);

impl Default for Named {
    /// Every known number: of a driver whose functions are not known.
    fn default() -> Self {
        Named([u64::MAX; 4])
    }
}

impl Named {
    /// `has`: whether the driver has a function of that name. A driver without a single known handler is one
    /// whose functions are not known.
    #[must_use]
    pub fn of(has: impl Fn(&str) -> bool) -> Named {
        let here = |def: &&Def| def.handlers.iter().any(|name| has(name));
        let shared = |def: &Def| def.handlers.contains(&SHARED);
        let has_rocm = IOCTLS.iter().filter(|def| def.is_rocm() && !shared(def)).any(|def| here(&def));
        let mut named = Named([0; 4]);
        for def in IOCTLS.iter().filter(here) {
            // A driver with both is ROCm's: its upstream number of the handler was never taken.
            if !shared(def) || def.is_rocm() == has_rocm {
                named.0[usize::from(def.nr / 64)] |= 1 << (def.nr % 64);
            }
        }
        if named.0 == [0; 4] { Named::default() } else { named }
    }

    /// Whether the handler of this number is in the driver.
    #[must_use]
    pub fn has(&self, nr: u8) -> bool {
        self.0[usize::from(nr / 64)] & (1 << (nr % 64)) != 0
    }

    /// The rows of the driver's ioctls, by number.
    pub fn defs(&self) -> impl Iterator<Item = &'static Def> + use<'_> {
        IOCTLS.iter().filter(|def| self.has(def.nr))
    }

    /// The row of a command that has a name.
    #[must_use]
    pub fn def(&self, cmd: u32) -> Option<&'static Def> {
        def(nr(cmd)).filter(|def| self.has(def.nr))
    }

    /// Name of a command: `CREATE_QUEUE`, or its number.
    #[must_use]
    pub fn name(&self, cmd: u32) -> String {
        self.def(cmd).map_or_else(|| format!("{:#04x}", nr(cmd)), |def| def.name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AIS: u32 = 0x4018_4b87;

    #[test]
    fn a_number_has_a_name_where_its_handler_is_in_the_driver() {
        let rocm = Named::of(|name| name == "kfd_ioctl_create_queue" || name == "kfd_ioctl_rlc_spm");
        assert_eq!(rocm.name(0x4b02), "CREATE_QUEUE");
        assert_eq!(rocm.name(AIS), "0x87", "a patched driver's own");
        assert_eq!(Named::of(|name| name == "kfd_ioctl_ais").name(AIS), "AIS_OP");
        assert_eq!(rocm.defs().map(|def| def.nr).collect::<Vec<_>>(), [0x02, 0x84]);
    }

    #[test]
    fn rocms_handlers_have_two_names() {
        let old = Named::of(|name| name == "kfd_ioctl_cross_memory_copy_deprecated");
        let new = Named::of(|name| name == "kfd_ioctl_dbg_set_debug_trap_deprecated");
        assert_eq!((old.name(0x4b83), old.name(0x4b82)), ("CROSS_MEMORY_COPY".into(), "0x82".into()));
        assert_eq!((new.name(0x4b83), new.name(0x4b82)), ("0x83".into(), "DBG_TRAP_DEPRECATED".into()));
    }

    #[test]
    fn the_profiler_is_in_one_of_two_ranges() {
        let upstream = Named::of(|name| name == SHARED);
        let rocm = Named::of(|name| name == SHARED || name == "kfd_ioctl_rlc_spm");
        assert_eq!((upstream.has(0x28), upstream.has(0x86)), (true, false));
        assert_eq!((rocm.has(0x28), rocm.has(0x86)), (false, true));
    }

    #[test]
    fn every_known_number_has_a_name_where_functions_are_not_known() {
        let none = Named::of(|_| false);
        assert!(IOCTLS.iter().all(|def| none.name(u32::from(def.nr)) == def.name));
        assert_eq!(none.name(0x4b99), "0x99");
    }
}
