//! Keys and values that the daemon reads from maps unchanged.

use crate::in_flight::{Caller, CallerSlot, OpenCall};
use crate::peek::Answer;
use crate::process::Entry;
use crate::stat::{ErrorKey, IoctlKey, IoctlStat, Sum};
use aya::Pod;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const fn is_plain_data<T: FromBytes + IntoBytes + Immutable>() {}

macro_rules! pods {
    ($($name:ident)*) => {
        $(
            const _: () = is_plain_data::<$name>();
            // SAFETY: any bytes are a value, and it has no padding, as checked above.
            unsafe impl Pod for $name {}
        )*
    };
}

pods! { IoctlKey ErrorKey IoctlStat OpenCall Answer Entry CallerSlot Caller Sum }
