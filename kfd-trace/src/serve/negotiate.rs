//! What a client accepts: the format of the exposition, and compression (RFC 9110, 12.5). Pure.

use crate::output::metrics::Format;
use axum::http::{HeaderMap, HeaderName, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write as _};

/// The fastest level: an exposition of 10,000 queues has 7 % of its length then, and takes twice as long to compress as
/// to make (docs/performance.md).
const LEVEL: u32 = 1;

/// The encoding of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Encoding {
    #[default]
    Identity,
    Gzip,
}

impl Encoding {
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        let weights = weights(headers, &header::ACCEPT_ENCODING);
        let of = |coding: &str| weights.iter().find(|item| item.name == coding).map(|item| item.weight);
        let gzip = of("gzip").or_else(|| of("x-gzip")).or_else(|| of("*")).unwrap_or(0);
        if gzip > 0 && of("identity").is_none_or(|identity| gzip >= identity) {
            Encoding::Gzip
        } else {
            Encoding::Identity
        }
    }

    /// # Errors
    /// None that is known: it writes to memory.
    pub(super) fn encode(self, text: String) -> io::Result<Vec<u8>> {
        match self {
            Encoding::Identity => Ok(text.into_bytes()),
            Encoding::Gzip => {
                let mut out = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::new(LEVEL));
                out.write_all(text.as_bytes())?;
                out.finish()
            }
        }
    }
}

/// OpenMetrics for clients that ask for it by name and prefer it to text.
pub(super) fn format(headers: &HeaderMap) -> Format {
    let ranges = weights(headers, &header::ACCEPT);
    let best = |wanted: &dyn Fn(&Item) -> bool| {
        ranges.iter().filter(|item| wanted(item)).map(|item| item.weight).max()
    };
    let open = best(&|item| {
        item.name == "application/openmetrics-text"
            && item.version.as_ref().is_none_or(|version| version == "1.0.0")
    });
    // The most specific range counts (RFC 9110, 12.5.1).
    let of_text = ["text/plain", "text/*", "*/*"].iter().find_map(|range| best(&|item| item.name == *range));
    let (open, text) = (open.unwrap_or(0), of_text.unwrap_or(0));
    if open > 0 && open >= text { Format::OpenMetrics } else { Format::Text }
}

/// An item of a list with weights.
struct Item {
    name: String,
    version: Option<String>,
    /// In thousandths.
    weight: u32,
}

/// Items of all headers of this name; what is not understood is left out.
fn weights(headers: &HeaderMap, name: &HeaderName) -> Vec<Item> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(item).collect()
}

fn item(text: &str) -> Option<Item> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?.to_ascii_lowercase();
    let mut item = Item { name, version: None, weight: 1_000 };
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key.trim().to_ascii_lowercase().as_str() {
            "q" => item.weight = weight(value.trim())?,
            "version" => item.version = Some(value.trim().trim_matches('"').to_owned()),
            _ => {}
        }
    }
    Some(item)
}

/// `0`, `0.5`, `1.000`.
fn weight(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let thousandths: u32 = format!("{fraction:0<3}").parse().ok().filter(|_| digits)?;
    let whole: u32 = whole.parse().ok()?;
    Some(whole.checked_mul(1_000)? + thousandths).filter(|weight| *weight <= 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use flate2::read::GzDecoder;
    use std::io::Read as _;

    fn headers(name: &HeaderName, values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn gzip_is_for_those_who_accept_it_and_do_not_prefer_to_be_without() {
        for (values, gzip) in [
            (&["gzip"][..], true),
            (&["deflate, GZIP;q=0.5"], true),
            (&["br", "x-gzip"], true),
            (&["*"], true),
            (&["gzip;q=0.001"], true),
            (&["identity;q=0, *"], true),
            (&["gzip;q=0.5, identity;q=0.5"], true),
            (&[], false),
            (&[""], false),
            (&["br, zstd"], false),
            (&["gzip;q=0"], false),
            (&["gzip;q=0.000, *"], false),
            (&["*;q=0"], false),
            (&["gzip;q=0.5, identity"], false),
            (&["gzip;q=2"], false),
            (&["gzip;q=-1"], false),
            (&["gzip;q=0.0001"], false),
        ] {
            let accepted = Encoding::accepted(&headers(&header::ACCEPT_ENCODING, values));
            assert_eq!(accepted == Encoding::Gzip, gzip, "{values:?}");
        }
    }

    /// The first ones are those of Prometheus 2.53 and 3.5.
    #[test]
    fn openmetrics_is_for_those_who_prefer_it() {
        for (values, open) in [
            (
                &[
                    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                ][..],
                true,
            ),
            (
                &[
                    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,*/*;q=0.2",
                ],
                true,
            ),
            (&["application/openmetrics-text"], true),
            (&["text/plain, Application/OpenMetrics-Text; version=\"1.0.0\""], true),
            (&["application/openmetrics-text;version=0.0.1"], false),
            (&["application/openmetrics-text;version=2.0.0"], false),
            (&["application/openmetrics-text;q=0.4, text/plain;q=0.5"], false),
            (&["application/openmetrics-text;q=0"], false),
            (&["application/openmetrics-text;q=0.5, text/plain;q=0.3, */*"], true),
            (&["application/openmetrics-text;q=0.5, text/*"], false),
            (&["*/*"], false),
            (&["text/html"], false),
            (&[], false),
        ] {
            let format = format(&headers(&header::ACCEPT, values));
            assert_eq!(format == Format::OpenMetrics, open, "{values:?}");
        }
    }

    #[test]
    fn what_is_compressed_is_unpacked_to_the_same() {
        let text = "kfd_process_queues{pid=\"1\"} 1\n".repeat(1_000);
        assert_eq!(Encoding::Identity.encode(text.clone()).unwrap(), text.as_bytes());
        let packed = Encoding::Gzip.encode(text.clone()).unwrap();
        let mut unpacked = String::new();
        GzDecoder::new(&packed[..]).read_to_string(&mut unpacked).unwrap();
        assert!(unpacked == text && packed.len() < text.len() / 20, "{}", packed.len());
    }
}
