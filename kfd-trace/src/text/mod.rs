//! Text for people: control characters escaped, times, names of errnos, tables. No I/O; knows nothing of KFD.

pub mod clock;
pub mod errno;
pub mod escape;
pub mod table;
