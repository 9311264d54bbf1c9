//! `kfd-trace man` and `kfd-trace completions`: the description of the command line, for man and for shells.

use crate::cli::Cli;
use crate::runtime::exit::Stop;
use clap::CommandFactory as _;
use clap_complete::Shell;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// Writes one page per command into this folder.
///
/// # Errors
/// One line, if they cannot be written.
pub fn pages(folder: &Path) -> Result<(), Stop> {
    let written = fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    written.map_err(|error| {
        Stop::failed(format!("cannot write the pages to {}: {error}; name another folder", folder.display()))
    })
}

/// Prints the completion script of this shell.
///
/// # Errors
/// If it cannot be written.
pub fn completions(shell: Shell) -> Result<(), Stop> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kfd-trace", &mut script);
    io::stdout().lock().write_all(&script).map_err(Stop::failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_that_is_shown_has_a_page_with_its_flags() {
        let folder = tempfile::tempdir().unwrap();
        pages(folder.path()).unwrap();
        let page = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        let shown = Cli::command();
        for command in shown.get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(page(&format!("kfd-trace-{}.1", command.get_name())).contains("path.procfs"));
        }
        assert!(page("kfd-trace.1").contains("Exit codes"));
        assert!(page("kfd-trace-daemon.1").contains("web.config.file"));
        assert!(page("kfd-trace-metrics.1").is_empty(), "it is hidden");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = pages(file.path()).unwrap_err().line;
        assert!(line.contains(&*file.path().to_string_lossy()), "{line}");
    }
}
