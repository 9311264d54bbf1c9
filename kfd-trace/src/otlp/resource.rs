//! The resource: which daemon on which host, for all of its records.

use super::proto::{InstrumentationScope, KeyValue, Resource, ResourceLogs, ScopeLogs, text};
use super::settings::Settings;
use crate::kernel::boot_id;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::fs;
use std::path::Path;

/// `ResourceLogs.scope_logs`
const SCOPE_LOGS: u32 = 2;

/// `ExportLogsServiceRequest.resource_logs`
const RESOURCE_LOGS: u32 = 1;

/// Numbers of records belong to it.
const INSTANCE: &str = "service.instance.id";

/// The machine. `None`: it could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    /// Release of the kernel.
    pub release: String,
    pub arch: String,
    /// /etc/machine-id
    pub id: Option<String>,
    /// /proc/sys/kernel/random/boot_id
    pub boot_id: Option<String>,
    /// Of this start of the daemon.
    pub instance: String,
}

impl Host {
    /// `now_ns`: nanoseconds of the Unix epoch.
    #[must_use]
    pub fn read(procfs: &Path, machine_id: &Path, now_ns: i64) -> Self {
        let line = |path: &Path| {
            let text = fs::read_to_string(path).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let random = procfs.join("sys/kernel/random");
        let system = rustix::system::uname();
        let part = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        Host {
            name: part(system.nodename()),
            release: part(system.release()),
            arch: part(system.machine()),
            id: line(machine_id),
            boot_id: boot_id(procfs),
            // A new one with each reading.
            instance: line(&random.join("uuid")).unwrap_or_else(|| uuid(now_ns, std::process::id())),
        }
    }
}

/// A UUID of version 8 (RFC 9562) that no other start of a daemon on this machine has.
fn uuid(now_ns: i64, pid: u32) -> String {
    let [time, low] = [now_ns >> 16, now_ns].map(|ns| ns & 0xffff_ffff_ffff);
    format!("{:08x}-{:04x}-8{:03x}-8000-{pid:012x}", time >> 16, time & 0xffff, low & 0xfff)
}

/// Attributes of the resource; those that are given replace those that were found, but not which start of the daemon it is.
#[must_use]
pub fn resource(host: &Host, settings: &Settings) -> Resource {
    let arch = match host.arch.as_str() {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let known = [
        Some(("service.name", "kfd-trace")),
        Some(("service.version", env!("CARGO_PKG_VERSION"))),
        Some((INSTANCE, host.instance.as_str())),
        Some(("host.name", host.name.as_str())),
        host.id.as_deref().map(|id| ("host.id", id)),
        Some(("host.arch", arch)),
        Some(("os.type", "linux")),
        Some(("os.version", host.release.as_str())),
        host.boot_id.as_deref().map(|id| ("kfd.boot_id", id)),
    ];
    let own: Vec<_> = settings.resource.iter().filter(|(name, _)| name != INSTANCE).collect();
    let given = |name: &str| own.iter().any(|(known, _)| known == name);
    let found = known.into_iter().flatten().filter(|(name, _)| !given(name));
    let found = found.map(|(name, value)| text(name, value));
    let own = own.iter().map(|(name, value)| text(name, value.as_str()));
    let attributes: Vec<KeyValue> = found.chain(own).collect();
    Resource { attributes }
}

/// The begin of each request: all but the records.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    resource: Vec<u8>,
    scope: Vec<u8>,
}

impl Envelope {
    pub(super) fn new(resource: Resource) -> Self {
        let (name, version) = ("kfd-trace".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        let scope =
            ScopeLogs { scope: Some(InstrumentationScope { name, version }), log_records: Vec::new() };
        let resource = ResourceLogs { resource: Some(resource), scope_logs: Vec::new() };
        Envelope { resource: resource.encode_to_vec(), scope: scope.encode_to_vec() }
    }

    /// An `ExportLogsServiceRequest`. `records`: each as a field of `ScopeLogs`.
    pub(super) fn request(&self, records: &[u8]) -> Vec<u8> {
        let mut logs = Vec::with_capacity(self.resource.len() + self.scope.len() + records.len() + 16);
        logs.extend_from_slice(&self.resource);
        encode_key(SCOPE_LOGS, WireType::LengthDelimited, &mut logs);
        encode_varint((self.scope.len() + records.len()) as u64, &mut logs);
        logs.extend_from_slice(&self.scope);
        logs.extend_from_slice(records);
        let mut request = Vec::with_capacity(logs.len() + 16);
        encode_key(RESOURCE_LOGS, WireType::LengthDelimited, &mut request);
        encode_varint(logs.len() as u64, &mut request);
        request.extend_from_slice(&logs);
        request
    }
}
