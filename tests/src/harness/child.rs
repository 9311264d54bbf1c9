//! A process that ends with its owner.

use std::ops::{Deref, DerefMut};
use std::process::Child;

/// Killed and reaped when it is dropped.
#[derive(Debug)]
pub struct OwnChild(pub Child);

impl Deref for OwnChild {
    type Target = Child;
    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for OwnChild {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        // fails only if it has already ended
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
