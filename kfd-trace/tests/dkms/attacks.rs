//! What a driver's scripts, and whoever is the same user as they, can do to root that runs `driver-types`: nothing. As
//! an ordinary user there is no root to attack; then these tests have nothing to show and end.

use crate::host::{CONFIGURE, Host, is_root, is_running, stderr, text, word_after};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const SECRET: &str = "of root alone\n";

/// Replaces each file that the command may open in its folder by a link to a file of root; `SECRET` is that file.
const LINKS: &str = "\
#!/bin/bash
echo \"uid=$(id -u) gid=$(id -g) groups=$(id -G | tr ' ' ,) folder=$TMPDIR\"
find \"$TMPDIR\" -maxdepth 2 | while read name; do echo \"seen $name\"; done
for name in log kfd_trace_types.o types.btf probe/answer bin/make bin/gcc; do
    mkdir -p \"$TMPDIR/probe\" \"$TMPDIR/bin\"
    ln -sfn SECRET \"$TMPDIR/$name\"
done
for name in kfd_trace_types.o kfd_trace_types.c Makefile; do ln -sfn SECRET \"amd/amdgpu/$name\"; done
ln -sfn SECRET Makefile
";

fn secret(host: &Host) -> std::path::PathBuf {
    host.put("private/secret", SECRET);
    host.mode("private/secret", 0o600);
    host.mode("private", 0o700);
    host.path("private/secret")
}

#[test]
fn links_in_the_work_folder_reach_no_file_of_root() {
    if !is_root() {
        return;
    }
    let host = Host::new("PRE_BUILD=links.sh\n", &[]);
    let secret = secret(&host);
    host.put("source/links.sh", &LINKS.replace("SECRET", &secret.display().to_string()));
    host.mode("source/links.sh", 0o755);
    let output = host.run(&[]);
    assert_eq!(text(&secret), SECRET);
    assert!(!stderr(&output).contains(SECRET.trim_end()) && !host.types().exists(), "{}", stderr(&output));
    let log = host.log();
    assert!(!log.contains(SECRET.trim_end()), "{log}");
    let id = word_after(&log, "uid=");
    assert_eq!((word_after(&log, "gid="), word_after(&log, "groups=")), (id, id), "{log}");
    assert!(id != "0" && id != "65534", "{id}");
    let accounts = text(Path::new("/etc/passwd"));
    assert!(!accounts.lines().any(|line| line.split(':').nth(2) == Some(id)), "{id} has an account");
    assert!(host.is_clean());
}

/// The scripts are the same user as the process that started them.
#[test]
fn a_script_that_kills_its_builder_leaves_nothing() {
    if !is_root() {
        return;
    }
    let script = "\
#!/bin/bash
echo \"uid=$(id -u)\"
setsid sleep 600 &
for pid in $(pgrep -u \"$(id -u)\" -f types-builder); do kill -KILL \"$pid\"; done
sleep 600
";
    let host = Host::new("PRE_BUILD=kill.sh\n", &[("kill.sh", script)]);
    let output = host.run(&["--timeout", "60s"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("ended without an answer"), "{}", stderr(&output));
    let log = host.log();
    assert_eq!(processes_of(word_after(&log, "uid=")), [""; 0]);
    assert!(host.is_clean());
}

#[test]
fn a_process_that_left_its_session_ends_with_the_build() {
    if !is_root() {
        return;
    }
    let script = format!("#!/bin/bash\nsetsid sleep 600 > /dev/null 2>&1 &\nid -u > IDS\n{CONFIGURE}");
    let host = Host::new("PRE_BUILD=stay.sh\n", &[]);
    host.put("ids/none", "");
    host.mode("ids", 0o777);
    host.put("source/stay.sh", &script.replace("IDS", &host.path("ids/id").display().to_string()));
    host.mode("source/stay.sh", 0o755);
    let output = host.run(&[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(processes_of(text(&host.path("ids/id")).trim()), [""; 0]);
    assert!(host.is_clean());
}

fn processes_of(id: &str) -> Vec<String> {
    let status = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("status")).ok();
    let all = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok).filter_map(status);
    let is_of = |status: &String| {
        status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(1) == Some(id))
    };
    all.filter(is_of).filter(|status| !status.contains("State:\tZ")).collect()
}

/// As with Ctrl-C, whoever runs it.
#[test]
fn a_build_ends_with_the_command() {
    let script = "#!/bin/sh\necho $$ > PIDS\nsleep 600\n";
    let host = Host::new("PRE_BUILD=sleep.sh\n", &[]);
    host.put("pids/none", "");
    host.mode("pids", 0o777);
    let file = host.path("pids/pid");
    host.put("source/sleep.sh", &script.replace("PIDS", &file.display().to_string()));
    host.mode("source/sleep.sh", 0o755);
    let mut command = host.command(&[]).spawn().expect("the program");
    let pid = until(|| fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n')));
    let pid = pid.trim();
    assert!(is_running(pid));
    let id = Pid::from_raw(command.id().cast_signed()).expect("a PID");
    // Not SIGINT, which the shell of a background job has all it starts ignore.
    kill_process(id, Signal::TERM).expect("a signal");
    command.wait().expect("its end");
    until(|| (!is_running(pid)).then_some(()));
    until(|| {
        host.path("tmp")
            .read_dir()
            .expect("a folder")
            .filter_map(Result::ok)
            .all(|entry| entry.path().read_dir().is_ok_and(|mut inside| inside.next().is_none()))
            .then_some(())
    });
}

fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not happen");
        sleep(Duration::from_millis(20));
    }
}
