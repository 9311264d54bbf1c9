//! Ground truth: random lives of KFD processes, played against the real driver, with a separate ledger.
//!
//! In: a seed, a number of operations and the loaded driver. Out: the operations played and every difference
//! between the ledger, sysfs and the tracer. `plan` picks operations, `life` lets `agent`s perform them,
//! `ledger` keeps account of the driver's results, `view` brings ledger, sysfs and the tracer into the same
//! tables, `diff` compares these. Plan, ledger, view and diff are pure.

pub mod agent;
pub mod diff;
pub mod flat;
pub mod ledger;
pub mod life;
pub mod op;
pub mod plan;
pub mod view;
