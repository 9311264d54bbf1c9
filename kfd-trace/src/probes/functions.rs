//! The driver's functions by name: what the plan needs from the kernel's symbols.

use crate::kernel::Symbols;
use crate::model::runlist::{Callers, FUNCTIONS};

const DRIVER: &str = "amdgpu";

/// The driver's functions by name.
pub trait Functions {
    /// Addresses of all copies of a function in the driver, in the order of the text; 0 where hidden.
    fn copies(&self, name: &str) -> Vec<u64>;
    /// The driver has one copy, and nothing else in the kernel has the name.
    fn is_unique(&self, name: &str) -> bool;
    /// The driver's functions whose names begin with `prefix`, without the ones that the compiler derived:
    /// parts that it split off (`.cold`) and copies whose arguments it changed (`.isra.0`), which are never
    /// called through a pointer.
    fn beginning(&self, prefix: &str) -> Vec<String>;
    /// Bytes from a function's address to the driver's next symbol; `None` if unknown.
    fn room(&self, address: u64) -> Option<u64>;
    /// Where the functions are that change what a GPU runs, with what the compiler made of them.
    fn callers(&self) -> Callers;
}

impl Functions for Symbols {
    fn copies(&self, name: &str) -> Vec<u64> {
        // Without a module of this name the driver is built in.
        let module = self.has_module(DRIVER).then_some(DRIVER);
        let copies = self.find_in(module, name);
        copies.iter().filter(|symbol| symbol.is_code()).map(|symbol| symbol.address).collect()
    }

    fn is_unique(&self, name: &str) -> bool {
        Symbols::is_unique(self, name)
    }

    fn beginning(&self, prefix: &str) -> Vec<String> {
        let named =
            self.in_module(DRIVER).filter(|(name, symbol)| name.starts_with(prefix) && symbol.is_code());
        named.filter(|(name, _)| !name.contains('.')).map(|(name, _)| name.to_owned()).collect()
    }

    fn room(&self, address: u64) -> Option<u64> {
        self.room_at(DRIVER, address)
    }

    fn callers(&self) -> Callers {
        let found = self.in_module(DRIVER).filter(|(_, symbol)| symbol.is_code() && symbol.address != 0);
        let known = found.filter_map(|(name, symbol)| {
            let base = name.split('.').next()?;
            let (known, _) = FUNCTIONS.iter().find(|(known, _)| *known == base)?;
            Some((symbol.address, *known))
        });
        Callers::new(
            known.filter_map(|(start, name)| Some((start, start + self.room_at(DRIVER, start)?, name))),
        )
    }
}
