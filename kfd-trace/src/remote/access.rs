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
        let access = options.way(target, of_url)?;
        warnings(&[&access]).into_iter().for_each(say);
        Ok(access)
    }
}

impl AccessOptions {
    /// The same way to each of many nodes: files are read and a password is asked for once for http and once for https.
    /// What is for https counts for these nodes alone, where there are any.
    ///
    /// # Errors
    /// As [`Access::open`].
    pub fn each(&self, targets: Vec<Target>) -> Result<Vec<Access>, Stop> {
        let some_tls = targets.iter().any(|target| target.tls);
        let plain = AccessOptions { cacert: None, cert: None, key: None, insecure: false, ..self.clone() };
        let mut opened: Vec<Access> = Vec::new();
        let mut all = Vec::with_capacity(targets.len());
        for target in targets {
            let way = match opened.iter().find(|known| known.target.tls == target.tls) {
                Some(known) => known.clone(),
                None => {
                    let options = if some_tls && !target.tls { &plain } else { self };
                    let way = options.way(target.clone(), None)?;
                    opened.push(way.clone());
                    way
                }
            };
            all.push(Access { target, ..way });
        }
        warnings(&all.iter().collect::<Vec<_>>()).into_iter().for_each(say);
        Ok(all)
    }

    fn way(&self, target: Target, of_url: Option<Login>) -> Result<Access, Stop> {
        let trust = self.trust(&target)?;
        let environment = std::env::var(PASSWORD).ok();
        let ask = |user: &str| {
            let prompt =
                format!("Password of {} at {}: ", crate::text::escape::terminal(user), target.place());
            Ok(password::ask(&prompt)?.map(Secret::new))
        };
        let login = login(self.user.clone(), of_url, self.password_file.as_deref(), environment, ask)?;
        Ok(Access { target, login, trust, max_time: self.max_time, insecure: self.insecure })
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

fn warnings(all: &[&Access]) -> Vec<String> {
    let named = |is: &dyn Fn(&Access) -> bool| {
        let targets: Vec<&Target> =
            all.iter().filter(|access| is(access)).map(|access| &access.target).collect();
        let (first, others) = targets.split_first()?;
        Some(match others.len() {
            0 => first.to_string(),
            1 => format!("{first} and one more"),
            more => format!("{first} and {more} more"),
        })
    };
    let clear =
        named(&|access| access.login.is_some() && !access.target.tls && !access.target.is_on_this_machine());
    let insecure = named(&|access| access.insecure && access.target.tls);
    let clear = clear.map(|who| {
        format!("warning: the password is sent to {who} without encryption: it can be read on the network")
    });
    let insecure = insecure.map(|who| {
        format!("warning: the certificate of {who} is not verified (--insecure): it may be another server")
    });
    clear.into_iter().chain(insecure).collect()
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

    fn targets(urls: &[&str]) -> Vec<Target> {
        urls.iter().map(|url| Target::parse(url).expect(url).0).collect()
    }

    #[test]
    fn each_node_of_a_fleet_is_reached_in_the_same_way() {
        let user = Some(Login::of_option("ann:s3cret"));
        let options = AccessOptions { user, insecure: true, ..options("-") };
        let urls = ["http://127.0.0.1:1", "https://node2", "http://node3", "https://node4", "http://node5"];
        let all = options.each(targets(&urls)).expect("access");
        let ways: Vec<_> =
            all.iter().map(|access| (access.target.to_string(), access.trust.is_some())).collect();
        assert_eq!(ways, urls.map(|url| (url.to_owned(), url.starts_with("https"))));
        assert!(all.iter().all(|access| access.login.as_ref().is_some_and(|(name, _)| name == "ann")));
        let lines = warnings(&all.iter().collect::<Vec<_>>());
        let words = ["sent to http://node3 and one more without", "of https://node2 and one more is not"];
        assert!(
            lines.len() == 2 && lines.iter().zip(words).all(|(line, word)| line.contains(word)),
            "{lines:?}"
        );
        let stop = options.each(targets(&urls[..1])).expect_err("no https");
        assert!(stop.line.starts_with("--insecure is for https"), "{stop:?}");
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
        let lines = |url: &str, password: bool, insecure| {
            let (target, max_time) = (Target::parse(url).expect(url).0, HERE);
            let login = password.then(|| ("ann".to_owned(), Secret::new("s3cret".to_owned())));
            warnings(&[&Access { target, login, trust: None, max_time, insecure }]).len()
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
