//! All boots of the test bed, and what is said of their stages by name: constants, from which the functions of
//! `boots.rs` choose.

use super::{Boot, Module, On, Root, Stage};
use crate::vm::qemu::Time;

/// A preemption without response takes 0.5 s instead of 9 s, and with it everything that waits for a hang.
const AMDGPU: Module = Module::Amdgpu("queue_preemption_timeout_ms=500");

/// Its guests have the programs that the tests compare with (`userland::OF_TESTS`).
pub(crate) const MAIN_SAVED: &str = "main";

/// The default boot for a shell or a demo. Two GPUs, so that a mix-up of them is noticed.
pub(crate) const MAIN: Boot = Boot {
    name: "main",
    saved: Some(MAIN_SAVED),
    root: Root::Initramfs,
    gpus: 2,
    time: Time::Shared,
    stages: &[
        Stage { name: "no_amdgpu", modules: &[], shape: None, on: On::Every, once: &[] },
        Stage {
            name: "no_gpu",
            modules: &[AMDGPU],
            shape: None,
            on: On::Every,
            once: &["privileges::another", "privileges::hidden", "privileges::what_else", "reload::"],
        },
        Stage {
            name: "sim",
            modules: &[Module::Kfdsim("")],
            shape: None,
            on: On::Simulated,
            once: &[
                "activity::counts::are_not",
                "belongs::",
                "burst::a_flood",
                "burst::a_reader",
                "burst::seen",
                "doctor::a_bind",
                "doctor::a_container",
                "doctor::a_dead",
                "doctor::a_mapping",
                "doctor::a_node",
                "doctor::a_process",
                "doctor::a_thread",
                "doctor::another",
                "doctor::root",
                "doctor::who",
                "ioctls_alone::queues",
                "otlp::",
                "recording::",
                "remote::",
                "restart::",
                "run::it",
                "timeline::",
                "top::",
            ],
        },
        // Tests of the tracer itself, independent of the driver: once is enough, but for the shipped table.
        Stage {
            name: TOOL,
            modules: &[],
            shape: None,
            on: On::OneOrTable,
            once: &[
                "daemon::",
                "exposition_switches::",
                "leftovers::",
                "own_life::",
                "pid_filter::",
                "types::",
                "unprivileged::",
                "without_btf::",
            ],
        },
        Stage {
            name: "life",
            modules: &[],
            shape: None,
            on: On::Simulated,
            once: &[
                "destroy_failed::what",
                "ledger::a_short_random_life_with",
                "ledger::a_tracer",
                "caller_slots::",
            ],
        },
        Stage {
            name: "mi300",
            modules: &[],
            shape: Some("gfx=943 xccs=8 parts=1 gpus=2 sched_policy=0"),
            on: On::Nodes,
            once: &[],
        },
        Stage {
            name: "cpx",
            modules: &[],
            shape: Some("gfx=943 xccs=8 parts=8 gpus=1 sched_policy=0"),
            on: On::Nodes,
            once: &[],
        },
        Stage {
            name: "mes",
            modules: &[],
            shape: Some("gfx=1100 xccs=1 parts=1 gpus=2 sched_policy=0"),
            on: On::Mes,
            once: &[],
        },
        Stage {
            name: "nohws",
            modules: &[],
            shape: Some("gfx=901 xccs=1 parts=1 gpus=2 sched_policy=2"),
            on: On::Simulated,
            once: &[],
        },
    ],
};

/// Tests of the tracer itself.
pub(crate) const TOOL: &str = "tool";

/// The stages of a driver with GPUs.
pub(crate) const WITH_GPUS: [&str; 6] = ["sim", "life", "mi300", "cpx", "mes", "nohws"];

pub(super) const BOOTS: [Boot; 3] = [
    Boot {
        name: "debian",
        saved: None,
        root: Root::Debian,
        gpus: 2,
        time: Time::Counted { shift: 0 },
        stages: &[
            Stage { name: "install", modules: &[], shape: None, on: On::One, once: &[] },
            Stage {
                name: "service",
                modules: &[AMDGPU, Module::Kfdsim("")],
                shape: None,
                on: On::One,
                once: &[],
            },
        ],
    },
    MAIN,
    Boot {
        stages: &[
            Stage { on: On::One, ..SOAKED },
            Stage { name: "locked", modules: &[], shape: None, on: On::One, once: &[] },
        ],
        ..SOAK
    },
];

/// Counts instructions instead of running tests. kfdsim retires no packets: its probe would be counted, too.
pub(crate) const COST: Boot = Boot {
    name: "cost",
    // Its figures were accepted from guests that had booted.
    saved: None,
    root: Root::Initramfs,
    gpus: 1,
    time: Time::Counted { shift: 0 },
    stages: &[Stage {
        name: "cost",
        modules: &[AMDGPU, Module::Kfdsim("hws=0")],
        shape: None,
        on: On::Simulated,
        once: &[],
    }],
};

const SOAKED: Stage =
    Stage { name: "soak", modules: &[AMDGPU, Module::Kfdsim("")], shape: None, on: On::Simulated, once: &[] };

/// For runs of hours: an idle guest costs little. A CPU of 125 million instructions a second has idle time,
/// and completes the insertion of amdgpu before the watchdog fires (20 s). One of the tests' boots on one
/// kernel, for a short time.
pub(crate) const SOAK: Boot = Boot {
    name: "soak",
    saved: Some("soak"),
    root: Root::Initramfs,
    gpus: 2,
    time: Time::Counted { shift: 3 },
    stages: &[SOAKED],
};

/// Guests by their last stage, those that take longest first.
pub(super) const LONGEST: [&str; 12] = [
    "service",
    "sim",
    "life",
    "tool",
    "no_gpu",
    "soak",
    "mi300",
    "cpx",
    "nohws",
    "mes",
    "locked",
    "no_amdgpu",
];

/// A stage, and prefixes of names of its tests.
pub(super) type Prefixes = (&'static str, &'static [&'static str]);

/// Tests that `cargo xtask test` leaves to `--everything`, by their stage: `cargo xtask attack`, which it
/// runs, does the same to the daemon on this machine.
pub(super) const LEFT_TO_EVERYTHING: [Prefixes; 1] = [("service", &["web::goes_on_tracing_beside"])];

/// Tests of what only new drivers have: several contexts of a process, and hangs that an inlined `kfd_hws_hang`
/// finds. The test command runs them on the newest kernel, and no others of their stage.
pub(super) const OF_NEWEST: [Prefixes; 1] = [("life", &["contexts::", "given_up::a_queue"])];
