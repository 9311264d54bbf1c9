//! The rows.

use super::Does::{self, DiffersAndRefuses, Refuses, Serves};
use super::Gets::{By, Header, Nothing, Page, Status};
use super::{Client, Pair};
use crate::serve::web::tests::TLS;
use crate::serve::web::users::tests::hash;
use tokio_rustls::rustls::CipherSuite::{
    self, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 as GCM_128,
    TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 as GCM_256,
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 as CHACHA,
};

fn tls() -> Client {
    Client::default()
}

fn plain() -> Client {
    Client { plain: true, ..tls() }
}

fn offering(suites: &[CipherSuite]) -> Client {
    Client { suites: suites.to_vec(), ..tls() }
}

fn user(client: Client, name: &'static str, password: &'static str) -> Client {
    Client { password: Some((name, password)), ..client }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// The keys of a server that asks for certificates, and has no authority for them.
fn if_given(more: &str) -> String {
    format!("{TLS}  client_auth_type: VerifyClientCertIfGiven\n{more}")
}

/// The file's name, the configuration, what it does.
pub(super) type Row = (&'static str, String, Does);

/// All rows. `own`: a client's certificate that signs itself, as theirs, for `localhost`.
pub(super) fn all(server: &Pair, own: &Pair) -> impl Iterator<Item = Row> {
    [of_files(), of_algorithms(), of_headers(), of_clients(server, own), of_requests()].into_iter().flatten()
}

fn of_files() -> Vec<Row> {
    let section = |lines: &str| format!("tls_server_config:\n{lines}");
    vec![
        ("web_config_empty.yml", String::new(), Serves(vec![(plain(), Page), (tls(), Nothing)])),
        ("web_config_junk.yml", "u7Jq0\nT2xWv\n".into(), Refuses("line 1")),
        ("web_config_junk_key.yml", section("  cert_flie: web.crt\n"), Refuses("cert_flie")),
        (
            "web_config_noAuth_certPath_empty.bad.yml",
            section("  cert_file: ''\n  key_file: web.key\n"),
            Refuses("cert_file is missing"),
        ),
        (
            "web_config_noAuth_cert_empty.bad.yml",
            section("  cert: ''\n  key_file: web.key\n"),
            Refuses("cert_file is missing"),
        ),
        (
            "web_config_noAuth_keyPath_empty.bad.yml",
            section("  cert_file: web.crt\n  key_file: ''\n"),
            Refuses("key_file is missing"),
        ),
        (
            "web_config_noAuth_key_empty.bad.yml",
            section("  cert_file: web.crt\n  key: ''\n"),
            Refuses("key_file is missing"),
        ),
        (
            "web_config_noAuth_certPath_keyPath_empty.bad.yml",
            section("  cert_file: ''\n  key_file: ''\n  client_auth_type: Often\n"),
            Refuses("`Often` is no client_auth_type"),
        ),
        (
            "web_config_noAuth_certPath_invalid.bad.yml",
            section("  cert_file: none\n  key_file: web.key\n"),
            Refuses("none cannot be read"),
        ),
        (
            "web_config_noAuth_keyPath_invalid.bad.yml",
            section("  cert_file: web.crt\n  key_file: none\n"),
            Refuses("none cannot be read"),
        ),
        (
            "web_config_noAuth_certPath_keyPath_invalid.bad.yml",
            section("  cert_file: none\n  key_file: none\n"),
            Refuses("none cannot be read"),
        ),
        (
            "web_config_noAuth.bad.yml",
            format!("{TLS}  client_ca_file: /dev/null\n"),
            Refuses("client_ca_file"),
        ),
        (
            "web_config_auth_clientCAs_invalid.bad.yml",
            format!("{TLS}  client_ca_file: none\n"),
            Refuses("client_ca_file"),
        ),
        (
            "web_config_auth_user_list_invalid.bad.yml",
            "basic_auth_users:\n  erin: secret\n".into(),
            Refuses("user `erin`"),
        ),
    ]
}

fn of_algorithms() -> Vec<Row> {
    let suites = |names: &[&str]| format!("  cipher_suites: [{}]\n", names.join(", "));
    let (gcm_128, gcm_256) =
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384");
    let only_12 = "  max_version: TLS12\n";
    let all = [
        gcm_128,
        gcm_256,
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    ];
    vec![
        (
            "web_config_noAuth_inventedCiphers.bad.yml",
            if_given(&suites(&["TLS_X"])),
            Refuses("TLS_X is not known"),
        ),
        (
            "web_config_noAuth_inventedCurves.bad.yml",
            if_given("  curve_preferences: [CurveP1]\n"),
            Refuses("CurveP1 is not known"),
        ),
        ("web_config_noAuth_wrongTLSVersion.bad.yml", if_given("  min_version: TLS14\n"), Refuses("`TLS14`")),
        ("web_config_noAuth_allCiphers.good.yml", if_given(&suites(&all)), Serves(vec![(tls(), Page)])),
        (
            "web_config_noAuth_someCiphers.good.yml",
            if_given(&(suites(&[gcm_128, gcm_256]) + only_12)),
            Serves(vec![
                (offering(&[GCM_128]), Page),
                (offering(&[CHACHA]), Nothing),
                (offering(&[GCM_128, GCM_256]), By(GCM_128)),
            ]),
        ),
        (
            "web_config_noAuth_someCiphers_noOrder.good.yml",
            if_given(&(suites(&[gcm_256, gcm_128]) + "  prefer_server_cipher_suites: false\n" + only_12)),
            Serves(vec![(offering(&[GCM_128, GCM_256]), By(GCM_128))]),
        ),
        (
            "web_config_noAuth_allCurves.good.yml",
            if_given("  curve_preferences: [CurveP384, CurveP521, CurveP256, X25519]\n"),
            Serves(vec![(tls(), Page)]),
        ),
        (
            "web_config_noAuth_someCurves.good.yml",
            if_given("  min_version: TLS13\n  curve_preferences: [CurveP521]\n"),
            DiffersAndRefuses("none of them is offered"),
        ),
        (
            "web_config_noAuth_noHTTP2.good.yml",
            if_given(&(suites(&[gcm_256]) + only_12 + "http_server_config:\n  http2: false\n")),
            Serves(vec![(tls(), By(GCM_256))]),
        ),
        (
            "web_config_noAuth_noHTTP2Cipher.bad.yml",
            if_given(&(suites(&[gcm_256]) + only_12)),
            Refuses("none that HTTP/2 takes"),
        ),
    ]
}

fn of_headers() -> Vec<Row> {
    let headers = |lines: &str| format!("http_server_config:\n  headers:\n{lines}");
    let all = "    X-Frame-Options: deny\n    Strict-Transport-Security: max-age=600\n    X-Content-Type-Options: nosniff
    X-XSS-Protection: 1\n    Content-Security-Policy: \"default-src 'none'\"\n";
    vec![
        (
            "web_config_headers.good.yml",
            headers(all),
            Serves(vec![
                (plain(), Header("x-frame-options: deny")),
                (plain(), Header("strict-transport-security: max-age=600")),
                (plain(), Header("x-content-type-options: nosniff")),
                (plain(), Header("x-xss-protection: 1")),
                (plain(), Header("content-security-policy: default-src 'none'")),
            ]),
        ),
        (
            "web_config_headers_content_type_options.bad.yml",
            headers("    X-Content-Type-Options: smell\n"),
            Refuses("must be nosniff"),
        ),
        (
            "web_config_headers_frame_options.bad.yml",
            headers("    X-Frame-Options: never\n"),
            Refuses("must be deny or sameorigin"),
        ),
        ("web_config_headers_extra_header.bad.yml", headers("    Age: 1\n"), Refuses("`Age` cannot be set")),
    ]
}

fn of_clients(server: &Pair, own: &Pair) -> Vec<Row> {
    let with = || Client { own: Some(own.clone()), ..tls() };
    let (cert, key) = (indented(&server.cert), indented(&server.key));
    let any = "  client_auth_type: RequireAnyClientCert\n";
    let verified = "  client_auth_type: RequireAndVerifyClientCert\n";
    let listed = format!("{TLS}{verified}  client_ca_file: own.crt\n");
    vec![
        (
            "web_config_noAuth.good.yml",
            if_given(""),
            Serves(vec![(plain(), Nothing), (tls(), Page), (Client { old: true, ..tls() }, Nothing)]),
        ),
        (
            "web_config_noAuth_tlsInline.good.yml",
            format!(
                "tls_server_config:\n  cert: |\n{cert}  key: |\n{key}  client_auth_type: VerifyClientCertIfGiven\n"
            ),
            Serves(vec![(tls(), Page)]),
        ),
        (
            "tls_config_noAuth.requireanyclientcert.good.yml",
            format!("{TLS}{any}"),
            Serves(vec![(with(), Page), (tls(), Nothing)]),
        ),
        (
            "tls_config_noAuth.requireanyclientcertkeyinline.good.yml",
            format!("tls_server_config:\n  cert_file: web.crt\n  key: |\n{key}{any}"),
            Serves(vec![(with(), Page), (tls(), Nothing)]),
        ),
        (
            "tls_config_noAuth.requireandverifyclientcert.good.yml",
            listed.clone(),
            Serves(vec![(with(), Page), (tls(), Nothing)]),
        ),
        (
            "web_config_auth_client_san.good.yaml",
            format!("{listed}  client_allowed_sans: [other, localhost]\n"),
            Serves(vec![(with(), Page)]),
        ),
        (
            "web_config_auth_client_san.bad.yaml",
            format!("{listed}  client_allowed_sans: [other]\n"),
            Serves(vec![(with(), Nothing)]),
        ),
        (
            "web_config_auth_clientCAs_missing.bad.yml",
            format!("{TLS}{verified}"),
            DiffersAndRefuses("takes a client_ca_file"),
        ),
        (
            "web_config_noAuth.good.blocking.yml",
            format!("{TLS}{verified}"),
            DiffersAndRefuses("takes a client_ca_file"),
        ),
    ]
}

fn of_requests() -> Vec<Row> {
    // As theirs, one is dear. It would replace an unknown name's: `passwords_stand_before_every_page` tries such a name.
    let dear = hash("d").replacen("$04$", "$18$", 1);
    let users = format!(
        "basic_auth_users:\n  dave: {}\n  carol: {}\n  bob: {dear}\n",
        hash("of dave"),
        hash("of carol")
    );
    let denied = Status("401");
    vec![
        (
            "web_config_users_noTLS.good.yml",
            users.clone(),
            Serves(vec![(plain(), denied), (user(plain(), "dave", "of dave"), Page)]),
        ),
        (
            "web_config_users.good.yml",
            format!("{TLS}{users}"),
            Serves(vec![
                (tls(), denied),
                (user(tls(), "dave", "of dave"), Page),
                (user(tls(), "carol", "of carol"), Page),
                (user(tls(), "dave", "of carol"), denied),
            ]),
        ),
        (
            "web_config_rate_limiter_nonblocking.yaml",
            "rate_limit:\n  interval: 0\n  burst: 0\n".into(),
            Serves(vec![(plain(), Page); 11]),
        ),
        (
            "web_config_rate_limiter_one_second.yaml",
            "rate_limit:\n  interval: '1s'\n  burst: 0\n".into(),
            Serves(vec![(plain(), Status("429"))]),
        ),
    ]
}
