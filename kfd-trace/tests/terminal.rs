//! `kfd-trace top` without a terminal, as a separate process. It needs neither privilege nor driver.

use std::process::{Command, Stdio};

#[test]
fn top_takes_a_terminal() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-trace"));
    let output = command.arg("top").stdin(Stdio::null()).output().expect("the program");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains("`top` needs a terminal") && output.stdout.is_empty(), "{errors}");
}
