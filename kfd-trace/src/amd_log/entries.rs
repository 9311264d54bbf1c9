//! Finds clr's lines in what users keep of them: behind other text, wrapped by a container's runtime, two on a line.
//!
//! In: lines as they are in the file. Out: [`Entry`]s. Each line gives one, or more if clr's prefix is in it more than
//! once. Work and memory are bounded by the line's length.

use super::limits::LONGEST_LINE;
use super::lines::LogLine;
use super::prefix::{Prefix, PrefixReader};
use super::source::{Source, Sources};
use super::{colours, wrapped};
use std::collections::HashMap;

/// What a line is, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A line of clr: its prefix, and the message.
    Log(Prefix, &'a [u8]),
    /// Not empty, and without a prefix.
    Foreign(&'a [u8]),
    Blank,
    Overlong,
    /// The runtime of a container cut it: the next entry of its stream has the rest.
    Partial,
}

/// Reader of the lines of a log.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    pub sources: Sources,
    /// Lines of clr that were behind another one on the same line.
    pub appended: u64,
    bare: Vec<u8>,
    joined: Joined,
    prefixes: PrefixReader,
}

impl Entries {
    /// Calls `each` for every entry of a line.
    pub fn line(&mut self, line: LogLine<'_>, mut each: impl FnMut(Source, Entry<'_>)) {
        let LogLine::Whole(line) = line else {
            each(Source::default(), Entry::Overlong);
            return;
        };
        if !colours::any(line) {
            self.plain(line, &mut each);
            return;
        }
        let mut bare = std::mem::take(&mut self.bare);
        colours::strip(line, &mut bare);
        self.plain(&bare, &mut each);
        self.bare = bare;
    }

    /// Lines of a container that were cut, and whose rest has not come.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.joined.0.values().filter(|begun| !begun.text.is_empty() || begun.overlong).count()
    }

    fn plain(&mut self, line: &[u8], each: &mut impl FnMut(Source, Entry<'_>)) {
        if line.first() == Some(&b':') {
            return self.text(line, each);
        }
        let Some(part) = wrapped::part(line) else { return self.text(line, each) };
        if !part.whole {
            self.joined.begin(&part.stream, &part.text);
            return each(Source::default(), Entry::Partial);
        }
        match self.joined.end(&part.stream, &part.text) {
            None => self.unwrapped(&part.text, each),
            Some(Some(text)) => self.unwrapped(&text, each),
            Some(None) => each(Source::default(), Entry::Overlong),
        }
    }

    /// A container's own text may have colours that its runtime escaped.
    fn unwrapped(&mut self, text: &[u8], each: &mut impl FnMut(Source, Entry<'_>)) {
        if !colours::any(text) {
            return self.text(text, each);
        }
        let mut bare = Vec::new();
        colours::strip(text, &mut bare);
        self.text(&bare, each);
    }

    fn text(&mut self, line: &[u8], each: &mut impl FnMut(Source, Entry<'_>)) {
        let Some((at, mut prefix, mut rest)) = self.prefixes.find(line) else {
            let blank = line.trim_ascii().is_empty();
            let source = if blank { Source::default() } else { self.sources.of(line) };
            return each(source, if blank { Entry::Blank } else { Entry::Foreign(line) });
        };
        let source = if at == 0 { Source::default() } else { self.sources.of(&line[..at]) };
        while let Some((at, next, after)) = self.prefixes.find_next(rest) {
            each(source, Entry::Log(prefix, rest[..at].trim_ascii_end()));
            self.appended += 1;
            (prefix, rest) = (next, after);
        }
        each(source, Entry::Log(prefix, rest));
    }
}

/// Parts of lines, by stream of a container's log; a handful, since their names are one of few.
#[derive(Clone, Debug, Default)]
struct Joined(HashMap<Box<[u8]>, Begun>);

#[derive(Clone, Debug, Default)]
struct Begun {
    text: Vec<u8>,
    overlong: bool,
}

impl Joined {
    fn begin(&mut self, stream: &[u8], part: &[u8]) {
        if !self.0.contains_key(stream) {
            self.0.insert(stream.into(), Begun::default());
        }
        let Some(begun) = self.0.get_mut(stream) else { return };
        if begun.overlong || begun.text.len() + part.len() > LONGEST_LINE {
            *begun = Begun { text: Vec::new(), overlong: true };
        } else {
            begun.text.extend_from_slice(part);
        }
    }

    /// `None`: nothing was before. `Some(None)`: together they are too long.
    fn end(&mut self, stream: &[u8], part: &[u8]) -> Option<Option<Vec<u8>>> {
        self.0.get(stream).filter(|begun| begun.overlong || !begun.text.is_empty())?;
        self.begin(stream, part);
        let begun = self.0.remove(stream)?;
        Some((!begun.overlong).then_some(begun.text))
    }
}

#[cfg(test)]
mod tests;
