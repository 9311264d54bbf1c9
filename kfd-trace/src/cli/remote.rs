//! Options of the commands that read a running daemon, as curl has them.

use super::values::max_time;
use crate::remote::{AccessOptions, Login, Secret};
use clap::Args;
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

/// The daemon, and how it is reached.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Daemon")]
pub struct RemoteArgs {
    /// Show what the running daemon at this URL knows, as any user, instead of this machine: http://node1:20200, or
    /// https://; a path before the daemon's own is kept. Proxies of the environment are not used.
    #[arg(long, value_name = "URL", value_parser = secret, group = "daemon")]
    url: Option<Secret>,
    #[command(flatten)]
    way: WayArgs,
}

/// How a daemon is reached. It is for the group `daemon`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Daemon")]
pub struct WayArgs {
    /// User and password. A password here, or in the URL, can be read by all users of this machine in /proc: better is
    /// --password-file, or the variable KFD_TRACE_PASSWORD; without any it is asked for on the terminal.
    #[arg(long, short, value_name = "USER[:PASSWORD]", value_parser = user, requires = "daemon")]
    user: Option<Login>,
    /// The password: the first line of this file.
    #[arg(long, value_name = "FILE", requires = "daemon")]
    password_file: Option<PathBuf>,
    /// Trust the authorities in this file (PEM), and servers whose own certificate is in it [default: the system's
    /// authorities, as in /etc/ssl/certs].
    #[arg(long, value_name = "FILE", requires = "daemon")]
    cacert: Option<PathBuf>,
    /// Show the daemon this certificate (PEM).
    #[arg(long, short = 'E', value_name = "FILE", requires = "daemon")]
    cert: Option<PathBuf>,
    /// The certificate's key (PEM) [default: it is in the file of --cert].
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Do not verify the daemon's certificate: another server can answer in its place, and gets the password.
    #[arg(long, short = 'k', requires = "daemon", conflicts_with = "cacert")]
    insecure: bool,
    /// Give an answer up after so many seconds: 10, 0.5, 1m. A connection that is not accepted is given up after 5s.
    #[arg(long, value_name = "SECONDS", value_parser = max_time, default_value = "10", requires = "daemon")]
    max_time: Duration,
}

/// A message never has it.
#[expect(clippy::unnecessary_wraps, reason = "it is a value parser of clap")]
pub(super) fn secret(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text.to_owned()))
}

#[expect(clippy::unnecessary_wraps, reason = "it is a value parser of clap")]
fn user(text: &str) -> Result<Login, Infallible> {
    Ok(Login::of_option(text))
}

impl RemoteArgs {
    /// `None` without --url.
    #[must_use]
    pub fn access(&self) -> Option<AccessOptions> {
        self.url.as_ref().map(|url| self.access_to(url))
    }

    /// The same of another option's URL.
    #[must_use]
    pub fn access_to(&self, url: &Secret) -> AccessOptions {
        self.way.access_to(url)
    }
}

impl WayArgs {
    /// Without a URL: for [`AccessOptions::each`].
    #[must_use]
    pub fn access(&self) -> AccessOptions {
        self.access_to(&Secret::new(String::new()))
    }

    fn access_to(&self, url: &Secret) -> AccessOptions {
        AccessOptions {
            url: url.clone(),
            user: self.user.clone(),
            password_file: self.password_file.clone(),
            cacert: self.cacert.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            insecure: self.insecure,
            max_time: self.max_time,
        }
    }
}
