//! `kfd-trace man` and `kfd-trace completions`: the description of the command line, for man and for shells.

use crate::cli::Cli;
use crate::runtime::exit::Stop;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// Writes one page per command into this folder.
///
/// # Errors
/// One line, if they cannot be written.
pub fn pages(folder: &Path) -> Result<(), Stop> {
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    let written = fs::create_dir_all(folder).and_then(|()| write(&all, folder));
    written.map_err(|error| {
        Stop::failed(format!("cannot write the pages to {}: {error}; name another folder", folder.display()))
    })
}

/// The page of a command, and those of the commands below it that are shown.
fn write(command: &Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write(below, folder)?;
    }
    let (man, mut page) = (Man::new(command.clone()), Vec::new());
    man.render(&mut page)?;
    fs::write(folder.join(man.get_filename()), unfilled(&String::from_utf8_lossy(&page)))
}

/// Examples are lines of a shell: filled and justified, a command would be broken, and have further spaces.
fn unfilled(page: &str) -> String {
    const EXTRA: &str = ".SH EXTRA\n";
    let Some((before, extra)) = page.split_once(EXTRA) else { return page.to_owned() };
    let end = extra.find("\n.SH ").map_or(extra.len(), |end| end + 1);
    let (extra, after) = extra.split_at(end);
    format!("{before}{EXTRA}.nf\n{}\n.fi\n{after}", extra.trim_end())
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
        let ps = page("kfd-trace-ps.1");
        let (_, examples) = ps.split_once(".SH EXTRA\n.nf\n").expect("lines stay as they are");
        assert_eq!(examples.matches("\n.fi\n").count(), 1, "{examples}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = pages(file.path()).unwrap_err().line;
        assert!(line.contains(&*file.path().to_string_lossy()), "{line}");
    }
}
