use super::*;
use crate::serve::web::tests::authority::Authority;
use crate::serve::web::users::tests::hash;
use headers::authorization::Authorization;
use std::fs::write;
use std::process::Command;
use tempfile::TempDir;
use tokio::sync::Semaphore;

const TLS: &str = "tls_server_config:\n  cert_file: web.crt\n  key_file: web.key\n";

struct Folder(TempDir);

impl Folder {
    /// With a certificate, and this text as its configuration.
    fn new(text: &str) -> Self {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.write("web.yml", text);
        folder.renew();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        // Another file: its stamp differs, however coarse the clock is.
        write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path(name)).unwrap();
    }

    fn renew(&self) {
        let authority = Authority::new("ca");
        let pair = authority.server();
        self.write("web.crt", &pair.cert);
        self.write("web.key", &pair.key);
        self.write("ca.crt", &authority.pem());
    }

    fn open(&self) -> (SettingsSource, Settings) {
        let (source, loaded) =
            SettingsSource::open(&self.path("web.yml")).unwrap_or_else(|line| panic!("{line}"));
        (source, loaded.settings)
    }

    fn refused(&self) -> String {
        SettingsSource::open(&self.path("web.yml")).map(|_| ()).expect_err("refused")
    }
}

fn alice() -> String {
    format!("basic_auth_users:\n  alice: {}\n", hash("wonder"))
}

fn mutual() -> String {
    format!("{TLS}  client_ca_file: ca.crt\n  client_auth_type: RequireAndVerifyClientCert\n")
}

#[test]
fn nothing_is_read_again_that_did_not_change() {
    let folder = Folder::new(TLS);
    let (mut source, settings) = folder.open();
    assert_eq!(settings.scheme(), "https");
    for _ in 0..3 {
        assert!(source.look(&settings).unwrap().is_none());
    }
}

#[test]
fn each_file_is_read_again_when_it_changed_and_stays_so() {
    for name in ["web.yml", "web.crt", "ca.crt"] {
        let folder = Folder::new(&mutual());
        let (mut source, settings) = folder.open();
        if name == "web.yml" {
            folder.write(name, &format!("{}{}", mutual(), alice()));
        } else {
            folder.renew();
        }
        assert!(source.look(&settings).unwrap().is_none(), "it may still be written");
        let new = source.look(&settings).unwrap().expect(name).settings;
        assert_eq!(new.users.is_some(), name == "web.yml");
        assert!(source.look(&new).unwrap().is_none());
    }
}

#[test]
fn a_bad_one_is_said_once_and_a_good_one_after_it_is_taken() {
    let folder = Folder::new(&alice());
    let (mut source, settings) = folder.open();
    folder.write("web.yml", "tls: yes\n");
    assert!(source.look(&settings).unwrap().is_none());
    let error = source.look(&settings).map(|_| ()).expect_err("bad");
    assert!(error.contains("web.yml: line 1: ") && error.contains("tls"), "{error}");
    for _ in 0..3 {
        assert!(source.look(&settings).unwrap().is_none(), "reported before");
    }
    folder.write("web.yml", "bad: again\n");
    source.look(&settings).unwrap();
    assert!(source.look(&settings).map(|_| ()).expect_err("another").contains("bad"));
    folder.write("web.yml", &format!("{TLS}{}", alice()));
    source.look(&settings).unwrap();
    assert!(source.look(&settings).unwrap().expect("good").settings.tls.is_some());
}

#[test]
fn a_certificate_without_its_key_waits_for_it() {
    let folder = Folder::new(TLS);
    let (mut source, settings) = folder.open();
    let pair = Authority::new("ca").server();
    folder.write("web.crt", &pair.cert);
    source.look(&settings).unwrap();
    assert!(source.look(&settings).map(|_| ()).expect_err("no pair").contains("web.crt with "));
    folder.write("web.key", &pair.key);
    source.look(&settings).unwrap();
    assert!(source.look(&settings).unwrap().is_some());
}

#[test]
fn nothing_that_keeps_others_out_is_taken_away() {
    let limit = "rate_limit: {interval: 1s, burst: 9}\n";
    let whole = format!("{}  client_allowed_sans: [gpu]\n{}{limit}", mutual(), alice());
    let opened = [
        (String::new(), "tls_server_config"),
        (alice(), "tls_server_config"),
        (format!("{TLS}{}", alice()), "client_auth_type"),
        (
            format!(
                "{TLS}  client_auth_type: RequireAnyClientCert\n  client_allowed_sans: [gpu]\n{}",
                alice()
            ),
            "client_auth_type",
        ),
        (format!("{}{}", mutual(), alice()), "client_allowed_sans"),
        (format!("{}  client_allowed_sans: [gpu]\n", mutual()), "basic_auth_users"),
        (whole.replace(limit, ""), "rate_limit"),
    ];
    for (text, words) in opened {
        let folder = Folder::new(&whole);
        let (mut source, settings) = folder.open();
        folder.write("web.yml", &text);
        source.look(&settings).unwrap();
        let error = source.look(&settings).map(|_| ()).expect_err(words);
        assert!(error.contains(words) && error.contains("restart"), "{error}");
        folder.write("web.yml", &whole);
        source.look(&settings).unwrap();
        assert!(source.look(&settings).unwrap().is_some());
    }
    // A file that was removed and created again.
    let folder = Folder::new(&whole);
    let (mut source, settings) = folder.open();
    fs::remove_file(folder.path("web.yml")).unwrap();
    source.look(&settings).unwrap();
    assert!(source.look(&settings).map(|_| ()).expect_err("gone").contains("cannot be read"));
    folder.write("web.yml", &whole);
    source.look(&settings).unwrap();
    assert!(source.look(&settings).unwrap().is_some());
}

#[test]
fn no_weaker_type_of_client_certificates_is_taken() {
    let types = [
        "NoClientCert",
        "RequestClientCert",
        "VerifyClientCertIfGiven",
        "RequireAnyClientCert",
        "RequireAndVerifyClientCert",
    ];
    let of = |name| {
        let authority = if name == types[4] { "  client_ca_file: ca.crt\n" } else { "" };
        let folder = Folder::new(&format!("{TLS}  client_auth_type: {name}\n{authority}"));
        folder.open().1
    };
    let settings = types.map(of);
    for (old, in_force) in settings.iter().enumerate() {
        for (new, settings) in settings.iter().enumerate() {
            let why = settings.opens(in_force);
            assert_eq!(why.is_some(), new < old, "{} after {}", types[new], types[old]);
            assert!(why.is_none_or(|why| why.contains(types[new]) && why.contains(types[old])));
        }
    }
    // Anybody can make a certificate.
    assert_eq!(settings.each_ref().map(Settings::asks_who), [false, false, false, false, true]);
}

#[test]
fn what_is_read_differently_than_it_looks_is_noted() {
    let notes = |text: &str| Folder::new(text).open().1.notes;
    assert!(notes(&mutual()).is_empty() && notes("").is_empty());
    let two = notes(&format!(
        "{TLS}  client_auth_type: VerifyClientCertIfGiven\n  curve_preferences: [CurveP521, X25519]\n"
    ));
    assert_eq!(two.len(), 2, "{two:?}");
    assert!(notes("rate_limit: {interval: 1s, burst: 0}")[0].contains("burst of 0"));
    assert!(two[0].contains("left out") && two[1].contains("without client_ca_file"), "{two:?}");
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = Folder::new("");
    let missing = SettingsSource::open(&folder.path("none.yml")).map(|_| ()).expect_err("missing");
    assert!(missing.contains("none.yml cannot be read: "), "{missing}");
    let long = format!("# {}\n", "x".repeat(1 << 20));
    folder.write("web.yml", &long);
    assert!(folder.refused().contains("longer than a MiB"));
    write(folder.path("web.yml"), [0xff, 0xfe, 0xff]).unwrap();
    assert!(folder.refused().contains("web.yml cannot be read: "));
    folder.write("web.yml", TLS);
    fs::remove_file(folder.path("web.key")).unwrap();
    let error = folder.refused();
    assert!(error.contains("web.yml: key ") && error.contains("web.key cannot be read"), "{error}");
}

#[test]
fn only_regular_files_are_read() {
    let folder = Folder::new(TLS);
    for (name, text) in [("web.yml", ""), ("web.key", TLS)] {
        folder.write("web.yml", text);
        fs::remove_file(folder.path(name)).unwrap();
        assert!(Command::new("mkfifo").arg(folder.path(name)).status().unwrap().success());
        let line = folder.refused();
        assert!(line.contains(name) && line.contains("it is not a regular file"), "{line}");
        fs::remove_file(folder.path(name)).unwrap();
    }
}

#[tokio::test]
async fn a_password_that_was_right_is_known_after_a_change_of_the_file() {
    let folder = Folder::new(&alice());
    let (mut source, old) = folder.open();
    let wonder = Authorization::basic("alice", "wonder");
    assert!(old.users.as_ref().unwrap().admit(&wonder, &Arc::new(Semaphore::new(1))).await);
    folder.write("web.yml", &format!("{}# changed\n", alice()));
    let looks = [source.look(&old).unwrap(), source.look(&old).unwrap()];
    let files = looks.into_iter().flatten().next().expect("read again").files;
    let (in_force, settings) = watch::channel(Arc::new(old));
    put_in_force(&files, &in_force).unwrap();
    let new = Arc::clone(&settings.borrow());
    let new = new.users.as_ref().expect("users");
    // Nobody has a turn: a password that must be checked is not.
    let none = Arc::new(Semaphore::new(1));
    none.close();
    assert!(new.admit(&wonder, &none).await);
    assert!(!new.admit(&Authorization::basic("alice", "other"), &none).await);
}

#[test]
fn who_serves_by_the_files_needs_none_of_them() {
    let folder = Folder::new(&format!("{}{}", mutual(), alice()));
    let (_, loaded) = SettingsSource::open(&folder.path("web.yml")).unwrap_or_else(|line| panic!("{line}"));
    let passed = serde_json::to_string(&loaded.files).unwrap();
    drop(folder);
    let files: Files = serde_json::from_str(&passed).unwrap();
    let settings = files.settings().unwrap_or_else(|line| panic!("{line}"));
    assert!(settings.tls.is_some() && settings.clients == ClientAuth::Required && settings.users.is_some());
}
