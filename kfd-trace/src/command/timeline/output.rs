//! The file of a trace.

use crate::command::replay::source::Source;
use crate::runtime::exit::Stop;
use crate::runtime::output_file;
use rustix::fs::OFlags;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A trace that is about to be written. What is in its file stays until then.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) path: PathBuf,
    /// `None`: standard output.
    file: Option<File>,
}

impl Output {
    /// Opens it; `-` is standard output. It shows as much as the recording does, and is its owner's alone, too. It must be
    /// none of the files that are read.
    ///
    /// # Errors
    /// One line.
    pub(super) fn open(path: &Path, read: &[PathBuf]) -> Result<Self, Stop> {
        let path = path.to_owned();
        if path.as_os_str() == "-" {
            return Ok(Output { path, file: None });
        }
        let named = path.display();
        let same = |one: &Metadata, other: Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
        if let Ok(own) = fs::metadata(&path)
            && let Some(taken) =
                read.iter().find(|read| fs::metadata(read).is_ok_and(|read| same(&own, read)))
        {
            let what = taken.display();
            return Err(Stop::usage(format!("{named} is {what}, which is read: choose another --output")));
        }
        let opened = output_file::open(&path, 0o600, OFlags::empty());
        let file = opened.map_err(|error| Stop::failed(format!("cannot write {named}: {error}")))?;
        Ok(Output { path, file: Some(file) })
    }

    pub(super) fn is_stdout(&self) -> bool {
        self.file.is_none()
    }

    /// The folder that it is in.
    pub(super) fn folder(&self) -> PathBuf {
        if self.is_stdout() {
            return std::env::temp_dir();
        }
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.map_or(PathBuf::from("."), Path::to_owned)
    }

    /// Removes what is in it.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn begin(&self) -> io::Result<Box<dyn Write>> {
        let Some(file) = &self.file else { return Ok(Box::new(io::stdout().lock())) };
        // A pipe or a device has nothing to remove.
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        Ok(Box::new(file.try_clone()?))
    }
}

/// The files that a recording is read from.
pub(super) fn files_of(path: &Path, source: &Source) -> Vec<PathBuf> {
    match source {
        Source::Stream(_) => vec![path.to_owned()],
        Source::Folder(folder) => folder.files().to_vec(),
    }
}
