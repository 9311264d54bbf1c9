use super::batch::Batch;
use super::delivery::{Delivery, Sends};
use super::proto::{ExportLogsServiceRequest, Resource, text};
use super::resource::{Envelope, Host, resource};
use super::settings::{OtlpOptions, Settings};
use super::verdict::Verdict;
use crate::output::exported::{ExportFigures, Exported};
use crate::remote::Secret;
use crate::runtime::confine::Seccomp;
use prost::Message as _;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn settings(environment: &[(&str, &str)]) -> Settings {
    let endpoint = Some(Secret::new("http://127.0.0.1:9".to_owned()));
    let options =
        OtlpOptions { endpoint, protocol: None, queue_bytes: 100, all: false, seccomp: Seccomp::Required };
    let variable = |name: &str| {
        environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    };
    Settings::read(&options, variable).expect("good").expect("an endpoint")
}

#[test]
fn the_resource_is_this_daemon_and_what_is_given_replaces_what_was_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let random = folder.path().join("sys/kernel/random");
    std::fs::create_dir_all(&random).expect("made");
    std::fs::write(random.join("boot_id"), "b-1\n").expect("written");
    let machine_id = folder.path().join("machine-id");
    let host = Host::read(folder.path(), &machine_id, 5);
    assert_eq!((host.id.as_deref(), host.boot_id.as_deref()), (None, Some("b-1")));
    assert!(
        host.instance.len() == 36 && host.instance.ends_with(&format!("{:012x}", std::process::id())),
        "{host:?}"
    );
    std::fs::write(&machine_id, "m-1\n").expect("written");
    std::fs::write(random.join("uuid"), "u-1\n").expect("written");
    let host =
        Host { name: "n".to_owned(), arch: "x86_64".to_owned(), ..Host::read(folder.path(), &machine_id, 5) };
    let given = [("OTEL_RESOURCE_ATTRIBUTES", "host.name=node7,k8s.cluster.name=c,service.instance.id=7")];
    let made = resource(&host, &settings(&given)).attributes;
    let has = |name, value: &str| made.iter().filter(|pair| pair.key == name).eq([&text(name, value)]);
    assert!(
        has("host.name", "node7") && has("k8s.cluster.name", "c") && has("service.name", "kfd-trace"),
        "{made:?}"
    );
    assert!(has("host.id", "m-1") && has("kfd.boot_id", "b-1") && has("host.arch", "amd64"), "{made:?}");
    assert!(has("service.instance.id", "u-1"), "{made:?}");
}

#[test]
fn a_request_is_the_resource_the_scope_and_the_records() {
    // Each an empty record: field 2, no bytes.
    let records = [0x12, 0, 0x12, 0];
    let made = Envelope::new(Resource { attributes: vec![text("host.name", "n")] }).request(&records);
    let request = ExportLogsServiceRequest::decode(&made[..]).expect("a message");
    let [logs] = &request.resource_logs[..] else { panic!("{request:?}") };
    assert_eq!(
        logs.resource.as_ref().map(|resource| resource.attributes.clone()),
        Some(vec![text("host.name", "n")])
    );
    let [scope] = &logs.scope_logs[..] else { panic!("{logs:?}") };
    assert_eq!(scope.scope.as_ref().map(|scope| scope.name.as_str()), Some("kfd-trace"));
    assert_eq!(scope.log_records.len(), 2);
}

/// What a collector says, one after the other; then it takes all. Keeps what it got.
#[derive(Clone, Default)]
struct Fake {
    verdicts: Arc<Mutex<VecDeque<Verdict>>>,
    got: Arc<Mutex<Vec<u8>>>,
    opened: Arc<Mutex<usize>>,
}

impl Fake {
    fn saying(verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        Fake { verdicts: Arc::new(Mutex::new(verdicts.into_iter().collect())), ..Fake::default() }
    }

    fn open(&self) -> Result<Box<dyn Sends>, String> {
        *self.opened.lock().expect("a lock") += 1;
        Ok(Box::new(self.clone()))
    }
}

impl Sends for Fake {
    fn send(&mut self, request: &[u8]) -> Verdict {
        self.got.lock().expect("a lock").push(*request.last().expect("a byte"));
        self.verdicts.lock().expect("a lock").pop_front().unwrap_or(Verdict::Taken { refused: 0, why: None })
    }
}

/// Batches of these many records, each marked by its number.
fn delivered(fake: &Fake, batches: &[u64], most: usize) -> ExportFigures {
    let exported = Exported::default();
    let envelope = Envelope::new(Resource::default());
    let delivery = Delivery::new(settings(&[]).way, most, envelope, exported.clone());
    for (records, mark) in batches.iter().zip(1..) {
        delivery.put(Batch { bytes: vec![mark; 10], records: *records });
    }
    delivery.end();
    delivery.run_by(|| fake.open());
    exported.figures()
}

fn again(why: &str) -> Verdict {
    Verdict::Again { why: why.to_owned(), after: Some(Duration::ZERO) }
}

#[test]
fn a_batch_is_sent_until_it_is_answered_for_and_in_its_order() {
    let fake = Fake::saying([
        again("HTTP status 503"),
        Verdict::Taken { refused: 2, why: None },
        again("HTTP status 429"),
        Verdict::Broken("closed".to_owned()),
        Verdict::Refused("HTTP status 400".to_owned()),
    ]);
    let figures = delivered(&fake, &[5, 7, 1], 100);
    assert_eq!(*fake.got.lock().expect("a lock"), [1, 1, 2, 2, 2, 3]);
    assert_eq!(*fake.opened.lock().expect("a lock"), 2, "again where it was lost");
    let expected = ExportFigures { up: true, accepted: 4, refused: 9, dropped: 0, waiting: 0 };
    assert_eq!(figures, expected);
}

#[test]
fn what_has_no_room_is_counted_and_the_rest_arrives() {
    let fake = Fake::default();
    let figures = delivered(&fake, &[3, 4, 5], 20);
    assert_eq!(*fake.got.lock().expect("a lock"), [1, 2]);
    assert_eq!((figures.accepted, figures.dropped, figures.waiting), (7, 5, 0));
}

#[test]
fn more_refused_than_there_were_is_no_number_below_zero() {
    let fake = Fake::saying([Verdict::Taken { refused: 9, why: None }]);
    let figures = delivered(&fake, &[3], 100);
    assert_eq!((figures.accepted, figures.refused, figures.waiting), (0, 3, 0));
}
