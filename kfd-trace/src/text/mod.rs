//! Text for people: escaping of control characters, times, errno names, tables. No I/O; independent of KFD.

pub mod clock;
pub mod count;
pub mod errno;
pub mod escape;
pub mod exposition;
pub mod table;
