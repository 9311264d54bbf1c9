//! Expositions of the nodes of a fleet. In: a template, a node, a moment. Out: the text that the node's daemon would send.
//! Pure.

use super::laws::{Law, Moment, law};
use super::shape::{LINGER_MS, Node, Process, Shape, World, hash};
use super::template::{Line, Scope, Template};
use std::fmt::Write as _;

/// Names of programs, one for each place of a node in turn.
const COMMS: [&str; 4] = ["python3", "vllm::worker", "pt_main_thread", "rccl-test"];

enum Piece {
    Text(String),
    Value(Law),
    Pid,
    Id,
    Comm,
    GpuId,
    /// A label whose value is made from the number of a GPU.
    OfGpu(fn(&Node, u64) -> String),
    /// The same of a process.
    OfProcess(fn(&Node, &Process) -> String),
}

type Row = (Scope, Vec<Piece>);

/// A template made ready: what never changes is one text.
pub(super) struct Sheet {
    families: Vec<(String, Vec<Row>)>,
}

impl Sheet {
    pub(super) fn new(template: &Template) -> Self {
        let families = template.families.iter().map(|family| {
            let mut rows: Vec<Row> = Vec::new();
            for (scope, line) in &family.lines {
                let row = pieces(*scope, line);
                match (rows.last_mut(), &row[..]) {
                    (Some((Scope::Node, last)), [Piece::Text(text)]) if *scope == Scope::Node => {
                        push(last, text);
                    }
                    _ => rows.push((*scope, row)),
                }
            }
            (family.head.clone(), rows)
        });
        Sheet { families: families.collect() }
    }

    /// Appends the exposition of a node, `elapsed_ms` after the simulation began.
    pub(super) fn render(&self, node: &Node, elapsed_ms: u64, out: &mut String) {
        let world = node.world(elapsed_ms);
        let gpus = counts(node, &world);
        for (head, rows) in &self.families {
            let begin = out.len();
            out.push_str(head);
            let empty = out.len();
            for (scope, row) in rows {
                match scope {
                    Scope::Node => {
                        let moment = Moment {
                            age_ms: LINGER_MS + elapsed_ms,
                            live: world.live.len() as u64,
                            created: world.created,
                            deaths: world.deaths,
                            seed: hash(node.index),
                        };
                        write_row(row, node, None, 0, &moment, out);
                    }
                    Scope::Gpu => {
                        for (gpu, moment) in gpus.iter().enumerate() {
                            let moment = Moment { age_ms: LINGER_MS + elapsed_ms, ..*moment };
                            write_row(row, node, None, gpu as u64, &moment, out);
                        }
                    }
                    Scope::Live => world.live.iter().for_each(|process| of_process(row, node, process, out)),
                    Scope::Ended => {
                        world.ended.iter().for_each(|process| of_process(row, node, process, out));
                    }
                }
            }
            // A family without series is not exported.
            if out.len() == empty {
                out.truncate(begin);
            }
        }
    }
}

/// Of each GPU, what its counters go by.
fn counts(node: &Node, world: &World) -> Vec<Moment> {
    let gpus = node.shape.gpus();
    let mut all: Vec<_> =
        (0..gpus).map(|gpu| Moment { seed: hash(node.index ^ hash(gpu)), ..Moment::default() }).collect();
    for (gpu, moment) in (0..gpus).zip(&mut all) {
        moment.live = world.live.iter().filter(|process| process.gpu == gpu).count() as u64;
        // The places of a node are spread evenly over its GPUs.
        moment.created = world.created / gpus;
        moment.deaths = world.deaths / gpus;
    }
    all
}

fn of_process(row: &[Piece], node: &Node, process: &Process, out: &mut String) {
    let seed = hash(node.index ^ hash(process.id));
    let moment = Moment { age_ms: process.age_ms, live: 1, seed, ..Moment::default() };
    write_row(row, node, Some(process), process.gpu, &moment, out);
}

fn write_row(
    row: &[Piece],
    node: &Node,
    process: Option<&Process>,
    gpu: u64,
    moment: &Moment,
    out: &mut String,
) {
    // Writing to a string cannot fail.
    for piece in row {
        let _ = match (piece, process) {
            (Piece::Text(text), _) => out.write_str(text),
            (Piece::Value(law), _) => write_value(*law, moment, out),
            (Piece::GpuId, _) => write!(out, "{}", 1_000 + gpu * 701 + node.index % 700),
            (Piece::OfGpu(make), _) => out.write_str(&make(node, gpu)),
            (Piece::Pid, Some(process)) => write!(out, "{}", 10_000 + process.id % 4_000_000),
            (Piece::Id, Some(process)) => write!(out, "{}", process.id),
            (Piece::Comm, Some(process)) => {
                out.write_str(COMMS[usize::try_from(process.slot).unwrap_or(0) % COMMS.len()])
            }
            (Piece::OfProcess(make), Some(process)) => out.write_str(&make(node, process)),
            (Piece::Pid | Piece::Id | Piece::Comm | Piece::OfProcess(_), None) => Ok(()),
        };
    }
}

fn write_value(law: Law, moment: &Moment, out: &mut String) -> std::fmt::Result {
    let (number, digits) = law.value(moment).unwrap_or((0, 0));
    match digits {
        0 => writeln!(out, "{number}"),
        6 => writeln!(out, "{}.{:06}", number / 1_000_000, number % 1_000_000),
        _ => writeln!(out, "{}.{:09}", number / 1_000_000_000, number % 1_000_000_000),
    }
}

/// A line's text with what differs from node to node and from scrape to scrape left open.
fn pieces(scope: Scope, line: &Line) -> Vec<Piece> {
    let mut all = Vec::new();
    push(&mut all, &line.name);
    for (at, (key, value)) in line.labels.iter().enumerate() {
        push(&mut all, &format!("{}{key}=\"", if at == 0 { '{' } else { ',' }));
        match slot(&line.name, key) {
            Some(piece) => all.push(piece),
            None => push(&mut all, value),
        }
        push(&mut all, "\"");
    }
    push(&mut all, if line.labels.is_empty() { " " } else { "} " });
    match law(scope, line) {
        Law::Fixed => push(&mut all, &format!("{}\n", line.value)),
        law => all.push(Piece::Value(law)),
    }
    all
}

fn push(pieces: &mut Vec<Piece>, text: &str) {
    match pieces.last_mut() {
        Some(Piece::Text(last)) => last.push_str(text),
        _ => pieces.push(Piece::Text(text.to_owned())),
    }
}

fn slot(name: &str, key: &str) -> Option<Piece> {
    Some(match (name, key) {
        (_, "pid") => Piece::Pid,
        (_, "kfd_process") => Piece::Id,
        (_, "comm") => Piece::Comm,
        (_, "gpu_id") => Piece::GpuId,
        ("kfd_gpu_info", "gpu") => Piece::OfGpu(|_, gpu| gpu.to_string()),
        ("kfd_gpu_info", "node") => Piece::OfGpu(|_, gpu| (gpu + 2).to_string()),
        ("kfd_gpu_info", "render") => Piece::OfGpu(|_, gpu| format!("/dev/dri/renderD{}", 128 + gpu)),
        ("kfd_gpu_info", "pci") => {
            Piece::OfGpu(|node, gpu| format!("0000:{:02x}:00.0", 5 + 16 * chip(node, gpu).0))
        }
        ("kfd_gpu_info", "serial_number") => {
            Piece::OfGpu(|node, gpu| format!("6922{:06}{:02}", node.index, chip(node, gpu).0))
        }
        ("kfd_gpu_info", "unique_id") => {
            Piece::OfGpu(|node, gpu| format!("{:#018x}", hash(node.index ^ hash(chip(node, gpu).0))))
        }
        ("kfd_gpu_info", "gpu_partition_id") => Piece::OfGpu(|node, gpu| chip(node, gpu).1.to_string()),
        ("kfd_process_info", "namespace") => Piece::OfProcess(namespace),
        ("kfd_process_info", "pod") => Piece::OfProcess(|_, process| format!("job-{}", process.id)),
        ("kfd_process_info", "pod_uid") => Piece::OfProcess(|node, process| pod_uid(node, process, '-')),
        ("kfd_process_info", "container_id") => Piece::OfProcess(container),
        ("kfd_process_info", "cgroup") => Piece::OfProcess(|node, process| {
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-{}.scope",
                pod_uid(node, process, '_'),
                container(node, process)
            )
        }),
        _ => return None,
    })
}

/// The chip of a GPU, and which of its partitions that is.
fn chip(node: &Node, gpu: u64) -> (u64, u64) {
    let partitions = node.shape.gpus() / 8;
    (gpu / partitions, gpu % partitions)
}

fn namespace(node: &Node, process: &Process) -> String {
    match node.shape {
        Shape::Cpx => format!("tenant-{}", process.slot),
        Shape::Jobs => "batch".to_owned(),
        Shape::Idle | Shape::Training | Shape::Mix => format!("team-{}", node.index % 20),
    }
}

fn pod_uid(node: &Node, process: &Process, dash: char) -> String {
    let (high, low) = (hash(process.id), hash(node.index ^ hash(process.id)));
    format!(
        "{:08x}{dash}{:04x}{dash}4{:03x}{dash}9{:03x}{dash}{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0xfff,
        low & 0xffff_ffff_ffff
    )
}

fn container(node: &Node, process: &Process) -> String {
    let mut seed = hash(process.id ^ hash(node.index));
    (0..4).fold(String::with_capacity(64), |mut text, _| {
        seed = hash(seed);
        text += &format!("{seed:016x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::template::tests::SMALL;
    use std::collections::BTreeSet;

    fn text(index: u64, shape: Shape, elapsed_ms: u64) -> String {
        let mut out = String::new();
        let sheet = Sheet::new(&Template::parse(SMALL).expect("a template"));
        sheet.render(&Node::new(index, shape), elapsed_ms, &mut out);
        out
    }

    fn values(text: &str, name: &str) -> Vec<u64> {
        let wanted =
            |line: &&str| line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} "));
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse().ok());
        text.lines().filter(wanted).filter_map(value).collect()
    }

    #[test]
    fn a_template_is_scaled_to_the_shape() {
        let text = text(5, Shape::Training, 0);
        assert_eq!(values(&text, "kfd_processes"), [8]);
        assert_eq!(values(&text, "kfd_queues"), [[3; 8], [1; 8]].concat());
        assert_eq!(values(&text, "kfd_process_queues").len(), 8);
        assert!(
            text.contains("pid=\"")
                && text.contains("namespace=\"team-5\"")
                && text.contains("# TYPE kfd_queues gauge")
        );
        let series: BTreeSet<_> =
            text.lines().filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series).collect();
        assert_eq!(series.len(), text.lines().count(), "no series is there twice");
    }

    #[test]
    fn an_idle_node_has_no_family_of_processes() {
        let text = text(5, Shape::Idle, 0);
        assert_eq!(values(&text, "kfd_queues"), [0; 16]);
        assert_eq!(values(&text, "kfd_processes"), [0]);
        assert!(!text.contains("kfd_process_") && !text.contains("pid="), "{text}");
    }

    #[test]
    fn partitions_have_their_chip_and_tenants_their_namespace() {
        let node = Node::new(5, Shape::Cpx);
        assert_eq!([0, 7, 8, 63].map(|gpu| chip(&node, gpu)), [(0, 0), (0, 7), (1, 0), (7, 7)]);
        let text = text(5, Shape::Cpx, 0);
        assert!(text.contains("namespace=\"tenant-63\"") && values(&text, "kfd_queues").len() == 128);
    }

    #[test]
    fn what_ended_stays_as_it_was() {
        let (before, after) = (text(5, Shape::Jobs, 0), text(5, Shape::Jobs, 60_000));
        // 32 live ones and 160 ended ones.
        assert_eq!(values(&before, "kfd_process_packets_retired_total").len(), 192);
        assert_eq!(values(&before, "kfd_process_queues").len(), 32);
        let packets = |text: &str| -> BTreeSet<String> {
            text.lines().filter(|line| line.starts_with("kfd_process_packets")).map(str::to_owned).collect()
        };
        // Those that ended before and have not yet been forgotten: the same to the packet.
        assert_eq!(packets(&before).intersection(&packets(&after)).count(), 128);
    }
}
