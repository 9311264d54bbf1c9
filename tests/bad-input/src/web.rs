//! The reader of the file that `--web.config.file` names.

use crate::allocation::{Bound, within};
use crate::shown;
use kfd_trace::serve::web::config;
use std::path::Path;

/// A YAML event takes some 200 bytes, is stored twice where it is within a key, and the shortest one has one
/// byte. The YAML reader has its own tables.
const BOUND: Bound = Bound { a_byte: 400, always: 384 << 10 };

const PATH: &str = "/etc/kfd-trace/web.yml";

/// Parses the text of a configuration. Returns whether it was accepted. Bytes that are not UTF-8 are refused
/// before that: each is replaced, so that the text around it is read.
///
/// # Panics
/// When a guarantee was violated.
#[must_use]
pub fn read(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    match within("web configuration", text.len(), BOUND, || config::parse(&text, Path::new(PATH))) {
        Ok(_) => true,
        Err(line) => {
            shown::line(&line);
            assert!(line.strip_prefix(PATH).is_some_and(|rest| rest.starts_with(": ")), "{line}");
            false
        }
    }
}
