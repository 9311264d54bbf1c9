//! docs/events.schema.json and the list of kinds in docs/events.md, made from the types that are serialised
//! and from the table of kinds. KFD_TRACE_ACCEPT=1 rewrites both.

use crate::output::event::json::{self, EventLine, SCHEMA};
use crate::output::event::{driver, eviction, gap, gpu, ioctl, mes, process, queue, runlist, suspension};
use crate::output::golden::{check_file, events};
use crate::output::samples::shown;
use kfd_trace_common::kind::Kind;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;

const BEGIN: &str = "<!-- kinds: made by a test from kfd-trace-common/src/kind.rs -->\n";
const END: &str = "<!-- kinds: end -->\n";

/// Columns of a document's line.
const WIDTH: usize = 140;

fn properties<T: JsonSchema>(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let schema = T::json_schema(generator).to_value();
    schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The fields that only this kind has.
fn own(kind: Kind, generator: &mut SchemaGenerator) -> Map<String, Value> {
    match kind {
        Kind::ProcessSeen => properties::<process::ProcessFields<'_>>(generator),
        Kind::Open => properties::<process::OpenFields>(generator),
        Kind::Close | Kind::MmRelease | Kind::ProcessRelease => Map::new(),
        Kind::QueueCreate => properties::<queue::CreateFields>(generator),
        Kind::QueueDestroy => properties::<queue::DestroyFields>(generator),
        Kind::QueueDestroyFailed => properties::<queue::DestroyFailedFields>(generator),
        Kind::Ioctl => properties::<ioctl::IoctlFields>(generator),
        Kind::QueueUpdate => properties::<queue::UpdateFields>(generator),
        Kind::MqdWrite => properties::<queue::MqdFields>(generator),
        Kind::Evict => properties::<eviction::EvictFields>(generator),
        Kind::Restore => properties::<eviction::RestoreFields>(generator),
        Kind::EvictFailed => properties::<eviction::EvictFailedFields>(generator),
        Kind::VmFault => properties::<gpu::FaultFields>(generator),
        Kind::GpuResetBegin | Kind::HwsHang => properties::<gpu::GpuFields<'_>>(generator),
        Kind::GpuResetEnd => properties::<gpu::ResetEndFields<'_>>(generator),
        Kind::UserQueue => properties::<queue::UserQueueFields>(generator),
        Kind::Preempt => properties::<runlist::PreemptFields<'_>>(generator),
        Kind::Runlist => properties::<runlist::RunlistFields<'_>>(generator),
        Kind::QueuesSuspended => properties::<suspension::SuspendFields<'_>>(generator),
        Kind::QueuesResumed => properties::<suspension::ResumeFields<'_>>(generator),
        Kind::MesQueue => properties::<mes::MesQueueFields>(generator),
    }
}

/// The object of one kind of line: all its fields are always present.
fn object(name: &str, about: &str, mut fields: Map<String, Value>) -> Value {
    fields.insert("event".to_owned(), json!({ "const": name }));
    let required: Vec<&String> = fields.keys().collect();
    json!({ "title": name, "description": about, "type": "object", "required": required, "properties": fields })
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().for_serialize().with(|settings| settings.inline_subschemas = true).into()
}

fn fields(kind: Kind) -> Map<String, Value> {
    let mut generator = generator();
    let mut fields = properties::<EventLine<'_>>(&mut generator);
    fields.extend(own(kind, &mut generator));
    fields
}

#[test]
fn the_schema_of_all_lines() {
    let mut kinds: Vec<Value> = Kind::ALL
        .iter()
        .map(|kind| object(kind.name(), &kind.source().replace('`', ""), fields(*kind)))
        .collect();
    for (name, about) in [
        ("driver_unloaded", "The driver was unloaded; the ends of everything it had are reported before."),
        ("driver_loaded", "The next driver is traced; what exists in it is reported after this."),
    ] {
        kinds.push(object(name, about, properties::<driver::DriverLine>(&mut generator())));
    }
    let about = "Of a replay: what came before is not known to be all; what exists is reported after this.";
    kinds.push(object("recording_gap", about, properties::<gap::GapLine>(&mut generator())));
    let document = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("A line of kfd-trace --json, schema {SCHEMA}; the last line, summary, is in docs/events.md"),
        "oneOf": kinds,
    });
    let text = serde_json::to_string_pretty(&document).expect("JSON") + "\n";
    check_file(Path::new("docs/events.schema.json"), &text);
}

#[test]
fn the_schema_has_the_fields_of_each_event() {
    for event in events() {
        let kind = event.body.kind();
        let line = shown(&event, |event, context| {
            let mut line = Vec::new();
            json::event(&mut line, event, context).expect("memory");
            serde_json::from_slice::<Map<String, Value>>(&line).expect("an object")
        });
        let (shown, described) = (line.keys().cloned(), fields(kind));
        assert_eq!(
            shown.collect::<BTreeSet<_>>(),
            described.keys().cloned().collect(),
            "{}: of the schema on the right",
            kind.name()
        );
    }
}

/// As prose, at most [`WIDTH`] columns; further lines are indented as a list's item.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("at least one");
        if line.len() + 1 + word.len() > WIDTH {
            lines.push(format!("  {word}"));
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_list_of_kinds_in_the_document() {
    let mut list = String::from(BEGIN);
    for kind in Kind::ALL {
        let fields: Vec<_> = own(*kind, &mut generator()).keys().map(|field| format!("`{field}`")).collect();
        let fields = if fields.is_empty() { "none of its own".to_owned() } else { fields.join(", ") };
        let kept = kind.class().map_or_else(|| "not kept".to_owned(), |class| class.name().to_owned());
        let (name, subject, source) = (kind.name(), kind.subject().name(), kind.source());
        list += &wrapped(&format!("- `{name}` ({subject}; history: {kept}): {source}. Fields: {fields}."));
    }
    list += END;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/events.md");
    let text = std::fs::read_to_string(file).expect("docs/events.md");
    let (before, rest) = text.split_once(BEGIN).expect("the begin of the list");
    let (_, after) = rest.split_once(END).expect("the end of the list");
    check_file(Path::new("docs/events.md"), &format!("{before}{list}{after}"));
}
