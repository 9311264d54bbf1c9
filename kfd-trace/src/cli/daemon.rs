//! Options of the daemon.

use super::TracingOptions;
use super::remote::secret;
use super::values::{bytes, duration, span};
use crate::otlp::{OtlpOptions, Protocol};
use crate::output::metrics::Detail;
use crate::recording::FolderLimits;
use crate::remote::Secret;
use crate::runtime::confine::Seccomp;
use crate::serve::web::listen::{DEFAULT_ADDRESS, address};
use crate::serve::web::names::host_name;
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Options of the daemon.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Web")]
pub struct DaemonArgs {
    /// Address and port to listen on; `:PORT` for all addresses; may be repeated.
    #[arg(long = "web.listen-address", value_name = "ADDR", value_parser = address, default_values_t = [DEFAULT_ADDRESS])]
    pub listen: Vec<SocketAddr>,
    /// Also serve /-/healthy and /-/ready here, over plain HTTP to any client: for probes that have neither password nor
    /// certificate, and that no crowd at the other addresses may keep out; may be repeated.
    #[arg(long = "web.health-address", value_name = "ADDR", value_parser = address)]
    pub health: Vec<SocketAddr>,
    /// Listen on the sockets passed by systemd instead.
    #[arg(long = "web.systemd-socket", conflicts_with = "listen")]
    pub systemd_socket: bool,
    /// TLS and passwords: a web configuration file as of the Prometheus exporters (docs/web.md).
    #[arg(long = "web.config.file", value_name = "FILE")]
    pub web_config: Option<PathBuf>,
    /// Answer requests for this host name, too, where there is neither TLS nor a password; may be repeated. Addresses,
    /// localhost and the machine's own name are always answered.
    #[arg(long = "web.allowed-host", value_name = "NAME", value_parser = host_name)]
    pub allowed_hosts: Vec<String>,
    /// Serve and send also where the kernel or a container refuses the filter of system calls for the processes that do
    /// (docs/security.md): whoever takes one of them over is then confined by its user and its missing capabilities alone.
    #[arg(long = "without-seccomp")]
    pub without_seccomp: bool,
    #[command(flatten)]
    pub metrics: MetricsArgs,
    #[command(flatten)]
    pub record: DaemonRecordArgs,
    #[command(flatten)]
    pub otlp: OtlpArgs,
    #[command(flatten)]
    pub ring: TracingOptions,
}

impl DaemonArgs {
    #[must_use]
    pub fn seccomp(&self) -> Seccomp {
        if self.without_seccomp { Seccomp::Optional } else { Seccomp::Required }
    }
}

/// Which processes and queues have series of their own. Of a switch and its opposite the last one counts.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Metrics")]
pub struct MetricsArgs {
    /// Export series with the label `pid` (default).
    #[arg(long = "metrics.per-process")]
    per_process: bool,
    /// Export no series with the label `pid`.
    #[arg(long = "no-metrics.per-process", overrides_with = "per_process")]
    no_per_process: bool,
    /// Export series of at most this many processes; count the others.
    #[arg(long = "metrics.max-processes", value_name = "N", default_value_t = 200)]
    max_processes: usize,
    /// Give series to at most this many new processes an hour; count the others. So short ones cost a store a bounded number of
    /// series.
    #[arg(long = "metrics.max-new-processes", value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    max_new_processes: u64,
    /// Keep the series of a process this long after its end: 0s, 30s, 5m.
    #[arg(long = "metrics.linger", value_name = "TIME", value_parser = span, default_value = "5m")]
    linger: Duration,
    /// Also export series of single queues.
    #[arg(long = "metrics.per-queue", conflicts_with = "no_per_process")]
    per_queue: bool,
    /// Export no series of single queues (default).
    #[arg(long = "no-metrics.per-queue", overrides_with = "per_queue")]
    no_per_queue: bool,
    /// With --metrics.per-queue: export series of at most this many queues; count the others.
    #[arg(long = "metrics.max-queues", value_name = "N", default_value_t = 1000)]
    max_queues: usize,
}

impl MetricsArgs {
    #[must_use]
    pub fn detail(&self) -> Detail {
        Detail {
            processes: (!self.no_per_process).then_some(self.max_processes),
            new_processes: self.max_new_processes,
            queues: self.per_queue.then_some(self.max_queues),
            linger: self.linger,
        }
    }
}

/// What is kept of the past, in files.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Recording")]
pub struct DaemonRecordArgs {
    /// Record all that is seen but ioctls into this folder, for `replay` and `timeline`, and go on with the history that it has of this boot; it is made if there is none.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Remove the oldest recordings of the folder when all have more bytes than this: 64MiB, 2GiB.
    #[arg(long = "record.max-size", value_name = "BYTES", value_parser = bytes, default_value = "256MiB", requires = "record")]
    max_size: u64,
    /// Remove recordings that ended longer ago than this: 30m, 168h.
    #[arg(long = "record.max-age", value_name = "TIME", value_parser = duration, default_value = "168h", requires = "record")]
    max_age: Duration,
    /// Begin another file when one has this many bytes, or after an hour; at most a quarter of --record.max-size.
    #[arg(long = "record.file-size", value_name = "BYTES", value_parser = bytes, default_value = "16MiB", requires = "record")]
    file_size: u64,
}

/// Where events are sent to.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "OpenTelemetry")]
pub struct OtlpArgs {
    /// Send events as logs to the OpenTelemetry collector at this URL: http://HOST:4318 (for gRPC http://HOST:4317). Headers,
    /// certificates, compression and time come from the variables OTEL_EXPORTER_OTLP_*, as does a URL where this is not given.
    #[arg(long = "otlp.endpoint", value_name = "URL", value_parser = secret)]
    endpoint: Option<Secret>,
    /// How to send [default: OTEL_EXPORTER_OTLP_PROTOCOL, else http/protobuf].
    #[arg(long = "otlp.protocol", value_name = "NAME", value_enum)]
    protocol: Option<OtlpProtocol>,
    /// What to send: who holds what and what goes wrong, or all that is traced but ioctls.
    #[arg(long = "otlp.events", value_name = "WHICH", value_enum, default_value_t = OtlpEvents::Lifecycle)]
    events: OtlpEvents,
    /// Keep at most so many bytes for a collector that is slow or away; drop and count what comes then.
    #[arg(long = "otlp.queue", value_name = "BYTES", value_parser = bytes, default_value = "16MiB")]
    queue: u64,
}

/// How records are sent.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum OtlpProtocol {
    #[value(name = "http/protobuf")]
    Http,
    #[value(name = "grpc")]
    Grpc,
}

/// Which events are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OtlpEvents {
    /// Processes, queues, evictions, faults, resets.
    Lifecycle,
    /// Also opens, closes, updates of queues and MQDs, and what --runlists adds.
    All,
}

impl OtlpArgs {
    #[must_use]
    pub fn options(self, seccomp: Seccomp) -> OtlpOptions {
        let OtlpArgs { endpoint, protocol, events, queue } = self;
        let protocol = protocol.map(|protocol| match protocol {
            OtlpProtocol::Http => Protocol::Http,
            OtlpProtocol::Grpc => Protocol::Grpc,
        });
        let queue_bytes = usize::try_from(queue).unwrap_or(usize::MAX);
        OtlpOptions { endpoint, protocol, queue_bytes, all: events == OtlpEvents::All, seccomp }
    }
}

impl DaemonRecordArgs {
    /// `None`: nothing is recorded.
    #[must_use]
    pub fn limits(self) -> Option<FolderLimits> {
        let DaemonRecordArgs { record, max_size, max_age, file_size } = self;
        let file_bytes = file_size.min(max_size / 4);
        record.map(|folder| FolderLimits { folder, max_bytes: max_size, max_age, file_bytes })
    }
}
