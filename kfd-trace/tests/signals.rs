//! The effect of signals on the daemon, as a separate process. It waits for a driver that does not exist: it
//! needs no privilege.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

/// Ended when it is dropped.
struct Daemon {
    child: Child,
    said: Receiver<String>,
}

impl Daemon {
    fn waiting_for_a_driver() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-trace"));
        command.args(["daemon", "--web.listen-address=127.0.0.1:0", "--path.sysfs=/nowhere"]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the daemon");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let (sender, said) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let daemon = Daemon { child, said };
        daemon.says("waiting for it");
        daemon
    }

    /// Waits for a line that contains this.
    fn says(&self, words: &str) {
        loop {
            match self.said.recv_timeout(SOON) {
                Ok(line) if line.contains(words) => return,
                Ok(_) => {}
                Err(error) => panic!("it does not say `{words}`: {error}"),
            }
        }
    }

    fn send(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("it is there");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_hangup_is_reported_and_ends_nothing() {
    let mut daemon = Daemon::waiting_for_a_driver();
    for _ in 0..2 {
        daemon.send(Signal::SIGHUP);
        daemon.says("SIGHUP: there is nothing to load again");
    }
    assert!(daemon.child.try_wait().expect("its state").is_none(), "it goes on");
    daemon.send(Signal::SIGTERM);
    daemon.says("stopped");
    assert_eq!(daemon.child.wait().expect("its end").code(), Some(0));
}
