//! Paths of the machine that occur in a file. Pure.

/// Those of `paths` that occur in these bytes.
pub(super) fn leaks<'a>(bytes: &[u8], paths: &[&'a str]) -> Vec<&'a str> {
    let occurs = |path: &str| bytes.windows(path.len()).any(|window| window == path.as_bytes());
    paths.iter().copied().filter(|path| !path.is_empty() && occurs(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::leaks;

    #[test]
    fn a_path_is_found_anywhere() {
        let bytes = b"\x7fELF\0/home/u/work/src/a.rs\0/rustc/core";
        assert_eq!(leaks(bytes, &["/home/u/work", "/root/.cargo", ""]), ["/home/u/work"]);
        assert!(leaks(b"/short", &["/longer/than/this"]).is_empty());
    }
}
