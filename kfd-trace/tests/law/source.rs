//! Which file of the crate uses which other: read from the `use` lines and from the paths in the code and in
//! the arguments of macros, without tests.

use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, ItemMod, ItemUse, UseTree, Visibility};

/// A module by its path below the crate: `["state", "apply"]`; the crate itself is empty.
pub(crate) type Module = Vec<String>;

/// The crate's files, as modules.
pub(crate) struct Sources {
    files: BTreeMap<Module, Parsed>,
}

struct Parsed {
    path: PathBuf,
    /// Re-exported names: `pub(crate) use`, by the name under which they are re-exported.
    exports: BTreeMap<String, Vec<String>>,
    /// Absolute paths that its code names.
    names: BTreeSet<Vec<String>>,
}

/// One file uses another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) from: Module,
    pub(crate) to: Module,
}

impl Sources {
    /// Reads `lib.rs` of a folder and every module that it declares, except those of tests.
    pub(crate) fn read(src: &Path) -> Self {
        let mut sources = Sources { files: BTreeMap::new() };
        sources.file(src, &src.join("lib.rs"), Vec::new(), src);
        sources
    }

    fn file(&mut self, src: &Path, path: &Path, module: Module, folder: &Path) {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let parsed: File =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for item in &parsed.items {
            if let Item::Mod(child) = item
                && child.content.is_none()
                && !of_tests(&child.attrs)
            {
                let name = child.ident.to_string();
                let own = folder.join(format!("{name}.rs"));
                let own = if own.exists() { own } else { folder.join(&name).join("mod.rs") };
                let module = [module.as_slice(), std::slice::from_ref(&name)].concat();
                self.file(src, &own, module, &folder.join(name));
            }
        }
        let children = parsed.items.iter().filter_map(|item| match item {
            Item::Mod(child) if child.content.is_none() => Some(child.ident.to_string()),
            _ => None,
        });
        let mut names = Names {
            module: module.clone(),
            children: children.collect(),
            exports: BTreeMap::new(),
            names: BTreeSet::new(),
        };
        names.visit_file(&parsed);
        let path = path.strip_prefix(src).expect("below src").to_owned();
        self.files.insert(module, Parsed { path, exports: names.exports, names: names.names });
    }

    /// The files of an edge, below `src`.
    pub(crate) fn show(&self, edge: &Edge) -> String {
        let path = |module| self.files[module].path.display();
        format!("{} uses {}", path(&edge.from), path(&edge.to))
    }

    pub(crate) fn modules(&self) -> impl Iterator<Item = &Module> {
        self.files.keys()
    }

    /// Every use of a file by another one.
    pub(crate) fn edges(&self) -> BTreeSet<Edge> {
        let mut edges = BTreeSet::new();
        for (from, parsed) in &self.files {
            for name in &parsed.names {
                let to = self.home(name, 0);
                if &to != from {
                    edges.insert(Edge { from: from.clone(), to });
                }
            }
        }
        edges
    }

    /// The file that a path refers to, resolved through re-exports.
    fn home(&self, path: &[String], depth: usize) -> Module {
        assert!(depth < 16, "exports in a circle: {path:?}");
        let known = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]));
        let length = known.unwrap_or(0);
        let module = path[..length].to_vec();
        let Some(next) = path.get(length) else { return module };
        match self.files[&module].exports.get(next) {
            Some(export) => self.home(&[export.as_slice(), &path[length + 1..]].concat(), depth + 1),
            None => module,
        }
    }
}

fn of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

struct Names {
    module: Module,
    /// Modules that this file declares: their paths need no `use`.
    children: BTreeSet<String>,
    exports: BTreeMap<String, Vec<String>>,
    names: BTreeSet<Vec<String>>,
}

impl Names {
    /// The absolute path, if it is one of this crate.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let mut rest = path;
        let mut base = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "super" | "self" => self.module.clone(),
            child if self.children.contains(child) => self.module.clone(),
            _ => return None,
        };
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "super" => {
                    base.pop();
                }
                "crate" | "self" => {}
                _ => break,
            }
            rest = others;
        }
        Some([base.as_slice(), rest].concat())
    }

    fn path(&mut self, path: &[String]) {
        if path.len() > 1
            && let Some(absolute) = self.absolute(path)
        {
            self.names.insert(absolute);
        }
    }

    /// The paths among the arguments of a macro, which are no syntax tree: names joined by `::`.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.path(&std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' => colons += 1,
                other => {
                    self.path(&std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.path(&path);
    }

    fn tree(&mut self, tree: &UseTree, before: &[String], public: bool) {
        match tree {
            UseTree::Path(path) => {
                self.tree(&path.tree, &[before, &[path.ident.to_string()]].concat(), public);
            }
            UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(item, before, public)),
            UseTree::Name(name) if name.ident == "self" => self.leaf(before, None, public),
            UseTree::Name(name) => {
                self.leaf(&[before, &[name.ident.to_string()]].concat(), None, public);
            }
            UseTree::Rename(rename) => {
                let path = [before, &[rename.ident.to_string()]].concat();
                self.leaf(&path, Some(rename.rename.to_string()), public);
            }
            UseTree::Glob(_) => self.leaf(before, None, false),
        }
    }

    fn leaf(&mut self, path: &[String], name: Option<String>, public: bool) {
        let child = |path: &[String]| [self.module.as_slice(), path].concat();
        let absolute = self.absolute(path);
        if public {
            let name = name.or_else(|| path.last().cloned()).expect("a name");
            // A re-export is no use; a first segment without a keyword is a child, or another crate.
            self.exports.insert(name, absolute.unwrap_or_else(|| child(path)));
        } else if let Some(absolute) = absolute {
            self.names.insert(absolute);
        } else {
            let path = child(path);
            self.names.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !of_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.content.is_some() {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let public = !matches!(item.vis, Visibility::Inherited);
        self.tree(&item.tree, &[], public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let path_names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.path(&path_names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}
