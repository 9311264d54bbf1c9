//! The text of web configurations: complete ones, with lines replaced by others that the format knows or does
//! not know.

use super::{damaged, hostile};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const TLS: &str = "tls_server_config:
  cert_file: web.crt
  key_file: /etc/kfd-trace/web.key
";

const EVERYTHING: &str = "# For those with a certificate and a password.
---
tls_server_config:
  cert_file: tls/web.crt
  key_file: tls/web.key
  client_ca_file: ca.crt
  client_auth_type: RequireAndVerifyClientCert
  client_allowed_sans: [prometheus.example.org, \"2001:db8::1\"]
  min_version: TLS12
  max_version: TLS13
  cipher_suites:
    - TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    - TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
  curve_preferences: [X25519, CurveP256]
  prefer_server_cipher_suites: false
http_server_config:
  http2: true
  headers:
    Content-Security-Policy: default-src 'self'
    Strict-Transport-Security: max-age=31536000
    X-Content-Type-Options: nosniff
    X-Frame-Options: deny
    X-XSS-Protection:
basic_auth_users:
  prometheus: $2y$10$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234
rate_limit:
  interval: 1m30s
  burst: 20
";

const INLINE: &str = "tls_server_config:
  cert: |
    -----BEGIN CERTIFICATE-----
    MIIBszCCAVmgAwIBAgIUQk9v
    -----END CERTIFICATE-----
  key: >-
    folded
    lines
  client_ca: \"one\\ntwo\"
  client_auth_type: VerifyClientCertIfGiven
";

/// One hash for two users.
const ALIAS: &str = "basic_auth_users:
  alice: &hash '$2b$04$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234'
  \"b\\u00f6b\": *hash
";

const LINES: [&str; 27] = [
    "tls_server_config:",
    "http_server_config: {}",
    "  headers: {Server: kfd}",
    "  http2: sometimes",
    "rate_limit: {burst: 1}",
    "rate_limit: {interval: 9223372036854775807s, burst: 4294967295}",
    "  interval: 1e9h",
    "  client_allowed_sans: [a]",
    "  client_auth_type: NoClientCert",
    "  client_auth_type: RequestClientCert",
    "  client_auth_type: RequireAnyClientCert",
    "  min_version: TLS13",
    "  max_version: TLS12",
    "  max_version: TLS11",
    "  cert: inline",
    "  key: ''",
    "  cipher_suites: []",
    "    X-Frame-Options: sameorigin",
    "    X-Frame-Options: DENY",
    "basic_auth_users: [alice]",
    "  alice: hunter2",
    "  a: $2y$31$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234",
    "  <<: *hash",
    "  ? [a, {b: c}]",
    "  &hash x: !!binary aGk=",
    "--- # another document",
    "\t",
];

/// Text in YAML's quotes.
fn quoted() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        6 => hostile(),
        1 => (1..3_000usize).prop_map(|length| "\u{f6}".repeat(length).into_bytes()),
    ];
    text.prop_map(|text| serde_json::Value::from(String::from_utf8_lossy(&text)).to_string())
}

fn line() -> impl Strategy<Value = String> {
    let indent = || select(vec!["", "  ", "    "]);
    let key = select(vec![
        "http2",
        "client_auth_type",
        "client_allowed_sans",
        "min_version",
        "X-Frame-Options",
        "cert",
        "interval",
        "alice",
    ]);
    prop_oneof![
        4 => select(LINES.to_vec()).prop_map(str::to_owned),
        1 => (indent(), quoted()).prop_map(|(indent, name)| format!("{indent}{name}: a")),
        1 => (indent(), key, quoted()).prop_map(|(indent, key, value)| format!("{indent}{key}: {value}")),
        1 => (indent(), hostile()).prop_map(|(indent, text)| format!("{indent}{}", String::from_utf8_lossy(&text))),
    ]
}

/// Text that occurs once and may be stored many times: one text under many names, and names inside names.
fn aliases() -> impl Strategy<Value = String> {
    let many = (0..4_000usize, 0..200usize, 0..4usize).prop_map(|(length, names, each)| {
        let more: String = (0..names).map(|n| format!(", &a{n} b{}", ", *a".repeat(each * 3))).collect();
        format!("{TLS}  cipher_suites: [&a {}{more}]\n", "n".repeat(length))
    });
    let inside = (1..70usize, 0..2_000usize, select(vec!["rate_limit: ", "? ", "http_server_config: {? "]))
        .prop_map(|(depth, count, begin)| {
            let open: String = (0..depth).map(|n| format!("&a{n} [")).collect();
            format!("{begin}{open}{}{}\n: a\n", "b,".repeat(count), "]".repeat(depth))
        });
    let deep = (1..2_000usize, select(vec!["[", "{", "{a: ", "- ", "? "]))
        .prop_map(|(depth, open)| format!("basic_auth_users: {}", open.repeat(depth)));
    prop_oneof![many, inside, deep]
}

/// The file of `--web.config.file`.
pub fn web() -> impl Strategy<Value = Vec<u8>> {
    let whole = || select(vec!["", TLS, EVERYTHING, INLINE, ALIAS]);
    let changes = vec((any::<usize>(), any::<bool>(), line()), 0..3);
    let changed = (whole(), changes).prop_map(|(whole, changes)| {
        let mut lines: Vec<_> = whole.lines().map(str::to_owned).collect();
        for (place, instead, line) in changes {
            let at = place % (lines.len() + 1);
            lines.splice(at..(at + usize::from(instead)).min(lines.len()), [line]);
        }
        lines.join("\n")
    });
    let text = prop_oneof![3 => whole().prop_map(str::to_owned), 8 => changed, 1 => aliases()];
    damaged(text.prop_map(String::into_bytes))
}
