use super::*;
use crate::output::metrics::Detail;
use crate::probes::plan::Attach;
use clap::CommandFactory;
use clap::error::ErrorKind;
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::RING_BYTES;
use std::path::Path;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::from_arguments(line.split_whitespace())
}

fn refused(line: &str) -> String {
    parse(line).expect_err(line).to_string()
}

#[test]
fn the_definition_is_sound_and_every_flag_has_help() {
    Cli::command().debug_assert();
    let mut commands = vec![Cli::command()];
    commands.extend(Cli::command().get_subcommands().cloned());
    for command in commands {
        for arg in command.get_arguments().filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()))
        {
            assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
        }
    }
}

#[test]
fn the_stream_with_all_its_flags() {
    let line = "kfd-trace --pid 7 --pid 8 --comm python --event queue_create --event ioctl --json --duration 1m30s \
                --color never --buffer-size 4MiB --path.procfs /host/proc -vv";
    let cli = parse(line).expect("good");
    assert_eq!((cli.trace.pids, cli.trace.whose.comm.as_deref()), (vec![7, 8], Some("python")));
    assert_eq!(cli.trace.lines.events, [Kind::QueueCreate, Kind::Ioctl]);
    assert_eq!((cli.trace.lines.json, cli.trace.duration), (true, Some(Duration::from_secs(90))));
    assert_eq!((cli.trace.lines.color, cli.trace.ring.probes.buffer_size), (Colour::Never, 4 << 20));
    assert_eq!((cli.global.procfs, cli.global.verbose), (PathBuf::from("/host/proc"), 2));
    assert!(cli.command.is_none());
}

#[test]
fn defaults() {
    let cli = parse("kfd-trace").expect("good");
    assert_eq!(cli.trace.ring.probes.buffer_size, RING_BYTES);
    assert_eq!((cli.global.procfs, cli.global.sysfs), (PathBuf::from("/proc"), PathBuf::from("/sys")));
    let Some(Command::Daemon(daemon)) = parse("kfd-trace daemon").expect("good").command else {
        panic!("daemon")
    };
    assert!(daemon.listen.iter().all(|address| address.ip().is_loopback()) && daemon.listen.len() == 1);
}

#[test]
fn the_interval_of_samples_is_a_time_or_never() {
    let sample = |line: &str| parse(line).map(|cli| cli.trace.ring.probes.sample.as_millis());
    assert_eq!(sample("kfd-trace").expect("good"), 1_000);
    for (given, ms) in [("0", 0), ("0s", 0), ("10ms", 10), ("250ms", 250), ("2m", 120_000)] {
        assert_eq!(sample(&format!("kfd-trace --sample.interval {given}")).expect("good"), ms, "{given}");
    }
    for given in ["9ms", "1ns", "-1s", "often", "5"] {
        let said = refused(&format!("kfd-trace daemon --sample.interval={given}"));
        assert!(said.contains("--sample.interval"), "{given}: {said}");
    }
    assert!(refused("kfd-trace --sample.interval 9ms").contains("must be 10ms or more, or 0 for never"));
}

#[test]
fn subcommands_take_the_global_flags_and_their_own() {
    let cli = parse("kfd-trace ps --json --path.sysfs /host/sys").expect("good");
    assert_eq!(cli.global.sysfs, PathBuf::from("/host/sys"));
    let Some(Command::Ps(ps)) = cli.command else { panic!("ps") };
    assert!(ps.format.json && !ps.cmdline && cli.global.logs == Path::new("/var/log"));
    assert!(parse("kfd-trace ps --cmdline").is_err(), "the table has no room for them");
    assert!(!parse("kfd-trace").expect("good").trace.lines.cmdline, "they may hold secrets");
    let line = "kfd-trace daemon --web.listen-address 127.0.0.1:1 --web.listen-address [::1]:2 --metrics.max-processes 5";
    let Some(Command::Daemon(daemon)) = parse(line).expect("good").command else { panic!("daemon") };
    assert_eq!((daemon.listen.len(), daemon.metrics.detail().processes), (2, Some(5)));
    let line = "kfd-trace daemon --web.listen-address :9100 --web.config.file web.yml";
    let Some(Command::Daemon(daemon)) = parse(line).expect("good").command else { panic!("daemon") };
    assert_eq!((daemon.listen[0].port(), daemon.web_config), (9100, Some("web.yml".into())));
    let Some(Command::Daemon(daemon)) = parse("kfd-trace daemon --web.systemd-socket").expect("good").command
    else {
        panic!("daemon")
    };
    assert!(daemon.systemd_socket);
    assert!(matches!(parse("kfd-trace status").expect("good").command, Some(Command::Status(_))));
}

fn detail(flags: &str) -> Detail {
    let Some(Command::Daemon(daemon)) = parse(&format!("kfd-trace daemon {flags}")).expect(flags).command
    else {
        panic!("daemon")
    };
    daemon.metrics.detail()
}

#[test]
fn series_of_processes_and_queues_are_switched_as_those_of_other_exporters() {
    let default =
        Detail { processes: Some(200), new_processes: 1000, queues: None, linger: Duration::from_secs(300) };
    assert_eq!(detail(""), default);
    assert_eq!(detail("--metrics.per-process --no-metrics.per-queue"), default);
    assert_eq!(detail("--no-metrics.per-process"), Detail { processes: None, ..default });
    assert_eq!(detail("--no-metrics.per-process --metrics.per-process"), default, "the last one counts");
    let queues = Detail { queues: Some(1000), ..default };
    assert_eq!(detail("--metrics.per-queue"), queues);
    assert_eq!(detail("--no-metrics.per-process --metrics.per-process --metrics.per-queue"), queues);
    assert_eq!(detail("--metrics.per-queue --metrics.max-queues 7").queues, Some(7));
    assert_eq!(detail("--metrics.per-queue --no-metrics.per-queue"), default);
    assert_eq!(detail("--metrics.linger 0s").linger, Duration::ZERO);
    assert!(refused("kfd-trace daemon --metrics.linger=-5s").contains("must not be less than 0; try 10s"));
    let both = "kfd-trace daemon --no-metrics.per-process --metrics.per-queue";
    let said = refused(both);
    assert!(said.contains("'--metrics.per-queue'") && said.contains("'--no-metrics.per-process'"), "{said}");
}

#[test]
fn each_command_attaches_its_own_way_unless_reported_otherwise() {
    let stream = |line: &str| parse(line).expect("good").trace.ring.choice(Attach::Mixed).attach;
    assert_eq!(stream("kfd-trace"), Attach::Mixed);
    assert_eq!(stream("kfd-trace --attach single"), Attach::Single);
    let Some(Command::Daemon(args)) = parse("kfd-trace daemon --attach multi").expect("good").command else {
        panic!("no daemon")
    };
    assert_eq!(args.ring.choice(Attach::Single).attach, Attach::Multi);
    assert!(refused("kfd-trace --attach fentry").contains("single, multi"));
}

#[test]
fn bad_usage_says_what_would_be_good_and_exits_with_2() {
    let unknown = refused("kfd-trace --event queue_made");
    assert!(Kind::ALL.iter().all(|kind| unknown.contains(kind.name())), "{unknown}");
    assert!(refused("kfd-trace --duration soon").contains("is no time; try 10s or 1m30s"));
    let without_unit = [
        ("--duration", "kfd-trace --duration 1"),
        ("--duration", "kfd-trace record --duration 1"),
        ("--duration", "kfd-trace timeline --duration 1"),
        ("--interval", "kfd-trace runlist --interval 1"),
        ("--interval", "kfd-trace top --interval 1"),
        ("--interval", "kfd-trace hw --interval 1"),
        ("--sample.interval", "kfd-trace daemon --sample.interval 1"),
        ("--record.max-age", "kfd-trace daemon --record x --record.max-age 1"),
    ];
    for (option, line) in without_unit {
        let why = refused(line);
        assert!(why.contains(option) && why.contains("1 what? try 1s"), "{line}: {why}");
    }
    assert!(refused("kfd-trace --duration 0s").contains("more than 0"));
    assert!(refused("kfd-trace --duration 9000000000000000s").contains("at most ten years"));
    assert!(refused("kfd-trace --buffer-size 3MiB").contains("a power of two"));
    assert!(refused("kfd-trace --buffer-size 8GiB").contains("a power of two"));
    assert!(refused("kfd-trace daemon --without-probe ioctls").contains("queue_del"));
    assert!(refused("kfd-trace daemon --web.listen-address 9100").contains("try 127.0.0.1:20200"));
    let both = "kfd-trace daemon --web.systemd-socket --web.listen-address :1";
    assert!(refused(both).contains("cannot be used with"));
    assert!(refused("kfd-trace --pid 0").contains("--pid"));
    assert_eq!(parse("kfd-trace --pid x").expect_err("bad").exit_code(), 2);
    let help = parse("kfd-trace --help").expect_err("help");
    assert_eq!(help.kind(), ErrorKind::DisplayHelp);
    assert!(help.to_string().contains("3  nothing to trace here"));
}

#[test]
fn the_doctor_looks_at_a_node_or_at_one_process() {
    let Some(Command::Doctor(all)) = parse("kfd-trace doctor").expect("good").command else {
        panic!("doctor")
    };
    assert!(all.pid.is_none() && !all.format.json);
    let line = "kfd-trace doctor --pid 7 --json --path.procfs /host/proc";
    let Some(Command::Doctor(one)) = parse(line).expect("good").command else { panic!("doctor") };
    assert!(one.pid == Some(7) && one.format.json);
    assert!(parse("kfd-trace doctor --pid 0").is_err() && parse("kfd-trace doctor --pid 7 --pid 8").is_err());
}

#[test]
fn options_of_every_command_may_stand_before_it_and_those_of_the_stream_may_not() {
    let parse = |arguments: &[&str]| Cli::from_arguments([&["kfd-trace"], arguments].concat());
    let cli = parse(&["--path.procfs", "/host/proc", "ps"]).expect("as after it");
    assert_eq!(cli.global.procfs, PathBuf::from("/host/proc"));
    assert!(matches!(cli.command, Some(Command::Ps(_))));
    let line = parse(&["--pid", "3", "ps"]).expect_err("ps would show every process").to_string();
    assert!(line.contains("--pid before `ps` is an option of the stream"), "{line}");
    assert!(parse(&["--pid", "3"]).is_ok_and(|cli| cli.trace.pids == [3]));
}

#[test]
fn top_has_the_options_of_what_it_shows() {
    let line = "kfd-trace top --interval 5s --sample.interval 0 --without-probe open --attach multi";
    let Some(Command::Top(top)) = parse(line).expect("good").command else { panic!("top") };
    assert_eq!((top.interval, top.probes.sample), (Duration::from_secs(5), Duration::ZERO));
    let choice = top.probes.choice(Attach::Mixed);
    assert_eq!((choice.attach, choice.without, choice.runlists), (Attach::Multi, vec![ProbeId::Open], false));
    assert!(refused("kfd-trace top --runlists").contains("--runlists"), "it shows none");
    for given in ["0s", "1ns", "99ms"] {
        assert!(
            refused(&format!("kfd-trace top --interval {given}")).contains("must be 100ms or more"),
            "{given}"
        );
    }
}

#[test]
fn lines_are_chosen_by_names_that_are_not_empty() {
    for option in ["comm", "container", "pod"] {
        assert!(refused(&format!("kfd-trace --{option}=")).contains(&format!("--{option}")), "{option}");
    }
    assert!(refused("kfd-trace --ns-pid 0").contains("--ns-pid"));
}

fn ps(line: &str) -> PsArgs {
    match parse(line).expect(line).command {
        Some(Command::Ps(args)) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_daemon_is_named_as_by_curl() {
    let args = ps(
        "kfd-trace ps --url https://node7 -u ann:s3cret --cacert ca.pem -E me.pem --key me.key --max-time 2.5",
    );
    assert!(!format!("{args:?}").contains("s3cret"));
    let access = args.daemon.access().expect("a URL");
    assert_eq!(access.url.text(), "https://node7");
    let login = access.user.expect("a user");
    assert_eq!((login.user.as_str(), login.password.as_ref().map(Secret::text)), ("ann", Some("s3cret")));
    assert_eq!((access.cacert, access.cert), (Some("ca.pem".into()), Some("me.pem".into())));
    assert_eq!((access.key, access.max_time), (Some("me.key".into()), Duration::from_millis(2_500)));
    let args = ps("kfd-trace ps --ages-from http://localhost:9100 --user ann --password-file pw");
    assert!(args.daemon.access().is_none());
    let access = args.daemon.access_to(args.ages_from.as_ref().expect("a URL"));
    assert_eq!((access.url.text(), access.password_file), ("http://localhost:9100", Some("pw".into())));
    for (given, ms) in [("1", 1_000), ("0.25", 250), ("1m", 60_000), ("500ms", 500)] {
        let args = ps(&format!("kfd-trace ps --url x --max-time {given}"));
        assert_eq!(args.daemon.access().expect("a URL").max_time.as_millis(), ms, "{given}");
    }
    assert!(parse("kfd-trace top --url node7:20200 -k --interval 5s").is_ok());
    assert!(parse("kfd-trace doctor --url node7:20200 --pid 7 --json -u ann --max-time 20").is_ok());
}

#[test]
fn what_a_daemon_cannot_give_is_refused() {
    for (line, words) in [
        ("kfd-trace ps -u ann", "--url <URL>"),
        ("kfd-trace ps --max-time 3", "--url <URL>"),
        ("kfd-trace top --cacert ca.pem", "--url <URL>"),
        ("kfd-trace ps --url x --key me.key", "--cert <FILE>"),
        ("kfd-trace ps --url x --json --cmdline", "cannot be used with"),
        ("kfd-trace ps --url x --ages-from y", "cannot be used with"),
        ("kfd-trace ps --url https://x -k --cacert ca.pem", "cannot be used with"),
        ("kfd-trace top --url x --recording night.rec", "cannot be used with"),
        ("kfd-trace top --url x --sample.interval 5s", "--sample.interval is for this machine"),
        ("kfd-trace top --url x --without-probe open", "--without-probe is for this machine"),
        ("kfd-trace ps --path.sysfs /host/sys --url x", "--path.sysfs is for this machine"),
        ("kfd-trace top --url x --driver-btf f", "--driver-btf is for this machine"),
        ("kfd-trace doctor --url x --path.procfs /host/proc", "--path.procfs is for this machine"),
        ("kfd-trace doctor --cacert ca.pem", "--url <URL>"),
        ("kfd-trace ps --url x --max-time 0", "must be seconds, more than 0; try 10 or 0.5"),
    ] {
        assert!(refused(line).contains(words), "{line}: {}", refused(line));
    }
    let line = refused("kfd-trace ps --url http://ann:s3cret@x -u ann:s3cret --url y");
    assert!(!line.contains("s3cret"), "{line}");
}

#[test]
fn the_units_of_the_service_say_what_is_done_with_return_probes() {
    let unit = include_str!("../../../deploy/systemd/kfd-trace.service");
    let acts: Vec<_> = ["ExecStartPre=+-/usr/bin/", "ExecStopPost=+-/usr/bin/"]
        .map(|setting| unit.lines().find_map(|line| line.strip_prefix(setting)).expect(setting))
        .map(|line| parse(line).expect(line).command)
        .into_iter()
        .map(|command| match command {
            Some(Command::ReturnProbes { act, best_effort: false }) => act,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(acts, [ReturnProbesAct::Define, ReturnProbesAct::Remove]);
    assert!(parse("kfd-trace return-probes").is_err(), "what to do is not guessed");
    assert!(!Cli::command().render_help().to_string().contains("return-probes"), "no command of users");
}
