//! User and password: where they come from, and that they are shown nowhere.

use crate::runtime::exit::Stop;
use percent_encoding::percent_decode_str;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Environment variable with a password.
pub const PASSWORD: &str = "KFD_TRACE_PASSWORD";

/// A password file has at most so many bytes.
const LONGEST: u64 = 64 << 10;

/// What is not shown, not even by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub fn new(text: String) -> Self {
        Secret(text)
    }

    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A user with a password, or one that is to be asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub password: Option<Secret>,
}

impl Login {
    /// `USER:PASSWORD`, or `USER`.
    #[must_use]
    pub fn of_option(text: &str) -> Self {
        match text.split_once(':') {
            Some((user, password)) => {
                Login { user: user.to_owned(), password: Some(Secret(password.to_owned())) }
            }
            None => Login { user: text.to_owned(), password: None },
        }
    }

    /// The same of a URL.
    pub(super) fn of_url(text: &str) -> Result<Self, String> {
        let decoded = |part: &str| {
            let decoded = percent_decode_str(part).decode_utf8();
            let decoded = decoded.map_err(|_| "its user or password is not UTF-8")?.into_owned();
            // A header cannot carry it, and in a message it would steer a terminal.
            if decoded.chars().any(char::is_control) {
                return Err("its user or password has a control character");
            }
            Ok(decoded)
        };
        let Login { user, password } = Self::of_option(text);
        let password = password.map(|secret| decoded(secret.text())).transpose()?;
        Ok(Login { user: decoded(&user)?, password: password.map(Secret) })
    }
}

/// The login that counts: that of the option before that of the URL, and where it has no password the file, the
/// environment, or the answer of `ask`, which is `None` without a terminal.
///
/// # Errors
/// If the file cannot be read, there is a password and a file with another, no user, or no password.
pub(super) fn login(
    option: Option<Login>,
    url: Option<Login>,
    file: Option<&Path>,
    environment: Option<String>,
    ask: impl FnOnce(&str) -> io::Result<Option<Secret>>,
) -> Result<Option<(String, Secret)>, Stop> {
    let Some(Login { user, password }) = option.or(url) else {
        return match file {
            Some(_) => Err(Stop::usage("--password-file is for a user: give it by --user NAME")),
            None => Ok(None),
        };
    };
    let password = match (password, file) {
        (Some(_), Some(_)) => {
            return Err(Stop::usage("a password and --password-file are given: leave one of them out"));
        }
        (Some(password), None) => password,
        (None, Some(file)) => of_file(file)?,
        (None, None) => match environment {
            Some(password) => Secret(password),
            None => ask(&user)
                .map_err(|error| Stop::failed(format!("the password cannot be read from the terminal: {error}")))?
                .ok_or_else(|| {
                    Stop::usage(format!(
                        "the password of {user} is missing, and there is no terminal to ask for it: use --password-file FILE, or \
                         set {PASSWORD}"
                    ))
                })?,
        },
    };
    Ok(Some((user, password)))
}

/// The first line of a file.
fn of_file(path: &Path) -> Result<Secret, Stop> {
    let refused = |why: &dyn fmt::Display| Stop::failed(format!("--password-file {}: {why}", path.display()));
    let file = File::open(path).map_err(|error| refused(&error))?;
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).map_err(|error| refused(&error))?;
    match text.lines().next() {
        None | Some("") => Err(refused(&"its first line is empty: write the password there")),
        Some(line) => Ok(Secret(line.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn unasked(_: &str) -> io::Result<Option<Secret>> {
        panic!("nobody is to be asked")
    }

    fn known(login: Option<(String, Secret)>) -> Option<(String, String)> {
        login.map(|(user, password)| (user, password.0))
    }

    fn pair(user: &str, password: &str) -> Option<(String, String)> {
        Some((user.to_owned(), password.to_owned()))
    }

    #[test]
    fn the_nearest_password_counts() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"of file \nmore\n").expect("written");
        let of = |text: &str| Some(Login::of_option(text));
        let env = || Some("of env".to_owned());
        let get = |option, url, file| known(login(option, url, file, env(), unasked).expect("a login"));
        assert_eq!(get(of("ann:a:b"), of("url:x"), None), pair("ann", "a:b"));
        assert_eq!(get(None, of("url:x"), None), pair("url", "x"));
        assert_eq!(get(of("ann:"), None, None), pair("ann", ""));
        assert_eq!(get(of("ann"), of("url:x"), Some(file.path())), pair("ann", "of file "));
        assert_eq!(get(of("ann"), None, None), pair("ann", "of env"));
        assert_eq!(get(None, None, None), None, "the environment alone is no login");
        let asked = login(of("ann"), None, None, None, |user| Ok(Some(Secret(format!("of {user}")))));
        assert_eq!(known(asked.expect("a login")), pair("ann", "of ann"));
    }

    #[test]
    fn what_is_missing_or_twice_there_is_one_line_without_it() {
        let empty = tempfile::NamedTempFile::new().expect("a file");
        let refused = |option: &str, file: Option<&Path>| {
            let option = (!option.is_empty()).then(|| Login::of_option(option));
            login(option, None, file, None, |_| Ok(None)).expect_err("refused")
        };
        let nowhere = Path::new("/nowhere/x");
        for (stop, code, words) in [
            (refused("ann", None), 2, "the password of ann is missing"),
            (refused("ann:s3cret", Some(nowhere)), 2, "leave one of them out"),
            (refused("", Some(nowhere)), 2, "--user NAME"),
            (refused("ann", Some(nowhere)), 1, "/nowhere/x: No such file"),
            (refused("ann", Some(empty.path())), 1, "its first line is empty"),
        ] {
            assert!(stop.code == code && stop.line.contains(words), "{stop:?}");
            assert!(!stop.line.contains("s3cret"), "{stop:?}");
        }
        assert!(!format!("{:?}", Login::of_option("ann:s3cret")).contains("s3cret"));
        assert!(Login::of_url("a%1b:x").is_err() && Login::of_url("a:%ff").is_err());
    }
}
