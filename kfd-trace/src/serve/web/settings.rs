//! The configuration in force: read at the start, and again when one of its files changes.
//!
//! In: the path of the configuration. Out: [`Settings`], and new ones when the files change. Who reads the files
//! ([`SettingsSource`]) need not be who serves by them: [`Files`] goes from one to the other.

use super::config::{self, ClientAuth, Config, Pem};
use super::rate::{Limiter, RateLimit};
use super::tls;
use super::users::Users;
use crate::attribute::regular_file;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;

/// Interval between checks of the files.
const LOOK: Duration = Duration::from_secs(1);

/// A larger file is no configuration.
const LONGEST: u64 = 1 << 20;

/// What applies to each connection and request. Without a configuration: plain HTTP for every client.
#[derive(Default)]
pub struct Settings {
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) clients: ClientAuth,
    /// Only certificates with certain names are accepted.
    client_names: bool,
    pub(super) headers: HeaderMap,
    pub(super) users: Option<Users>,
    /// Requests of all clients together.
    pub(super) rate: Option<Limiter>,
    /// What of the configuration has another effect than its text suggests, a line each.
    notes: Vec<String>,
}

impl Settings {
    /// `https` or `http`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Whether clients must authenticate. By a certificate that anybody can make they do not.
    pub(super) fn asks_who(&self) -> bool {
        self.clients == ClientAuth::Required || self.users.is_some()
    }

    /// Passwords that were right under `old` are known, as far as their hashes are the same; and so are the requests that
    /// its limit counted.
    pub(super) fn remember(&mut self, old: &Settings) {
        if let (Some(users), Some(before)) = (&mut self.users, &old.users) {
            users.remember(before);
        }
        if let (Some(rate), Some(before)) = (&mut self.rate, &old.rate) {
            rate.remember(before);
        }
    }

    /// Logs what of the configuration in this file has another effect than its text suggests.
    fn warn(&self, path: &Path) {
        for note in &self.notes {
            log::warn!("{}: {note}", path.display());
        }
    }

    /// Why these settings may not replace `old` without a restart. A half-written file looks like one that
    /// requires less.
    fn opens(&self, old: &Settings) -> Option<String> {
        if old.tls.is_some() && self.tls.is_none() {
            Some("it has no tls_server_config any more".to_owned())
        } else if self.clients < old.clients {
            let (new, old) = (self.clients.name(), old.clients.name());
            Some(format!("its client_auth_type was {old} and is {new}, which keeps fewer clients out"))
        } else if old.client_names && !self.client_names {
            Some("it has no client_allowed_sans any more".to_owned())
        } else if old.users.is_some() && self.users.is_none() {
            Some("it has no basic_auth_users any more".to_owned())
        } else if old.rate.is_some() && self.rate.is_none() {
            Some("it has no rate_limit any more".to_owned())
        } else {
            None
        }
    }
}

/// What was read: the configuration's text, and the files that it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    path: PathBuf,
    text: String,
    pems: BTreeMap<PathBuf, Vec<u8>>,
}

impl Files {
    /// # Errors
    /// One line: the file, what is wrong.
    pub fn settings(&self) -> Result<Settings, String> {
        let config = config::parse(&self.text, &self.path)?;
        let read = |path: &Path| self.pems.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into());
        built(config, read).map_err(|why| format!("{}: {why}", self.path.display()))
    }
}

/// Identifies a version of a file; `None`: its metadata cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

type Stamps = Vec<(PathBuf, Option<Stamp>)>;

fn stamps<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Stamps {
    files.into_iter().map(|path| (path.clone(), stamp(path))).collect()
}

fn stamp(path: &Path) -> Option<Stamp> {
    fs::metadata(path).ok().map(|file| Stamp {
        device: file.dev(),
        inode: file.ino(),
        length: file.len(),
        modified: (file.mtime(), file.mtime_nsec()),
        changed: (file.ctime(), file.ctime_nsec()),
    })
}

/// A configuration that was read, and is good.
pub struct Loaded {
    pub settings: Settings,
    pub files: Files,
}

/// The configuration's files, with their stamps when they were last read.
pub struct SettingsSource {
    path: PathBuf,
    /// When read; the first one is the configuration itself.
    read: Stamps,
    /// When last checked.
    seen: Stamps,
    /// What was read is in force.
    good: bool,
    /// The last message about one that is not in force.
    reported: Option<String>,
}

impl SettingsSource {
    /// Reads it for the first time.
    ///
    /// # Errors
    /// One line: the file, what is wrong.
    pub fn open(path: &Path) -> Result<(Self, Loaded), String> {
        let mut source =
            SettingsSource { path: path.to_owned(), read: vec![], seen: vec![], good: true, reported: None };
        let loaded = source.load()?;
        loaded.settings.warn(path);
        source.seen.clone_from(&source.read);
        Ok((source, loaded))
    }

    fn load(&mut self) -> Result<Loaded, String> {
        // The stamps are taken before the files are read: a change in between shows at the next check.
        self.read = stamps([&self.path]);
        let text = text(&self.path)?;
        let config = config::parse(&text, &self.path)?;
        let named = files(&config);
        self.read.extend(stamps(named.iter().copied()));
        let (mut pems, mut failed) = (BTreeMap::new(), BTreeMap::new());
        for path in named {
            match bytes(path) {
                Ok(bytes) => drop(pems.insert(path.clone(), bytes)),
                Err(error) => drop(failed.insert(path.clone(), error.to_string())),
            }
        }
        let read = |path: &Path| match pems.get(path) {
            Some(bytes) => Ok(bytes.clone()),
            None => Err(io::Error::other(failed.get(path).cloned().unwrap_or_default())),
        };
        let settings = built(config, read).map_err(|why| format!("{}: {why}", self.path.display()))?;
        Ok(Loaded { settings, files: Files { path: self.path.clone(), text, pems } })
    }

    /// Whether to read them: they differ from those in force, and are not being written right now.
    fn is_due(&mut self) -> bool {
        let now = stamps(self.read.iter().map(|(path, _)| path));
        let settled = now == self.seen;
        let changed = now != self.read;
        self.seen = now;
        // An invalid one may be waiting for something that no stamp shows, such as a free descriptor.
        settled && (changed || !self.good)
    }

    /// The settings to replace `old`, or the message about them: once, as long as it is the same.
    fn look(&mut self, old: &Settings) -> Result<Option<Loaded>, String> {
        if !self.is_due() {
            return Ok(None);
        }
        let path = self.path.display().to_string();
        let loaded = self.load().and_then(|new| match new.settings.opens(old) {
            Some(why) => Err(format!("{path}: {why}: that takes a restart")),
            None => Ok(new),
        });
        self.seen.clone_from(&self.read);
        self.good = loaded.is_ok();
        match loaded {
            Ok(new) => {
                self.reported = None;
                Ok(Some(new))
            }
            Err(line) if self.reported.as_ref() == Some(&line) => Ok(None),
            Err(line) => {
                self.reported = Some(line.clone());
                Err(line)
            }
        }
    }
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if regular_file::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)? as u64 > LONGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than a MiB"));
    }
    Ok(bytes)
}

fn text(path: &Path) -> Result<String, String> {
    let read = bytes(path).map_err(|error| error.to_string());
    let text = read.and_then(|bytes| String::from_utf8(bytes).map_err(|error| error.to_string()));
    text.map_err(|why| format!("{} cannot be read: {why}", path.display()))
}

/// The files that it names.
fn files(config: &Config) -> Vec<&PathBuf> {
    let Some(tls) = &config.tls else { return vec![] };
    let pems = [&tls.cert, &tls.key].into_iter().chain(&tls.authorities);
    pems.filter_map(|pem| if let Pem::File(path) = pem { Some(path) } else { None }).collect()
}

fn built(config: Config, read: impl Fn(&Path) -> io::Result<Vec<u8>>) -> Result<Settings, String> {
    let tls = config.tls.as_ref().map(|tls| tls::server_config(tls, config.http2, read)).transpose()?;
    let (tls, notes) = tls.unzip();
    let notes = notes.unwrap_or_default().into_iter().chain(config.rate.and_then(RateLimit::note));
    Ok(Settings {
        clients: config.tls.as_ref().map(|tls| tls.clients).unwrap_or_default(),
        client_names: config.tls.is_some_and(|tls| tls.client_names.is_some()),
        tls: tls.map(Arc::new),
        headers: config.headers,
        users: Users::new(config.users)?,
        rate: config.rate.map(Limiter::new),
        notes: notes.collect(),
    })
}

/// For who serves by files that another one reads.
///
/// # Errors
/// One line: what is wrong with them.
pub fn put_in_force(files: &Files, in_force: &watch::Sender<Arc<Settings>>) -> Result<(), String> {
    let mut settings = files.settings()?;
    settings.remember(&in_force.borrow());
    in_force.send_replace(Arc::new(settings));
    Ok(())
}

/// Checks the files, until the sender of `stop` is dropped; and gives those that replace what is
/// in force: at first `settings`. Blocks.
pub fn follow(
    mut source: SettingsSource,
    mut settings: Settings,
    stop: &Receiver<()>,
    mut replace: impl FnMut(Files),
) {
    let mut refused = false;
    while stop.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        match source.look(&settings) {
            Ok(None) => {}
            Ok(Some(new)) => {
                // Whoever saw the warning sees its end.
                let level = if refused { log::Level::Warn } else { log::Level::Info };
                log::log!(level, "{} was read again and is in force", source.path.display());
                refused = false;
                new.settings.warn(&source.path);
                replace(new.files);
                settings = new.settings;
            }
            Err(line) => {
                refused = true;
                log::warn!("{line}; what was read before stays in force");
            }
        }
    }
}

#[cfg(test)]
mod tests;
