//! The parts of a page that are fetched anew each by itself: what has not changed is not sent again.

use askama::Template;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher as _};

/// One part of a page, below `<main>`.
pub(super) struct Section {
    pub(super) id: &'static str,
    /// Equal for contents that differ in nothing but the time that has passed.
    pub(super) tag: String,
    /// Empty if the client has it.
    pub(super) html: String,
}

impl Section {
    /// # Errors
    /// None known; askama reports errors only at run time.
    pub(super) fn new(id: &'static str, content: &impl Template) -> Result<Self, String> {
        let html = content.render().map_err(|error| error.to_string())?;
        Ok(Section { id, tag: tag(id, &html), html })
    }

    /// Without its content if the client has it.
    pub(super) fn unless_known(self, have: Option<&BTreeSet<String>>) -> Self {
        let known = have.is_some_and(|have| have.contains(&self.tag));
        if known { Section { html: String::new(), ..self } } else { self }
    }
}

/// Begin of an element whose text is an age: the page's script counts on by itself.
const AGE: &str = "<time class=\"age\"";

/// Begin of an element that shows when the page was made.
const NOW: &str = "<time class=\"now\"";

fn tag(id: &str, html: &str) -> String {
    let mut hash = DefaultHasher::new();
    hash.write(id.as_bytes());
    let mut rest = html;
    while let Some(at) = rest.find(AGE).into_iter().chain(rest.find(NOW)).min() {
        hash.write(&rest.as_bytes()[..at]);
        let element = &rest[at..];
        let end = element.find("</time>").unwrap_or(element.len());
        if element.starts_with(AGE) {
            let open = element[..end].find('>').unwrap_or(end);
            hash.write(&element.as_bytes()[..open]);
        }
        rest = &element[end..];
    }
    hash.write(rest.as_bytes());
    format!("{:016x}", hash.finish())
}

/// The tag of a whole page: those of its sections. Quoted, and weak, since ages are not compared.
#[must_use]
pub fn etag(html: &str) -> String {
    let tags = html.split(" data-tag=\"").skip(1).filter_map(|rest| rest.get(..16));
    format!("W/\"{}\"", tags.collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_passes_by_itself_is_not_compared() {
        let of = |html: &str| tag("a", html);
        let age = |since: &str, text: &str| {
            format!(
                "<td>{AGE} datetime=\"{since}\">{text}</time></td><td>{NOW} datetime=\"{text}\">{text}</time>7"
            )
        };
        assert_eq!(of(&age("x", "1s")), of(&age("x", "2s")), "an age");
        assert_ne!(of(&age("x", "1s")), of(&age("y", "1s")), "another begin");
        assert_ne!(of(&age("x", "1s")), of(&(age("x", "1s") + "8")), "what follows");
        assert_ne!(of("<time datetime=\"x\">1</time>"), of("<time datetime=\"x\">2</time>"), "another time");
        assert_ne!(tag("a", "1"), tag("b", "1"), "another section");
        assert_eq!(of("").len(), 16);
    }

    #[test]
    fn the_tag_of_a_page_is_of_all_sections() {
        let html = "<section data-tag=\"0123456789abcdef\"></section><section data-tag=\"fedcba9876543210\">";
        assert_eq!(etag(html), "W/\"0123456789abcdef.fedcba9876543210\"");
    }
}
