//! Why a daemon could not be read: what, where, and what to do.

use super::access::Access;
use crate::runtime::exit::{NOTHING_TO_TRACE, Stop, USAGE};
use crate::text::escape;
use std::error::Error as StdError;
use std::io;
use std::time::Duration;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error as TlsError};

/// Characters of a foreign text in a message.
const LONGEST: usize = 200;

/// The port of the daemon, where none is chosen.
const PORT: u16 = 20200;

/// Why there is no document.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    NameNotFound(String),
    Refused,
    /// No address accepts a connection in this time.
    NoConnection(Duration),
    Unreachable(String),
    /// Nothing, or not all, came in this time.
    Silent(Duration),
    Tls(TlsError),
    Broken(String),
    NotHttp,
    /// With the reason that the body gives.
    Status(u16, Option<String>),
    /// The API's own answer that there is nothing to trace, and why.
    NotTraced(String),
    /// The API's own answer that a parameter is wrong, and why.
    BadRequest(String),
    /// A daemon of a version that does not have it.
    NoSuchDocument(&'static str),
    /// To this place, which is not asked.
    Redirect(String),
    /// More bytes than this.
    TooLarge(usize),
    /// It is no document of the API.
    NotTheApi(String),
    /// `schema` of a document.
    OtherVersion(u64),
}

impl Failure {
    pub(super) fn of_io(error: &io::Error) -> Self {
        match tls(error) {
            Some(error) => Failure::Tls(error.clone()),
            None => Failure::Broken(error.to_string()),
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
    pub(super) fn of_http(error: hyper::Error) -> Self {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
        while let Some(one) = cause {
            if let Some(error) = one.downcast_ref::<io::Error>() {
                return Failure::of_io(error);
            }
            cause = one.source();
        }
        if error.is_parse() { Failure::NotHttp } else { Failure::Broken(error.to_string()) }
    }

    /// There is a daemon, and it has nothing to trace.
    #[must_use]
    pub fn not_traced(&self) -> Option<&str> {
        match self {
            Failure::NotTraced(why) => Some(why),
            _ => None,
        }
    }

    /// What it is, in a few words, safe for a terminal.
    #[must_use]
    pub fn what(&self) -> String {
        escape::terminal(&match self {
            Failure::NameNotFound(why) => format!("its name is not found: {}", short(why)),
            Failure::Refused => "it refuses the connection".to_owned(),
            Failure::NoConnection(time) => format!("it accepts no connection within {}s", seconds(*time)),
            Failure::Unreachable(why) => format!("it cannot be reached: {}", short(why)),
            Failure::Silent(time) => format!("it does not answer within {}s", seconds(*time)),
            Failure::Tls(error) => tls_words(error),
            Failure::Broken(why) => format!("the connection broke: {}", short(why)),
            Failure::NotHttp => "it does not speak HTTP".to_owned(),
            Failure::Status(401, _) => "it refuses the login (401)".to_owned(),
            Failure::Status(403, _) => "it denies access (403)".to_owned(),
            Failure::Status(404, _) => "no kfd-trace daemon is there (404)".to_owned(),
            Failure::Status(421, _) => "it does not answer for this host name (421)".to_owned(),
            Failure::Status(429, _) => "it has too many requests (429)".to_owned(),
            Failure::NotTraced(why) => format!("nothing is traced there: {}", short(why)),
            Failure::BadRequest(why) => format!("it refuses the request: {}", short(why)),
            Failure::NoSuchDocument(path) => format!("its version of kfd-trace has no {path}"),
            Failure::Status(503, None) => "it is not ready (503)".to_owned(),
            Failure::Status(status, Some(why)) => format!("it answers with status {status}: {}", short(why)),
            Failure::Status(status, None) => format!("it answers with status {status}"),
            Failure::Redirect(place) => format!("it redirects to {}, which is not followed", short(place)),
            Failure::TooLarge(bytes) => format!("its answer is larger than {} MiB", bytes >> 20),
            Failure::NotTheApi(why) => {
                format!("its answer is no document of kfd-trace's API: {}", short(why))
            }
            Failure::OtherVersion(version) => {
                format!("it has version {version} of the API, and this is for 1")
            }
        })
    }

    /// What to do about it.
    fn advice(&self, access: &Access) -> String {
        let target = &access.target;
        match self {
            Failure::NameNotFound(_) => "check the name in the URL".to_owned(),
            Failure::Refused if target.port.is_none() => {
                format!("give the daemon's port, as in {}:{PORT}", target.host)
            }
            Failure::Refused => {
                "start the daemon there with --web.listen-address, or check the port".to_owned()
            }
            Failure::NoConnection(_) | Failure::Unreachable(_) => {
                "check the address, the network and firewalls".to_owned()
            }
            Failure::Silent(_) => "raise --max-time, or look whether the daemon hangs".to_owned(),
            Failure::Tls(error) => tls_advice(error, access),
            Failure::Broken(_) | Failure::NotHttp if !target.tls => {
                "if it has TLS, begin the URL with https://".to_owned()
            }
            Failure::Broken(_) | Failure::NotHttp => {
                "check the port; the daemon's log may show why".to_owned()
            }
            Failure::Status(401, _) if access.login.is_none() => "give a user by --user NAME".to_owned(),
            Failure::Status(401, _) => "check user and password".to_owned(),
            Failure::Status(403, _) => "ask who runs it, or its reverse proxy".to_owned(),
            Failure::Status(404, _) | Failure::NotTheApi(_) => {
                "check port and path: the URL is that of the daemon's page".to_owned()
            }
            Failure::BadRequest(_) => "check the options".to_owned(),
            Failure::NoSuchDocument(_) => "upgrade it, or run this command there".to_owned(),
            Failure::Status(421, _) => {
                format!("start the daemon with --web.allowed-host {}, or give its address", target.host)
            }
            Failure::Status(429, _) => {
                "ask less often, or raise rate_limit in its web configuration".to_owned()
            }
            Failure::NotTraced(_) | Failure::Status(503, None) => "see `kfd-trace status` there".to_owned(),
            Failure::Status(503, Some(_)) => "check the daemon, or the reverse proxy before it".to_owned(),
            Failure::Status(..) => "the daemon's log may show why".to_owned(),
            Failure::Redirect(_) => "give the place where the daemon is as the URL".to_owned(),
            Failure::TooLarge(_) => {
                "that is no answer of a daemon, or of one with too many queues".to_owned()
            }
            Failure::OtherVersion(_) => "use the kfd-trace of that node's version".to_owned(),
        }
    }

    /// What it is, and what to do about it.
    #[must_use]
    pub fn advised(&self, access: &Access) -> String {
        format!("{}; {}", self.what(), self.advice(access))
    }

    /// One line and an exit code.
    #[must_use]
    pub fn stop(&self, access: &Access) -> Stop {
        let line = format!("{}: {}", access.target, self.advised(access));
        match self {
            Failure::NotTraced(_) => Stop { code: NOTHING_TO_TRACE, line },
            Failure::BadRequest(_) => Stop { code: USAGE, line },
            _ => Stop::failed(line),
        }
    }
}

/// Also of an error that an I/O error is about.
fn tls(error: &io::Error) -> Option<&TlsError> {
    let inner = error.get_ref()?;
    inner.downcast_ref::<TlsError>().or_else(|| inner.downcast_ref::<io::Error>().and_then(tls))
}

/// Also where an authority of the same name is trusted.
fn is_of_another(error: &CertificateError) -> bool {
    matches!(error, CertificateError::UnknownIssuer | CertificateError::BadSignature)
}

fn is_out_of_time(error: &CertificateError) -> bool {
    matches!(
        error,
        CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
    )
}

fn tls_words(error: &TlsError) -> String {
    match error {
        TlsError::InvalidCertificate(error) if is_of_another(error) => {
            "its certificate is signed by no trusted authority".to_owned()
        }
        TlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate is not for this name".to_owned(),
        TlsError::InvalidCertificate(error) if is_out_of_time(error) => {
            "its certificate has expired, or is not valid yet".to_owned()
        }
        TlsError::InvalidCertificate(error) => {
            format!("its certificate is refused: {}", short(&error.to_string()))
        }
        TlsError::InvalidMessage(_) => "it does not speak TLS".to_owned(),
        TlsError::AlertReceived(alert) if wants_a_certificate(*alert) => {
            "it refuses this client's certificate, or that there is none".to_owned()
        }
        error => format!("TLS failed: {}", short(&error.to_string())),
    }
}

fn wants_a_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::AccessDenied
            | AlertDescription::HandshakeFailure
            | AlertDescription::DecryptError
    )
}

fn tls_advice(error: &TlsError, access: &Access) -> String {
    let trust = access.trust.as_ref();
    match error {
        TlsError::InvalidCertificate(error) if is_of_another(error) => {
            let of = trust.map_or_else(String::new, |trust| format!(" (trusted are {})", trust.of));
            format!("give the authority that signed it by --cacert FILE{of}")
        }
        TlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "use a name that it has".to_owned(),
        TlsError::InvalidCertificate(error) if is_out_of_time(error) => {
            "renew it there, or check this machine's clock".to_owned()
        }
        TlsError::InvalidMessage(_) => "begin the URL with http://".to_owned(),
        TlsError::AlertReceived(alert) if wants_a_certificate(*alert) => {
            if trust.is_some_and(|trust| trust.has_cert) {
                "check --cert: the daemon's client_ca_file must have who signed it".to_owned()
            } else {
                "give one by --cert FILE and --key FILE".to_owned()
            }
        }
        _ => "the daemon's log may show why".to_owned(),
    }
}

fn short(text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST).chain(['…']).collect()
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}
