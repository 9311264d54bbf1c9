//! The reader of the file that `--web.config.file` names.

use crate::allocation::{Bound, within};
use crate::shown;
use kfd_trace::serve::web::config;
use std::path::Path;

/// An event of YAML takes some 200 bytes, is held twice where it is within a key, and the shortest one has a byte. A reader of YAML
/// has tables of its own.
const BOUND: Bound = Bound { a_byte: 400, always: 384 << 10 };

const PATH: &str = "/etc/kfd-trace/web.yml";

/// Parses the text of a configuration. Gives whether it was taken. Bytes that are no UTF-8 are refused before that: each is
/// replaced, so that what stands around it is read.
///
/// # Panics
/// When a promise was broken.
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
