//! The suites of each private root, and which of them the archive has dropped. In: what apt-get update
//! reported. Out: suites to go on without. Pure.

/// Suite, and whether it is in the security archive.
pub(super) type Suite = (&'static str, bool);

/// Kernels of the matrix and the guest's programs.
pub(super) const MATRIX: [Suite; 5] = [
    ("bookworm", false),
    ("bookworm-updates", false),
    ("bookworm-security", true),
    ("bullseye-security", true),
    ("trixie-backports", false),
];

/// Separate from the matrix: there its newer packages would win over bookworm's.
pub(super) const TRIXIE: [Suite; 1] = [("trixie", false)];

/// Every suite that may have kernels.
pub(super) const IMAGES: [Suite; 8] = [
    ("bookworm", false),
    ("bookworm-security", true),
    ("bullseye-security", true),
    ("trixie", false),
    ("trixie-security", true),
    ("trixie-backports", false),
    ("sid", false),
    ("experimental", false),
];

/// Suites that the archive no longer has, or no longer signs, with apt's line. A suite that cannot be reached
/// is not among them.
pub(super) fn dropped<'a>(suites: &[Suite], reported: &'a str) -> Vec<(Suite, &'a str)> {
    let complaints = reported.lines().filter_map(|line| {
        let (repository, complaint) =
            line.trim().strip_prefix("E: ")?.strip_prefix("The repository '")?.split_once('\'')?;
        let is_final = ["does not have a Release", "no longer has a Release", "is not signed"]
            .iter()
            .any(|word| complaint.contains(word));
        is_final.then_some((repository.split(' ').nth(1)?, line.trim()))
    });
    let suite = |(name, line)| Some((*suites.iter().find(|suite| suite.0 == name)?, line));
    complaints.filter_map(suite).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_is_gone_is_distinguished_from_one_that_cannot_be_reached() {
        let missing = "E: The repository 'http://mirror/debian-security bullseye-security Release' does not have a Release file.";
        let unsigned = "E: The repository 'http://mirror/debian bookworm InRelease' is not signed.";
        let text = format!(
            "W: GPG error: http://mirror/debian bookworm InRelease: EXPKEYSIG\n{unsigned}\n{missing}\n\
             E: Failed to fetch http://mirror/debian/dists/bookworm-updates/InRelease  Could not connect\n"
        );
        let found = dropped(&MATRIX, &text);
        assert_eq!(found, [(("bookworm", false), unsigned), (("bullseye-security", true), missing)]);
        assert!(dropped(&TRIXIE, &text).is_empty());
    }
}
