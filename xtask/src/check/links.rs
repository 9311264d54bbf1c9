//! `cargo xtask links`: checks that every relative link of the documentation leads to a file, and every
//! `#anchor` to a heading.

use crate::paths;
use crate::run::{note, step};
use anyhow::{Context as _, Result, bail};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// # Errors
/// When a link target is missing; each is reported.
pub(crate) fn links() -> Result<()> {
    let mut files = BTreeMap::new();
    gather(paths::root(), Path::new(""), &mut files)?;
    let problems = problems(&files, |path| paths::root().join(path).exists());
    step(format!("{} pages of documentation", files.len()));
    problems.iter().for_each(note);
    if !problems.is_empty() {
        bail!("links that lead nowhere: {}, see above", problems.len());
    }
    Ok(())
}

/// All Markdown below `folder`, by its path from `root`. Hidden folders and target/ are left out.
fn gather(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    let here = root.join(folder);
    for entry in fs::read_dir(&here).with_context(|| format!("cannot read {}", here.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let path = folder.join(&name);
        if entry.file_type()?.is_dir() {
            if !name.to_string_lossy().starts_with('.') && path != Path::new("target") {
                gather(root, &path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(entry.path());
            files.insert(path, text.with_context(|| format!("cannot read {}", entry.path().display()))?);
        }
    }
    Ok(())
}

/// Problems of the links of these pages. `exists`: whether a path from the root exists.
fn problems(files: &BTreeMap<PathBuf, String>, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let pages: BTreeMap<&Path, Page> =
        files.iter().map(|(path, text)| (path.as_path(), page(text))).collect();
    let mut problems = Vec::new();
    for (path, page) in &pages {
        for link in page.links.iter().filter(|link| !is_elsewhere(link)) {
            let (file, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
            let target = if file.is_empty() { Some(path.to_path_buf()) } else { resolve(path, file) };
            let wrong = match (&target, anchor) {
                (None, _) => Some("leads out of the repository"),
                (Some(target), _) if !exists(target) => Some("leads to no file"),
                (Some(target), Some(anchor)) => match pages.get(target.as_path()) {
                    None => Some("names a heading of what is no page"),
                    Some(page) if !page.anchors.contains(anchor) => Some("names no heading of that page"),
                    Some(_) => None,
                },
                _ => None,
            };
            problems.extend(wrong.map(|wrong| format!("{}: {link} {wrong}", path.display())));
        }
    }
    problems
}

/// `https:`, `mailto:`.
fn is_elsewhere(link: &str) -> bool {
    let scheme = link.split_once(':').map_or("", |(scheme, _)| scheme);
    !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn resolve(page: &Path, link: &str) -> Option<PathBuf> {
    let mut path = page.parent()?.to_path_buf();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => path.pop().then_some(())?,
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

#[derive(Default)]
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

fn page(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().unwrap_or_default());
                let again = (1..).map(|number| format!("{anchor}-{number}"));
                let free =
                    std::iter::once(anchor.clone()).chain(again).find(|name| !page.anchors.contains(name));
                page.anchors.extend(free);
            }
            _ => {}
        }
    }
    page
}

/// The anchor that sites which render Markdown make of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: &str = "# Top\n[a](docs/a.md) [its part](docs/a.md#two-words) ![p](docs/p.png) <https://x.example/y> `[no](link)`\n";

    fn wrong(pages: &[(&str, &str)]) -> Vec<String> {
        let files: BTreeMap<_, _> =
            pages.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
        problems(&files, |path| {
            files.contains_key(path) || path == Path::new("docs/p.png") || path == Path::new("docs")
        })
    }

    #[test]
    fn links_that_lead_somewhere_are_no_problem() {
        let other = "## Two words\n[top](../README.md#top) [here](#two-words) [dir](../docs) [mail](mailto:a@b.example)\n";
        assert_eq!(wrong(&[("README.md", TOP), ("docs/a.md", other)]), Vec::<String>::new());
    }

    #[test]
    fn each_that_leads_nowhere_is_named_with_its_page() {
        let gone = "README.md: docs/a.md leads to no file";
        assert_eq!(wrong(&[("README.md", TOP)]), [gone, "README.md: docs/a.md#two-words leads to no file"]);
        let headless =
            [("README.md", TOP), ("docs/a.md", "# Two other words\n[up](../../x.md) [p](p.png#x)\n")];
        assert_eq!(
            wrong(&headless),
            [
                "README.md: docs/a.md#two-words names no heading of that page",
                "docs/a.md: ../../x.md leads out of the repository",
                "docs/a.md: p.png#x names a heading of what is no page",
            ]
        );
    }

    #[test]
    fn links_by_reference_and_in_tables_count() {
        // A cell ends inline markup that begins in it: the second link is not in code.
        let text = "| a | b |\n|---|---|\n| [x](gone.md) | |\n| ` | [x](away.md) ` |\n\n[y][ref]\n\n[ref]: lost.md\n";
        let wrong = wrong(&[("a.md", text)]);
        assert_eq!(wrong, ["gone", "away", "lost"].map(|name| format!("a.md: {name}.md leads to no file")));
    }

    #[test]
    fn anchors_are_those_of_the_sites() {
        let anchors =
            page("# What it costs: 5.10, `--pid`\n## A_b\n## A_b\n```\n# no heading\n```\n").anchors;
        let wanted = ["a_b", "a_b-1", "what-it-costs-510---pid"].map(str::to_owned);
        assert_eq!(anchors, BTreeSet::from(wanted));
    }
}
