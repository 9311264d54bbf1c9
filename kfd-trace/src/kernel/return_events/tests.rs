use super::*;

const FUNCTIONS: [&str; 3] = ["kfd_ioctl", "create_process", "update_queue"];

fn module() -> DriverForm {
    DriverForm::Module { version: None, srcversion: None }
}

fn by_name(_: &str) -> Option<u64> {
    None
}

/// A folder that has what these functions use of tracefs.
fn folder(list: &str) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let tracefs = root.path().join("kernel/tracing");
    fs::create_dir_all(tracefs.join("events/kprobes/other")).unwrap();
    fs::write(tracefs.join(LIST), list).unwrap();
    (root, tracefs)
}

const COMMAND: EventGroup = EventGroup::Process { pid: 7, start: 4711, nth: 0 };

fn put_event(tracefs: &Path, group: EventGroup, event: &str, id: &[u8]) {
    let folder = events_folder(tracefs, group).join(event);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("id"), id).unwrap();
}

#[test]
fn a_definition_names_the_module_except_where_the_driver_is_built_in() {
    let lines = definitions(EventGroup::Service, &module(), &FUNCTIONS, &by_name);
    let expected = [
        "r4096:kfd_trace_service/kfd_ioctl amdgpu:kfd_ioctl",
        "r1024:kfd_trace_service/create_process amdgpu:create_process",
        "r1024:kfd_trace_service/update_queue amdgpu:update_queue",
    ];
    assert_eq!(lines, expected);
    let lines = definitions(COMMAND, &DriverForm::BuiltIn, &FUNCTIONS, &by_name);
    assert_eq!(lines, ["r4096:kfd_trace_of_7_4711/kfd_ioctl kfd_ioctl"]);
}

#[test]
fn a_function_whose_address_is_known_is_not_searched_by_the_kernel() {
    let address = |name: &str| (name == "kfd_ioctl").then_some(0xffff_ffff_c012_3450);
    let lines = definitions(COMMAND, &module(), &FUNCTIONS[..2], &address);
    let expected = [
        "r4096:kfd_trace_of_7_4711/kfd_ioctl 0xffffffffc0123450",
        "r1024:kfd_trace_of_7_4711/create_process amdgpu:create_process",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn before_the_driver_is_loaded_only_what_every_driver_has_is_defined() {
    let lines = definitions(COMMAND, &DriverForm::Absent, &FUNCTIONS, &by_name);
    let expected = [
        "r4096:kfd_trace_of_7_4711/kfd_ioctl amdgpu:kfd_ioctl",
        "r1024:kfd_trace_of_7_4711/update_queue amdgpu:update_queue",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn definitions_are_added_to_those_of_others() {
    let (_root, tracefs) = folder("p:kprobes/other do_exit\n");
    assert!(define(&tracefs, COMMAND, &module(), &FUNCTIONS[..1], &by_name).unwrap().is_empty());
    let list = fs::read_to_string(tracefs.join(LIST)).unwrap();
    assert_eq!(list, "p:kprobes/other do_exit\nr4096:kfd_trace_of_7_4711/kfd_ioctl amdgpu:kfd_ioctl\n");
}

#[test]
fn a_group_is_removed_whoever_defined_it_and_no_other() {
    let (_root, tracefs) = folder("");
    for (group, event) in [
        (EventGroup::Service, "kfd_ioctl"),
        (EventGroup::Service, "of_an_older_version"),
        (COMMAND, "kfd_open"),
    ] {
        put_event(&tracefs, group, event, b"1\n");
    }
    // Files beside the events.
    fs::write(events_folder(&tracefs, EventGroup::Service).join("enable"), "0\n").unwrap();
    assert_eq!(remove(&tracefs, EventGroup::Service).unwrap().busy, 0);
    let list = fs::read_to_string(tracefs.join(LIST)).unwrap();
    let mut lines: Vec<&str> = list.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["-:kfd_trace_service/kfd_ioctl", "-:kfd_trace_service/of_an_older_version"]);
}

#[test]
fn a_group_that_cannot_be_removed_is_not_defined_again() {
    let (_root, tracefs) = folder("");
    assert_eq!(free(&tracefs, COMMAND), COMMAND);
    // The kernel keeps it: another tracer has it open.
    put_event(&tracefs, COMMAND, "kfd_ioctl", b"1900\n");
    let next = free(&tracefs, COMMAND);
    assert_eq!(next, EventGroup::Process { pid: 7, start: 4711, nth: 1 });
    assert_eq!(EventGroup::of_process(&next.name()), Some(next));
    put_event(&tracefs, next, "kfd_ioctl", b"1901\n");
    assert_eq!(free(&tracefs, COMMAND).name(), "kfd_trace_of_7_4711_2");
}

#[test]
fn a_process_is_known_by_the_pid_that_its_procfs_shows() {
    let procfs = tempfile::tempdir().unwrap();
    let stat = thread::stat_line(4242, "kfd-trace", 4711);
    fs::create_dir_all(procfs.path().join("4242")).unwrap();
    fs::write(procfs.path().join("4242/stat"), stat).unwrap();
    std::os::unix::fs::symlink("4242", procfs.path().join("self")).unwrap();
    assert_eq!(EventGroup::own(procfs.path()).name(), "kfd_trace_of_4242_4711");
}

#[test]
fn where_nothing_is_defined_nothing_is_written() {
    let (_root, tracefs) = folder("");
    fs::remove_file(tracefs.join(LIST)).unwrap();
    remove(&tracefs, EventGroup::Service).unwrap();
}

#[test]
fn a_folder_whose_name_is_no_events_is_left_alone() {
    let (_root, tracefs) = folder("");
    put_event(&tracefs, COMMAND, "a\n-:kprobes", b"1\n");
    remove(&tracefs, COMMAND).unwrap();
    assert_eq!(fs::read_to_string(tracefs.join(LIST)).unwrap(), "");
}

#[test]
fn ids_are_those_of_the_group() {
    let (_root, tracefs) = folder("");
    put_event(&tracefs, EventGroup::Service, "kfd_ioctl", b"1842\n");
    put_event(&tracefs, COMMAND, "kfd_ioctl", b"1900\n");
    let expected = BTreeMap::from([("kfd_ioctl".to_owned(), 1842)]);
    assert_eq!(ids(&tracefs, EventGroup::Service, &FUNCTIONS), expected);
}

#[test]
fn an_id_that_is_no_number_is_none() {
    let long = [b'1'; 4096];
    let bad: [&[u8]; 6] = [b"", b"0\n", b"-3\n", b"12 13\n", b"\xff\n", &long];
    for text in bad {
        let (_root, tracefs) = folder("");
        put_event(&tracefs, COMMAND, "kfd_ioctl", text);
        assert_eq!(ids(&tracefs, COMMAND, &FUNCTIONS), BTreeMap::new(), "{text:?}");
    }
}

#[test]
fn what_could_not_be_done_is_one_line() {
    let (root, tracefs) = folder("");
    fs::remove_file(tracefs.join(LIST)).unwrap();
    let error = define(&tracefs, COMMAND, &module(), &FUNCTIONS, &by_name).unwrap_err().to_string();
    assert!(error.starts_with("cannot open ") && error.contains("kernel/tracing/kprobe_events: "), "{error}");
    let error = super::tracefs(root.path()).unwrap_err().to_string();
    assert!(error.contains("mount -t tracefs tracefs /sys/kernel/tracing"), "{error}");
    let line = |line: &str, reason: Errno| (line.to_owned(), io::Error::from(reason));
    let mut refused = Refused(vec![
        line("r4096:a/b c", Errno::EXIST),
        line("r4096:a/d e", Errno::INVAL),
        line("r4096:a/f g", Errno::PERM),
    ]);
    assert_eq!((refused.drop_those_with(&[Errno::EXIST]), refused.is_empty()), (1, false));
    let expected = "the kernel refused in kprobe_events: `r4096:a/d e`, Invalid argument (os error 22); `r4096:a/f g`, \
                    Operation not permitted (os error 1)";
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn the_folder_below_debugfs_is_the_second_choice() {
    let root = tempfile::tempdir().unwrap();
    // The mount point is there, and empty.
    fs::create_dir_all(root.path().join("kernel/tracing")).unwrap();
    assert!(super::tracefs(root.path()).is_err());
    let second = root.path().join("kernel/debug/tracing");
    fs::create_dir_all(&second).unwrap();
    fs::write(second.join(LIST), "").unwrap();
    assert_eq!(super::tracefs(root.path()).unwrap(), second);
    fs::write(root.path().join("kernel/tracing").join(LIST), "").unwrap();
    assert_eq!(super::tracefs(root.path()).unwrap(), root.path().join("kernel/tracing"));
}

#[test]
fn events_of_processes_that_have_ended_are_removed() {
    let (root, procfs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tracefs = root.path().to_owned();
    for (pid, start) in [(1, 1), (7, 4711), (8, 5)] {
        fs::create_dir_all(procfs.path().join(format!("{pid}/task/{pid}"))).unwrap();
        let stat = thread::stat_line(pid, "x", start);
        fs::write(procfs.path().join(format!("{pid}/stat")), stat).unwrap();
    }
    let of = |pid, start| EventGroup::Process { pid, start, nth: 0 };
    let (ended, reused) = (of(6, 4), of(8, 3));
    for group in [COMMAND, ended, reused, EventGroup::Service] {
        put_event(&tracefs, group, "kfd_ioctl", b"1\n");
        assert_eq!(
            EventGroup::of_process(&group.name()),
            Some(group).filter(|group| *group != EventGroup::Service)
        );
    }
    put_event(&tracefs, EventGroup::Service, "kfd_ioctl", b"1\n");
    fs::create_dir_all(tracefs.join("events/kfd_trace_of_x_y")).unwrap();
    fs::write(tracefs.join(LIST), "").unwrap();
    remove_abandoned(&tracefs, procfs.path());
    let removed = fs::read_to_string(tracefs.join(LIST)).unwrap();
    let mut removed: Vec<&str> = removed.lines().collect();
    removed.sort_unstable();
    assert_eq!(removed, ["-:kfd_trace_of_6_4/kfd_ioctl", "-:kfd_trace_of_8_3/kfd_ioctl"]);
}
