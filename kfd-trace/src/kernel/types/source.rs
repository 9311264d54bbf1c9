//! Sources of the driver's types, and what became of them.

use std::fmt;
use std::path::PathBuf;

/// Where to look for types of a driver that has none of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypesPlaces {
    /// `--driver-btf`
    pub file: Option<PathBuf>,
    /// `--path.drivers`
    pub folder: PathBuf,
    /// Types that were refuted by the running driver: the source and why. They are not used again.
    pub refuted: Vec<(TypesSource, String)>,
}

impl Default for TypesPlaces {
    fn default() -> Self {
        TypesPlaces { file: None, folder: PathBuf::from(DRIVERS), refuted: Vec::new() }
    }
}

/// Default of `--path.drivers`; `kfd-trace driver-types` writes there.
pub const DRIVERS: &str = "/var/lib/kfd-trace/drivers";

/// Source of the driver's types.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TypesSource {
    /// BTF of the module.
    Module,
    /// The driver is built in: BTF of the image.
    Image,
    File(PathBuf),
    /// The shipped table's entry of this version.
    Table(String),
    #[default]
    None,
}

impl TypesSource {
    /// The name in metrics and JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            TypesSource::Module | TypesSource::Image => "kernel",
            TypesSource::File(_) => "file",
            TypesSource::Table(_) => "table",
            TypesSource::None => "none",
        }
    }

    /// Whether the running kernel vouches for them.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        matches!(self, TypesSource::Module | TypesSource::Image)
    }
}

impl fmt::Display for TypesSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypesSource::Module => f.write_str("the kernel (BTF of amdgpu)"),
            TypesSource::Image => f.write_str("the kernel (BTF of vmlinux)"),
            TypesSource::File(path) => write!(f, "file {}", path.display()),
            TypesSource::Table(version) => write!(f, "shipped table, driver {version}"),
            TypesSource::None => f.write_str("none"),
        }
    }
}

/// What is known of the types that a tracer uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypesReport {
    pub source: TypesSource,
    /// Whether the running driver agreed with all of them; `None` if they need not be compared.
    pub agree: Option<bool>,
    /// Sources that the driver contradicted, and how.
    pub refuted: Vec<(TypesSource, String)>,
}

impl TypesReport {
    /// The value of the label `checked`.
    #[must_use]
    pub fn checked(&self) -> &'static str {
        match self.agree {
            None => "not_needed",
            Some(true) => "agrees",
            Some(false) => "pending",
        }
    }
}

impl fmt::Display for TypesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checked = match self.agree {
            None => "",
            Some(true) => ", agrees with the driver",
            Some(false) => ", not yet compared with a queue of the driver",
        };
        write!(f, "{}{checked}", self.source)
    }
}
