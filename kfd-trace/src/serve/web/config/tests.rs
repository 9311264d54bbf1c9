use super::*;
use crate::serve::web::users::tests::hash;

fn parsed(text: &str) -> Result<Config, String> {
    parse(text, Path::new("/etc/kfd/web.yml"))
}

fn good(text: &str) -> Config {
    parsed(text).unwrap_or_else(|line| panic!("{line}\n{text}"))
}

fn tls(lines: &str) -> Tls {
    good(&section(lines)).tls.expect("TLS")
}

/// A whole TLS section, with these lines added.
fn section(lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("  {}\n", line.trim())).collect();
    format!("tls_server_config:\n  cert_file: tls/web.crt\n  key_file: /keys/web.key\n{lines}")
}

#[test]
fn an_empty_file_asks_for_nothing() {
    let nothing = [
        "",
        "---\n",
        "# a comment\n",
        "tls_server_config:\n",
        "tls_server_config: {}\nbasic_auth_users: {}\n",
    ];
    for text in nothing {
        let config = good(text);
        assert!(config.tls.is_none() && config.users.is_empty() && config.headers.is_empty(), "{text:?}");
        assert!(config.http2);
    }
}

#[test]
fn paths_are_taken_from_the_folder_of_the_file() {
    let tls = tls("client_ca_file: ca.crt\nclient_auth_type: RequireAndVerifyClientCert");
    assert_eq!(tls.cert, Pem::File("/etc/kfd/tls/web.crt".into()));
    assert_eq!(tls.key, Pem::File("/keys/web.key".into()));
    assert_eq!(tls.clients, ClientAuth::Required);
    assert_eq!(tls.authorities, Some(Pem::File("/etc/kfd/ca.crt".into())));
    let beside = parse(&section(""), Path::new("web.yml")).unwrap().tls.unwrap();
    assert_eq!(beside.cert, Pem::File("tls/web.crt".into()));
}

#[test]
fn what_is_not_said_is_as_with_the_exporters() {
    let tls = tls("");
    assert_eq!((tls.min, tls.max, tls.prefer_server), (Version::Tls12, Version::Tls13, true));
    assert_eq!((tls.clients, tls.cipher_suites, tls.curves), (ClientAuth::NotAsked, None, None));
    assert_eq!((tls.authorities, tls.client_names), (None, None));
}

#[test]
fn every_key_of_tls_is_taken() {
    let given = tls(
        "client_ca: inline authority\nclient_auth_type: VerifyClientCertIfGiven\nmin_version: TLS13\nmax_version: TLS13
         cipher_suites: [A, B]\ncurve_preferences: [X25519]\nprefer_server_cipher_suites: false",
    );
    assert_eq!(given.clients, ClientAuth::IfGiven);
    assert_eq!(given.authorities, Some(Pem::Inline("inline authority".into())));
    assert_eq!((given.min, given.max, given.prefer_server), (Version::Tls13, Version::Tls13, false));
    assert_eq!(given.cipher_suites.as_deref(), Some(&["A".to_owned(), "B".to_owned()][..]));
    assert_eq!(given.curves.as_deref(), Some(&["X25519".to_owned()][..]));
    for (name, clients) in ClientAuth::NAMES {
        let authority = if clients == ClientAuth::Required { "client_ca_file: a" } else { "" };
        assert_eq!(tls(&format!("client_auth_type: '{name}'\n{authority}")).clients, clients);
    }
    let named = tls("client_auth_type: RequireAnyClientCert\nclient_allowed_sans: [b, a, '2001:DB8::1', b]");
    assert_eq!(named.client_names.unwrap().into_iter().collect::<Vec<_>>(), ["2001:db8::1", "a", "b"]);
    let inline = good("tls_server_config:\n  cert: |\n    one\n    two\n  key: secret\n").tls.unwrap();
    assert_eq!(
        (&inline.cert, &inline.key),
        (&Pem::Inline("one\ntwo\n".into()), &Pem::Inline("secret".into()))
    );
    assert!(!format!("{inline:?}").contains("secret"));
}

#[test]
fn headers_and_http2() {
    let config = good(
        "http_server_config:\n  http2: false\n  headers:\n    X-Frame-Options: deny\n    X-Content-Type-Options: nosniff
    Strict-Transport-Security: max-age=31536000\n    X-XSS-Protection: ''\n    Content-Security-Policy:\n",
    );
    assert!(!config.http2);
    let mut headers: Vec<_> =
        config.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    headers.sort_unstable();
    assert_eq!(
        headers,
        [
            ("strict-transport-security", "max-age=31536000"),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "deny")
        ]
    );
}

#[test]
fn users_with_their_hashes() {
    let users = good(&format!("basic_auth_users:\n  alice: {}\n  bob: '{}'\n", hash("a"), hash("b"))).users;
    assert_eq!(users.keys().collect::<Vec<_>>(), ["alice", "bob"]);
}

#[test]
fn a_rate_limit_has_an_interval() {
    let off = [
        "rate_limit:\n",
        "rate_limit: {burst: 5}\n",
        "rate_limit: {interval: 0, burst: 0}\n",
        "rate_limit: {interval: 0s}\n",
    ];
    for text in off {
        assert_eq!(good(text).rate, None, "{text}");
    }
    let shown = |text: &str| format!("{:?}", good(text).rate.unwrap());
    assert_eq!(shown("rate_limit: {interval: 1m30s, burst: 5}"), "RateLimit { interval: 90s, burst: 5 }");
    assert_eq!(shown("rate_limit: {interval: '1.5s'}"), "RateLimit { interval: 1.5s, burst: 0 }");
    assert_eq!(shown("rate_limit: {interval: 100ms, burst: 1}"), "RateLimit { interval: 100ms, burst: 1 }");
}

#[test]
fn what_is_unknown_or_not_supported_is_refused_with_its_name_and_line() {
    let refused = [
        ("tls_config: {}\n", 1, "tls_config"),
        ("\nrate_limit: {rate: 1}\n", 2, "rate"),
        ("rate_limit:\n  burst: -1\n", 2, ""),
        ("rate_limit:\n  interval: 5\n", 2, "`5` is no interval of rate_limit: write a number with a unit"),
        ("rate_limit:\n  interval: -5s\n", 2, "`-5s` is no interval"),
        ("rate_limit:\n  interval: soon\n", 2, "`soon` is no interval"),
        ("http_server_config:\n  http3: true\n", 2, "http3"),
        ("http_server_config:\n  http2: sometimes\n", 2, "bool"),
        ("http_server_config:\n  http2: true\n  http2: true\n", 3, "http2"),
        ("http_server_config:\n  headers:\n    Server: kfd\n", 3, "header `Server` cannot be set"),
        ("http_server_config:\n  headers:\n    X-Frame-Options: DENY\n", 3, "deny or sameorigin, not `DENY`"),
        (
            "http_server_config:\n  headers:\n    X-XSS-Protection: \"1\\n2\"\n",
            3,
            "X-XSS-Protection has a character",
        ),
        (
            "basic_auth_users:\n  alice: hunter2\n",
            2,
            "user `alice` of basic_auth_users: this is no bcrypt hash",
        ),
        ("basic_auth_users:\n  \"a:b\": x\n", 2, "user `a:b` of basic_auth_users has a colon"),
        ("basic_auth_users: [alice]\n", 1, ""),
        ("basic_auth_users: {\n", 0, ""),
    ];
    for (text, line, words) in refused {
        let error = parsed(text).map(|_| ()).expect_err(text);
        assert!(error.starts_with("/etc/kfd/web.yml: line "), "{error}");
        assert!(error.contains(words) && !error.contains('\n') && !error.contains("hunter2"), "{error}");
        // The entries of a map are checked at its end: the line of its start is reported.
        let reported: u64 =
            error.split(&[' ', ':'][..]).nth(3).unwrap().parse().unwrap_or_else(|_| panic!("{error}"));
        assert!(line == 0 || reported == line, "{error}: {line}");
    }
}

#[test]
fn tls_that_is_not_supported_is_refused_with_its_name_and_line() {
    let refused = [
        ("ciphers: []", "ciphers"),
        ("client_auth_type: Always", "`Always` is no client_auth_type"),
        ("client_allowed_sans: a", ""),
        ("min_version: TLS10", "TLS10 is not supported"),
        ("min_version: TLS11", "TLS11 is not supported"),
        ("max_version: SSL3", "`SSL3` is no version of TLS"),
    ];
    for (text, words) in refused {
        let error = parsed(&section(text)).map(|_| ()).expect_err(text);
        assert!(error.starts_with("/etc/kfd/web.yml: line 4: ") && error.contains(words), "{error}");
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let refused = [
        ("tls_server_config:\n  key_file: k\n".to_owned(), "cert_file is missing"),
        ("tls_server_config:\n  cert_file: c\n".to_owned(), "key_file is missing"),
        ("tls_server_config:\n  min_version: TLS12\n".to_owned(), "cert_file is missing"),
        (section("cert: inline"), "cert and cert_file are both given"),
        (section("key: inline"), "key and key_file are both given"),
        (section("client_ca_file: ca"), "client_ca_file is of no use with client_auth_type NoClientCert"),
        (section("client_ca_file: ca\nclient_auth_type: RequestClientCert"), "client_ca_file is of no use"),
        (
            section("client_ca_file: ca\nclient_auth_type: RequireAnyClientCert"),
            "client_ca_file is of no use",
        ),
        (section("client_ca_file: ca\nclient_auth_type: NoClientCert"), "client_ca_file is of no use"),
        (section("client_auth_type: RequireAndVerifyClientCert"), "takes a client_ca_file, which is missing"),
        (
            section("client_allowed_sans: [a]"),
            "client_allowed_sans is of no use with client_auth_type NoClientCert",
        ),
        (
            section("client_auth_type: VerifyClientCertIfGiven\nclient_allowed_sans: [a]"),
            "client_allowed_sans is of no use",
        ),
        (
            section("client_auth_type: RequireAnyClientCert\nclient_allowed_sans: []"),
            "client_allowed_sans has no name",
        ),
        (section("min_version: TLS13\nmax_version: TLS12"), "min_version is above max_version"),
    ];
    for (text, words) in refused {
        let error = parsed(&text).map(|_| ()).expect_err(&text);
        assert!(
            error.starts_with("/etc/kfd/web.yml: tls_server_config: ") && error.contains(words),
            "{error}"
        );
    }
}

#[test]
fn errors_are_one_short_line_without_control_characters() {
    // YAML does not accept a longer key.
    let long = "n".repeat(1_000);
    let steers = "\"two\\nlines \\u009b31m \\u202e:\"";
    let keys = [
        "http_server_config:\n  headers:\n    NAME: a\n",
        "http_server_config:\n  headers:\n    X-Frame-Options: NAME\n",
        "basic_auth_users:\n  NAME: hunter2\n",
        "tls_server_config:\n  client_auth_type: NAME\n",
        "tls_server_config:\n  min_version: NAME\n",
        "? NAME\n: a\n",
    ];
    for key in keys {
        let error = parsed(&key.replace("NAME", steers)).map(|_| ()).expect_err(key);
        assert!(error.contains(r"two\u{a}lines \u{9b}31m \u{202e}"), "{error}");
        assert_eq!(error, escape::terminal(&error));
        let error = parsed(&key.replace("NAME", &format!("\"{long}\""))).map(|_| ()).expect_err(key);
        assert!(error.len() < 700 && error.starts_with("/etc/kfd/web.yml: line "), "{error}");
    }
    let advice = parsed(&keys[0].replace("NAME", &format!("\"{long}\""))).map(|_| ()).expect_err("a header");
    assert!(advice.contains("header `nnn") && advice.ends_with("X-XSS-Protection"), "{advice}");
    let path = parse("a", Path::new("/etc/a\nb")).map(|_| ()).expect_err("a text");
    assert!(path.starts_with(r"/etc/a\u{a}b: line 1: "), "{path}");
}

#[test]
fn an_alias_is_not_copied_many_times() {
    let hash = hash("a");
    let two = format!("basic_auth_users:\n  alice: &one '{hash}'\n  bob: *one\n");
    assert_eq!(good(&two).users.len(), 2);
    let suites = |count| {
        let again = ", *one".repeat(count);
        section(&format!("cipher_suites: [&one {}{again}]", "n".repeat(5_000)))
    };
    assert_eq!(good(&suites(1)).tls.unwrap().cipher_suites.map(|names| names.len()), Some(2));
    let nested: String = (0..20).map(|n| format!("&a{n} [")).collect();
    let flat: String = (0..8).map(|n| format!("&a{n} [")).collect();
    let refused = [
        suites(5),
        format!("? {nested}{}\n: a\n", "]".repeat(20)),
        format!("? {flat}{}{}\n: a\n", "b,".repeat(200), "]".repeat(8)),
    ];
    for text in refused {
        let error = parsed(&text).map(|_| ()).expect_err(&text);
        assert!(error.contains("too complex"), "{error}");
    }
}
