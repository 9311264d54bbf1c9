//! The shipped files, and where each kind of package puts them. Pure.

/// Contents of the release binary and the workspace to be packed.
pub(super) struct Parts {
    pub(super) binary: Vec<u8>,
    /// Manual pages of section 1, by file name.
    pub(super) pages: Vec<(String, Vec<u8>)>,
    /// Completions of bash, zsh and fish.
    pub(super) completions: [Vec<u8>; 3],
    pub(super) units: Vec<(String, Vec<u8>)>,
    pub(super) options: Vec<u8>,
    /// The profile of AppArmor.
    pub(super) apparmor: Vec<u8>,
    /// Files below deploy that other programs read, by path: rules, dashboards, drop-ins of systemd, scripts of Slurm, a module of SELinux.
    pub(super) deploy: Vec<(String, Vec<u8>)>,
    /// Files of docs, by name.
    pub(super) docs: Vec<(String, Vec<u8>)>,
    /// Licence texts of this program and of what is linked in, by name.
    pub(super) licences: Vec<(String, Vec<u8>)>,
}

/// Conventions of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Debian,
    Rpm,
    /// For any other one.
    Tarball,
}

/// Kinds of files that a package manager treats separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Program,
    Plain,
    /// Owned by the administrator, once installed.
    Config,
    Doc,
    Licence,
}

#[derive(Debug)]
pub(super) struct Entry {
    /// Without a leading slash.
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
    pub(super) kind: Kind,
}

impl Entry {
    fn new(path: impl Into<String>, bytes: &[u8], kind: Kind) -> Self {
        Entry { path: path.into(), bytes: bytes.to_vec(), kind }
    }

    pub(super) fn mode(&self) -> u32 {
        if self.kind == Kind::Program { 0o755 } else { 0o644 }
    }
}

/// Entries by path; `gzip` compresses texts where that is the custom.
pub(super) fn entries(parts: &Parts, layout: Layout, gzip: impl Fn(&[u8]) -> Vec<u8>) -> Vec<Entry> {
    let (zsh, options) = match layout {
        Layout::Debian => ("zsh/vendor-completions", "etc/default/kfd-trace"),
        Layout::Rpm => ("zsh/site-functions", "etc/sysconfig/kfd-trace"),
        Layout::Tarball => ("zsh/site-functions", "etc/default/kfd-trace"),
    };
    let docs = "usr/share/doc/kfd-trace";
    let licences = if layout == Layout::Rpm { "usr/share/licenses/kfd-trace" } else { docs };
    // Where the others have AppArmor at all, its folder is the administrator's.
    let (profile, kind) = match layout {
        Layout::Debian => ("etc/apparmor.d/kfd-trace", Kind::Config),
        Layout::Rpm | Layout::Tarball => ("usr/share/kfd-trace/apparmor/kfd-trace", Kind::Plain),
    };
    let [bash_script, zsh_script, fish_script] = &parts.completions;
    let shell = |path: &str, script: &[u8]| Entry::new(format!("usr/share/{path}"), script, Kind::Plain);
    let mut all = vec![
        Entry::new("usr/bin/kfd-trace", &parts.binary, Kind::Program),
        Entry::new(options, &parts.options, Kind::Config),
        Entry::new(profile, &parts.apparmor, kind),
        shell("bash-completion/completions/kfd-trace", bash_script),
        shell(&format!("{zsh}/_kfd-trace"), zsh_script),
        shell("fish/vendor_completions.d/kfd-trace.fish", fish_script),
    ];
    for (name, text) in &parts.units {
        all.push(Entry::new(format!("usr/lib/systemd/system/{name}"), text, Kind::Plain));
    }
    for (name, text) in &parts.pages {
        all.push(Entry::new(format!("usr/share/man/man1/{name}.gz"), &gzip(text), Kind::Doc));
    }
    for (path, text) in &parts.deploy {
        all.push(Entry::new(format!("usr/share/kfd-trace/{path}"), text, Kind::Plain));
    }
    all.extend(parts.docs.iter().map(|(name, text)| Entry::new(format!("{docs}/{name}"), text, Kind::Doc)));
    for (name, text) in &parts.licences {
        all.push(Entry::new(format!("{licences}/{name}"), text, Kind::Licence));
    }
    all.sort_by(|one, other| one.path.cmp(&other.path));
    all
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn parts() -> Parts {
        let file = |name: &str| (name.to_owned(), name.as_bytes().to_vec());
        Parts {
            binary: b"ELF".to_vec(),
            pages: vec![file("kfd-trace.1"), file("kfd-trace-ps.1")],
            completions: [b"bash".to_vec(), b"zsh".to_vec(), b"fish".to_vec()],
            units: vec![file("kfd-trace.service"), file("kfd-trace-driver-types.service")],
            options: b"KFD_TRACE_OPTS=".to_vec(),
            apparmor: b"profile".to_vec(),
            deploy: vec![file("prometheus/kfd-trace.rules.yml")],
            docs: vec![file("web.md")],
            licences: vec![file("LICENSE-MIT")],
        }
    }

    fn paths(layout: Layout, kind: Kind) -> Vec<String> {
        let all = entries(&parts(), layout, <[u8]>::to_vec);
        all.into_iter().filter(|entry| entry.kind == kind).map(|entry| entry.path).collect()
    }

    #[test]
    fn each_distribution_has_its_places() {
        assert_eq!(
            paths(Layout::Debian, Kind::Config),
            ["etc/apparmor.d/kfd-trace", "etc/default/kfd-trace"]
        );
        assert_eq!(paths(Layout::Rpm, Kind::Config), ["etc/sysconfig/kfd-trace"]);
        assert_eq!(paths(Layout::Rpm, Kind::Licence), ["usr/share/licenses/kfd-trace/LICENSE-MIT"]);
        assert_eq!(paths(Layout::Debian, Kind::Licence), ["usr/share/doc/kfd-trace/LICENSE-MIT"]);
        assert!(
            paths(Layout::Debian, Kind::Plain)
                .contains(&"usr/share/zsh/vendor-completions/_kfd-trace".into())
        );
        assert_eq!(paths(Layout::Tarball, Kind::Config), ["etc/default/kfd-trace"]);
        let doc = |name: &str| format!("usr/share/{name}");
        let docs = ["doc/kfd-trace/web.md", "man/man1/kfd-trace-ps.1.gz", "man/man1/kfd-trace.1.gz"].map(doc);
        assert_eq!(paths(Layout::Debian, Kind::Doc), docs);
    }

    #[test]
    fn only_the_program_may_be_run() {
        let all = entries(&parts(), Layout::Debian, <[u8]>::to_vec);
        let run: Vec<_> = all.iter().filter(|entry| entry.mode() != 0o644).map(|entry| &entry.path).collect();
        assert_eq!(run, ["usr/bin/kfd-trace"]);
    }
}
