use super::{Channels, Disk, End, From, Machine, Time, exit_code, first_cpu};
use std::path::Path;

fn machine(time: Time) -> Machine<'static> {
    let (path, disk) = (Path::new("x"), Some(Disk::Read(Path::new("payload"))));
    let from = From::Snapshot(path);
    Machine { vmlinuz: path, from, console: path, pulse: path, disk, gpus: 1, time, emulator: path }
}

#[test]
fn a_resumed_machine_is_the_saved_one_but_for_its_files() {
    let resumed = machine(Time::Shared);
    let saved = Machine { from: From::Initramfs(Path::new("i")), ..machine(Time::Shared) };
    assert_eq!(resumed.identity(), saved.identity());
    let words = |machine: &Machine<'_>| machine.arguments(Channels { serial: "stdio", tests: 3, control: 4 });
    let only = |all: &[String], others: &[String]| {
        all.iter().filter(|word| !others.contains(word)).cloned().collect::<Vec<_>>()
    };
    let (resumed, saved) = (words(&resumed), words(&saved));
    assert_eq!(only(&resumed, &saved), ["-incoming", "defer"]);
    assert_eq!(only(&saved, &resumed), ["-initrd", "i"]);
}

#[test]
fn a_machine_is_known_by_all_its_devices_and_by_no_file() {
    let (of, other) = (machine(Time::Shared), Path::new("other"));
    let known = of.identity();
    let moved = Machine {
        vmlinuz: other,
        from: From::Initramfs(other),
        console: other,
        pulse: other,
        disk: Some(Disk::Read(other)),
        emulator: other,
        ..machine(Time::Shared)
    };
    assert_eq!(known, moved.identity());
    let changed = [
        Machine { disk: None, ..machine(Time::Shared) },
        Machine { disk: Some(Disk::Copied(other)), ..machine(Time::Shared) },
        Machine { gpus: 2, ..machine(Time::Shared) },
        machine(Time::Counted { shift: 0 }),
    ];
    for changed in changed {
        assert_ne!(known, changed.identity());
    }
    // A port that is added, or leads elsewhere inside of QEMU, makes another machine.
    for device in ["-drive", "-serial", "chardev:tests", "-debugcon", "chardev=control,mode=control"] {
        assert!(known.iter().any(|word| word == device), "{device}: {known:?}");
    }
}

#[test]
fn instructions_are_counted_on_one_emulated_cpu() {
    let time = Time::Counted { shift: 3 };
    let words = machine(time).hardware();
    let follows = |option: &str| {
        let place = words.iter().position(|word| word == option)?;
        words.get(place + 1).map(String::as_str)
    };
    assert_eq!((follows("-smp"), follows("-icount")), (Some("1"), Some("shift=3,sleep=off")));
    assert_eq!(follows("-accel"), Some("tcg,thread=single"));
}

#[test]
fn a_cpu_is_known_by_its_model_and_flags() {
    let cpu = |number: u32, megahertz: u32, flags: &str| {
        format!("processor\t: {number}\nmodel name\t: EPYC\ncpu MHz\t\t: {megahertz}\nflags\t\t: {flags}\n\n")
    };
    let of = |text: &str| first_cpu(text).collect::<Vec<_>>();
    let two = cpu(0, 2400, "fpu svm") + &cpu(1, 3100, "fpu svm");
    assert_eq!(of(&two), ["model name\t: EPYC", "flags\t\t: fpu svm"]);
    assert_eq!(of(&two), of(&cpu(0, 1500, "fpu svm")));
    assert_ne!(of(&two), of(&cpu(0, 2400, "fpu svm avx2")));
}

#[test]
fn only_the_own_nonce_ends_a_run() {
    assert_eq!(exit_code("kfd-vm-exit 12ab 0", "12ab"), Some(0));
    assert_eq!(exit_code("kfd-vm-exit 12ab 1\r", "12ab"), Some(1));
    assert_eq!(exit_code("kfd-vm-exit 99 0", "12ab"), None);
    assert_eq!(exit_code("kfd-vm-exit 12ab", "12ab"), None);
    assert_eq!(exit_code("test kfd-vm-exit 12ab 0", "12ab"), None);
}

#[test]
fn a_machine_whose_kernel_log_shows_trouble_is_not_kept() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let said = |text: &str| {
        std::fs::write(log.path(), text).expect("a log");
        Machine { console: log.path(), ..machine(Time::Shared) }.is_sound(&End::Exit(0)).is_ok()
    };
    assert!(said("[    9.1] amdgpu: all is well\n"));
    assert!(!said("[    9.1] BUG: soft lockup - CPU#0 stuck for 22s!\n[    9.2] amdgpu: all is well\n"));
}
