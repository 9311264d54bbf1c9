//! Prometheus families, rebuilt at each scrape: removed objects leave no series behind.
//!
//! `kfd_*` describe the driver, `kfd_trace_*` the tracer itself. A family whose probe is not attached is not
//! exported: 0 would mean that nothing happened.

mod activity;
mod collectors;
mod detail;
mod driver;
mod exposition;
mod family;
mod gpus;
mod identity;
mod ioctls;
mod life;
mod memory;
mod newcomers;
mod processes;
mod sample;
mod scheduler;
mod scrape;
mod series;
mod single_queues;
mod table;
mod tracer;

pub use detail::Detail;
pub use exposition::Format;
pub use newcomers::{Admitted, Newcomers};
pub use scrape::{BPF_MAPS, Build, Collected, STATE, SYSFS, Scrape};
pub use table::{MetricDoc, describe};

/// The exposition: all families with a series, ordered by name.
///
/// # Errors
/// Only for a malformed family.
pub fn exposition(scrape: &Scrape<'_>, format: Format) -> Result<String, prometheus::Error> {
    let own = driver::OwnQueues::of(scrape);
    let mut small = driver::families(scrape, &own);
    small.extend(gpus::families(scrape));
    small.extend(life::families(scrape));
    small.extend(scheduler::families(scrape));
    small.extend(ioctls::families(scrape));
    small.extend(collectors::families(scrape));
    small.extend(activity::of_sampling(scrape));
    small.extend(tracer::families(scrape));
    let mut large = Vec::new();
    for (dropped, series) in [processes::families(scrape, &own), single_queues::families(scrape)] {
        small.extend(dropped);
        large.extend(series);
    }
    exposition::write(format, small, large)
}

#[cfg(test)]
mod tests;
