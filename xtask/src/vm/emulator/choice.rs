//! The choice between Debian's QEMU and a patched build of it. In: names of the builds in the cache, and what
//! one that fits is made of. Out: the one to use, and why. Pure.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// What a patched QEMU is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipe<'a> {
    /// Debian's version of the source.
    pub(super) version: &'a str,
    /// As an e-mail, or the changes alone.
    pub(super) patch: &'a str,
    /// Words for QEMU's configure.
    pub(super) configure: &'a [&'a str],
}

impl Recipe<'_> {
    /// `VERSION_HASH`, the name of the build's folder: no recipe with other changes has it. Debian's versions
    /// have no `_`.
    pub(super) fn name(&self) -> String {
        let mut hasher = DefaultHasher::new();
        (self.version, changes(self.patch), self.configure).hash(&mut hasher);
        format!("{}_{:016x}", without_epoch(self.version), hasher.finish())
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The build of this name.
    Patched(String),
    Debian(Reason),
}

/// Why no build in the cache can be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reason {
    None,
    /// The only ones are of another version than Debian's unpacked QEMU, for example of this.
    Version(String),
    /// One is of this version, but was made with another patch or configured otherwise.
    Recipe,
}

/// Chooses among the builds with these names.
pub(super) fn choose(built: &[String], recipe: &Recipe<'_>) -> Choice {
    let wanted = recipe.name();
    if built.contains(&wanted) {
        return Choice::Patched(wanted);
    }
    let versions: Vec<&str> = built.iter().filter_map(|name| Some(name.split_once('_')?.0)).collect();
    let reason = match versions.first() {
        _ if versions.contains(&without_epoch(recipe.version)) => Reason::Recipe,
        Some(other) => Reason::Version((*other).to_owned()),
        None => Reason::None,
    };
    Choice::Debian(reason)
}

impl Choice {
    /// The line that names the QEMU of this version in which the guests run.
    pub(super) fn report(&self, version: &str) -> String {
        let why = match self {
            Self::Patched(_) => return format!("guests run in QEMU {version} with icount-prologue.patch"),
            Self::Debian(Reason::None) => "`cargo xtask vm --build-qemu` builds a faster one".to_owned(),
            Self::Debian(Reason::Version(other)) => {
                format!("the patched one is {other}: `cargo xtask vm --build-qemu` builds this version")
            }
            Self::Debian(Reason::Recipe) => {
                "the patched one has an older patch: `cargo xtask vm --build-qemu` builds it anew".to_owned()
            }
        };
        format!("guests run in Debian's QEMU {version}; {why}")
    }
}

/// The patch without its commit text, which may be reworded without a new build.
fn changes(patch: &str) -> &str {
    const BEGIN: &str = "diff --git ";
    match patch.find(&format!("\n{BEGIN}")) {
        Some(end) if !patch.starts_with(BEGIN) => &patch[end + 1..],
        _ => patch,
    }
}

/// A folder's name with a colon could not be in a list of library folders.
fn without_epoch(version: &str) -> &str {
    version.split_once(':').map_or(version, |(_, rest)| rest)
}

/// The version in the first line of a changelog, `PACKAGE (VERSION) SUITE; urgency=...`.
pub(super) fn version_of_changelog(head: &str) -> Option<&str> {
    let (version, _) = head.split_once('(')?.1.split_once(')')?;
    (!version.is_empty()).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIPE: Recipe<'static> =
        Recipe { version: "1:10.0.13+ds-0+deb13u1", patch: "-a\n+b\n", configure: &["--x", "--y"] };

    #[test]
    fn each_part_of_a_recipe_changes_the_name() {
        let name = RECIPE.name();
        assert_eq!(name, RECIPE.name());
        assert!(name.starts_with("10.0.13+ds-0+deb13u1_"), "{name}");
        let others = [
            Recipe { version: "1:10.0.14+ds-0+deb13u1", ..RECIPE },
            // The epoch is not in the name itself.
            Recipe { version: "2:10.0.13+ds-0+deb13u1", ..RECIPE },
            Recipe { patch: "-a\n+c\n", ..RECIPE },
            Recipe { configure: &["--x"], ..RECIPE },
            Recipe { configure: &["--x--y"], ..RECIPE },
        ];
        for other in others {
            assert_ne!(other.name(), name, "{other:?}");
        }
    }

    #[test]
    fn the_commit_text_does_not_change_the_name() {
        let with = |patch| Recipe { patch, ..RECIPE }.name();
        let name = with("Subject: x\n\ndiff --git a/x b/x\n+b\n");
        assert_eq!(with("Subject: y\n\ndiff --git a/x b/x\n+b\n"), name);
        assert_ne!(with("Subject: x\n\ndiff --git a/x b/x\n+c\n"), name);
        assert_eq!(with("diff --git a/x b/x\n+b\n"), name);
        let two =
            |first: &str| Recipe { patch: &format!("{first}diff --git a/y b/y\n+d\n"), ..RECIPE }.name();
        assert_ne!(two("diff --git a/x b/x\n+b\n"), two("diff --git a/x b/x\n+c\n"), "its first file counts");
    }

    #[test]
    fn a_build_is_used_only_if_version_patch_and_configuration_fit() {
        let name = |recipe: Recipe<'_>| recipe.name();
        let other_version = name(Recipe { version: "1:10.0.11+ds-0+deb13u1", ..RECIPE });
        let other_patch = name(Recipe { patch: "", ..RECIPE });
        let other_words = name(Recipe { configure: &[], ..RECIPE });
        let choice = |built: &[&String]| {
            let built: Vec<String> = built.iter().map(|name| (*name).clone()).collect();
            choose(&built, &RECIPE)
        };
        let fits = name(RECIPE);
        assert_eq!(choice(&[]), Choice::Debian(Reason::None));
        assert_eq!(choice(&[&fits]), Choice::Patched(fits.clone()));
        assert_eq!(choice(&[&other_version, &other_patch, &fits]), Choice::Patched(fits.clone()));
        let version = Reason::Version("10.0.11+ds-0+deb13u1".to_owned());
        assert_eq!(choice(&[&other_version]), Choice::Debian(version));
        assert_eq!(choice(&[&other_patch]), Choice::Debian(Reason::Recipe));
        assert_eq!(choice(&[&other_version, &other_words]), Choice::Debian(Reason::Recipe));
        // Other files in the folder are no builds.
        assert_eq!(choice(&[&".lock".to_owned()]), Choice::Debian(Reason::None));
    }

    #[test]
    fn the_report_names_the_qemu_and_what_to_do() {
        let report = |choice: Choice| choice.report("1:10.0.13");
        let patched = report(Choice::Patched("x".to_owned()));
        assert_eq!(patched, "guests run in QEMU 1:10.0.13 with icount-prologue.patch");
        let older = report(Choice::Debian(Reason::Version("10.0.11".to_owned())));
        assert!(
            older.starts_with("guests run in Debian's QEMU 1:10.0.13; the patched one is 10.0.11"),
            "{older}"
        );
        for reason in [Reason::None, Reason::Recipe, Reason::Version("10.0.11".to_owned())] {
            assert!(report(Choice::Debian(reason)).contains("`cargo xtask vm --build-qemu`"));
        }
    }

    #[test]
    fn a_changelog_names_its_version_first() {
        let head = "qemu (1:10.0.13+ds-0+deb13u1) trixie; urgency=medium\n";
        assert_eq!(version_of_changelog(head), Some("1:10.0.13+ds-0+deb13u1"));
        for none in ["", "qemu", "qemu () trixie", "qemu (1"] {
            assert_eq!(version_of_changelog(none), None, "{none}");
        }
    }
}
