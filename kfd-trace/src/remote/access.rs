//! From options, as curl has them, to how a daemon is reached.

use super::login::{Login, PASSWORD, Secret, login};
use super::target::Target;
use super::trust::{Trust, TrustOptions};
use crate::runtime::exit::Stop;
use crate::runtime::password;
use crate::runtime::stderr::say;
use std::path::PathBuf;
use std::time::Duration;

/// How a daemon is reached.
#[derive(Clone, Debug)]
pub struct Access {
    pub target: Target,
    /// User and password.
    pub login: Option<(String, Secret)>,
    /// `None` for http.
    pub trust: Option<Trust>,
    /// Of a document, from the request to its last byte.
    pub max_time: Duration,
    /// Any server is trusted.
    pub insecure: bool,
}

/// What is requested.
#[derive(Clone, Debug)]
pub struct AccessOptions {
    /// It may have a user and a password.
    pub url: Secret,
    pub user: Option<Login>,
    pub password_file: Option<PathBuf>,
    /// Authorities that are trusted, instead of the system's.
    pub cacert: Option<PathBuf>,
    /// Of this client.
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Any server is trusted.
    pub insecure: bool,
    /// Of a document.
    pub max_time: Duration,
}

/// Of a daemon at the default address: without an answer, there is none.
const HERE: Duration = Duration::from_secs(2);

impl Access {
    /// The daemon at the default address of this machine.
    #[must_use]
    pub fn here() -> Self {
        let target =
            Target { tls: false, host: "127.0.0.1".to_owned(), port: Some(20200), prefix: String::new() };
        Access { target, login: None, trust: None, max_time: HERE, insecure: false }
    }

    /// Reads the files, and asks for the password where it is given nowhere. Warns of what others could read.
    ///
    /// # Errors
    /// One line without the password.
    pub fn open(options: &AccessOptions) -> Result<Self, Stop> {
        let (target, of_url) = Target::parse(options.url.text())
            .map_err(|why| Stop::usage(format!("the URL is refused: {why}; give it as http://HOST:PORT")))?;
        let trust = options.trust(&target)?;
        let environment = std::env::var(PASSWORD).ok();
        let file = options.password_file.as_deref();
        let ask = |user: &str| {
            let prompt =
                format!("Password of {} at {}: ", crate::text::escape::terminal(user), target.place());
            Ok(password::ask(&prompt)?.map(Secret::new))
        };
        let login = login(options.user.clone(), of_url, file, environment, ask)?;
        for warning in warnings(&target, login.is_some(), options.insecure) {
            say(warning);
        }
        Ok(Access { target, login, trust, max_time: options.max_time, insecure: options.insecure })
    }
}

impl AccessOptions {
    /// The same way to each of many nodes: files are read and a password is asked for once for http and once for https.
    ///
    /// # Errors
    /// As [`Access::open`].
    pub fn each(&self, urls: &[String]) -> Result<Vec<Access>, Stop> {
        let mut opened: Vec<Access> = Vec::new();
        let mut all = Vec::with_capacity(urls.len());
        for url in urls {
            let (target, _) = Target::parse(url).map_err(|why| {
                Stop::failed(format!("the target {url:?} is refused: {why}; give it as HOST:PORT"))
            })?;
            let way = match opened.iter().find(|known| known.target.tls == target.tls) {
                Some(known) => known.clone(),
                None => {
                    let way = Access::open(&AccessOptions { url: Secret::new(url.clone()), ..self.clone() })?;
                    opened.push(way.clone());
                    way
                }
            };
            all.push(Access { target, ..way });
        }
        Ok(all)
    }

    /// `None` for http.
    fn trust(&self, target: &Target) -> Result<Option<Trust>, Stop> {
        if target.tls {
            return Trust::read(&TrustOptions {
                authorities: self.cacert.as_deref(),
                cert: self.cert.as_deref(),
                key: self.key.as_deref(),
                insecure: self.insecure,
            })
            .map(Some);
        }
        let given = [
            ("--cacert", self.cacert.is_some()),
            ("--cert", self.cert.is_some()),
            ("--insecure", self.insecure),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Stop::usage(format!(
                "{option} is for https, and the URL is {target}: begin it with https://, or leave the option out"
            ))),
            None => Ok(None),
        }
    }
}

fn warnings(target: &Target, has_password: bool, insecure: bool) -> Vec<String> {
    let clear = has_password && !target.tls && !target.is_on_this_machine();
    let warnings = [
        (
            clear,
            format!(
                "warning: the password is sent to {target} without encryption: it can be read on the network"
            ),
        ),
        (
            insecure,
            format!(
                "warning: the certificate of {target} is not verified (--insecure): it may be another server"
            ),
        ),
    ];
    warnings.into_iter().filter(|(holds, _)| *holds).map(|(_, line)| line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> AccessOptions {
        AccessOptions {
            url: Secret::new(url.to_owned()),
            user: None,
            password_file: None,
            cacert: None,
            cert: None,
            key: None,
            insecure: false,
            max_time: HERE,
        }
    }

    #[test]
    fn what_is_for_https_is_refused_for_http() {
        let file = Some(PathBuf::from("/nowhere"));
        let http = options("node1:20200");
        let with = [
            ("--cacert", AccessOptions { cacert: file.clone(), ..http.clone() }),
            ("--cert", AccessOptions { cert: file, ..http.clone() }),
            ("--insecure", AccessOptions { insecure: true, ..http.clone() }),
        ];
        for (option, options) in with {
            let stop = Access::open(&options).expect_err(option);
            assert!(stop.code == 2 && stop.line.starts_with(option), "{stop:?}");
        }
        assert!(Access::open(&http).expect("access").trust.is_none());
    }

    #[test]
    fn each_node_of_a_fleet_is_reached_in_the_same_way() {
        let user = Some(Login::of_option("ann:s3cret"));
        let options = AccessOptions { user, ..options("-") };
        let urls = ["http://127.0.0.1:1", "https://node2", "http://localhost:3"].map(str::to_owned);
        let all = options.each(&urls).expect("access");
        let ways: Vec<_> =
            all.iter().map(|access| (access.target.to_string(), access.trust.is_some())).collect();
        assert_eq!(ways, [(urls[0].clone(), false), (urls[1].clone(), true), (urls[2].clone(), false)]);
        assert!(all.iter().all(|access| access.login.as_ref().is_some_and(|(name, _)| name == "ann")));
        let stop = options.each(&["http://no de".to_owned()]).expect_err("a space");
        assert!(stop.line.contains("no de") && stop.line.contains("space"), "{stop:?}");
    }

    #[test]
    fn files_that_are_missing_and_bad_urls_are_named() {
        let nowhere = Some(PathBuf::from("/nowhere/ca.pem"));
        let stop = Access::open(&AccessOptions { cacert: nowhere, ..options("https://node1") })
            .expect_err("no file");
        assert!(
            stop.code == 1 && stop.line.starts_with("/nowhere/ca.pem cannot be read: No such file"),
            "{stop:?}"
        );
        let stop = Access::open(&options("ftp://ann:s3cret@node1")).expect_err("no URL");
        assert!(stop.code == 2 && !stop.line.contains("s3cret"), "{stop:?}");
    }

    #[test]
    fn what_others_can_read_or_pretend_is_warned_of() {
        let lines = |url: &str, password, insecure| {
            let target = Target::parse(url).expect(url).0;
            warnings(&target, password, insecure).len()
        };
        assert_eq!(lines("http://node1", true, false), 1);
        assert_eq!(lines("https://node1", true, true), 1);
        assert_eq!(
            lines("http://node1", false, false)
                + lines("https://node1", true, false)
                + lines("http://localhost", true, false),
            0
        );
    }
}
