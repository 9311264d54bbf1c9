//! The kernels at hand: which series of the matrix Debian's archive still has, and what each can run. In: the
//! package index. Out: columns, and one line per series that is left out. Pure but for the index.

use crate::run::note;
use crate::vm::driver::Facts;
use crate::vm::offer::{self, Index, Offer};
use crate::vm::series::Series;
use anyhow::{Context as _, Result, bail};

/// One kernel, with what the choice of its stages depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) series: Series,
    /// The series whose driver it has, or has one like.
    pub(crate) driver: Series,
    /// kfdsim and types can be built: there are headers and source.
    pub(crate) built: bool,
    /// The driver has KFD nodes and supports GC 9.4.3.
    pub(crate) nodes: bool,
    /// The driver looks up the buffers of a queue: kfdsim has MES for it.
    pub(crate) mes: bool,
    /// Everything is run on it, including what is the same on every kernel.
    pub(crate) all: bool,
    /// Its stages leave no test to `cargo xtask test --everything`.
    pub(crate) whole: bool,
    /// Of stages that name tests of what only the newest drivers have, no others are run.
    pub(crate) newest: bool,
    pub(crate) types: Types,
    /// Its only stages; otherwise all that it can run.
    pub(crate) only: Option<&'static [&'static str]>,
}

/// Where the guest's tracer has the driver's types from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Types {
    /// BTF in the module, as Debian builds it; 5.10 has none
    Kernel,
    /// A file of `kfd-trace driver-types`; the module has no BTF
    File,
    /// The tracer's own table: for a driver built elsewhere that has no other types
    #[value(skip)]
    Table,
}

impl Types {
    /// As in the guest's `KFD_VM_TYPES`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::File => "file",
            Self::Table => "table",
        }
    }
}

impl Column {
    pub(crate) fn name(self) -> &'static str {
        self.series.name()
    }

    /// As shown in reports.
    pub(crate) fn title(self) -> String {
        match self.types {
            Types::Kernel => format!("Linux {}", self.name()),
            Types::File => format!("Linux {} with a types file", self.name()),
            Types::Table => format!("Linux {} with the shipped table", self.name()),
        }
    }

    /// The same with a types file, where the module has no BTF.
    pub(crate) fn with_some_types(self) -> Self {
        Self { types: if self.typed() { self.types } else { Types::File }, ..self }
    }

    /// Whether there are types for the fields of the driver.
    pub(crate) fn typed(self) -> bool {
        self.types != Types::Kernel || self.series.has_module_btf()
    }

    /// The same kernel with another driver, for which kfdsim is built.
    pub(crate) fn with(self, driver: Facts, types: Types) -> Self {
        let Facts { nodes, buffers, .. } = driver;
        Self { driver: driver.like(), built: true, nodes, mes: nodes && buffers, all: false, types, ..self }
    }
}

/// The series on which everything is run, most wanted first: of those at hand with kfdsim.
const MOST_WANTED: [Series; 5] = [Series::V6_12, Series::V7_2, Series::V6_1, Series::V7_3, Series::V5_10];

/// The series that the test command runs with a types file, most wanted first. The first has no other types.
const BY_FILE: [Series; 5] = [Series::V5_10, Series::V6_1, Series::V7_2, Series::V6_12, Series::V7_3];

/// The stages that the test command runs with a types file.
const WITH_FILE: [&str; 2] = ["sim", "life"];

/// Its stages of a kernel that is neither that one nor the main one: the verifier and the driver take all
/// probes, and queues are followed from their creation to their end.
const OF_OTHERS: [&str; 1] = ["nohws"];

/// Its stages of the newest one of these: also what only new drivers have, of which the main kernel shows nothing.
const OF_NEWEST: [&str; 2] = ["nohws", "life"];

/// Its stages where kfdsim cannot be built, and of the kernel that it also runs with a types file.
const WITHOUT_GPUS: [&str; 2] = ["no_amdgpu", "no_gpu"];

#[derive(Clone, Debug, Default)]
pub(crate) struct Matrix {
    columns: Vec<Column>,
    left_out: Vec<(Series, String)>,
}

impl Matrix {
    pub(crate) fn find(index: &impl Index) -> Result<Self> {
        let mut matrix = Self::default();
        for series in Series::ALL {
            let built = match offer::of_series(index, series)? {
                Offer::Whole(_) => true,
                Offer::Image(_, why) => {
                    matrix.left_out.push((series, format!("nothing is built for it, {why}")));
                    false
                }
                Offer::Nothing(why) => {
                    matrix.left_out.push((series, format!("left out, {why}")));
                    continue;
                }
            };
            matrix.columns.push(Column {
                series,
                driver: series,
                built,
                nodes: series.has_nodes(),
                mes: series.has_nodes(),
                all: false,
                whole: true,
                newest: false,
                types: Types::Kernel,
                only: None,
            });
        }
        let all = MOST_WANTED.iter().copied().find(|series| matrix.has_whole(*series));
        for column in &mut matrix.columns {
            column.all = Some(column.series) == all;
        }
        Ok(matrix)
    }

    /// Whether a series has kfdsim's GPUs and types in its module.
    fn has_whole(&self, series: Series) -> bool {
        self.of(series).is_some_and(|column| column.built && column.typed())
    }

    /// What the test command runs: everything on one kernel, queues and memory on the one with a types file
    /// in the place of the module's BTF, and a few tests on each other one.
    pub(crate) fn tested(&self) -> Vec<Column> {
        let only = Some(&WITH_FILE[..]);
        let by_file = self.by_file().map(|column| Column { only, whole: false, ..column });
        let is_by_file = |column: &Column| by_file.is_some_and(|one| one.series == column.series);
        let newest = self.columns.iter().rfind(|column| column.built);
        let newest = newest.filter(|column| !column.all && !is_by_file(column));
        let usual = |column: &Column| {
            let newest = newest.is_some_and(|newest| newest.series == column.series);
            let only = match column {
                Column { all: true, .. } => None,
                Column { built: true, .. } if newest => Some(&OF_NEWEST[..]),
                Column { built: true, .. } if !is_by_file(column) => Some(&OF_OTHERS[..]),
                _ => Some(&WITHOUT_GPUS[..]),
            };
            Column { only, whole: false, newest, ..*column }
        };
        by_file.into_iter().chain(self.columns.iter().map(usual)).collect()
    }

    /// What `--everything` runs: all stages of each kernel, those with GPUs of one also with a types file.
    /// `cargo xtask vm --types file` runs these on the others.
    pub(crate) fn everything(&self) -> Vec<Column> {
        self.by_file().into_iter().chain(self.columns.iter().copied()).collect()
    }

    /// The kernel with a types file.
    fn by_file(&self) -> Option<Column> {
        let mut built = BY_FILE.iter().filter_map(|series| self.of(*series)).filter(|column| column.built);
        built.next().map(|column| Column { types: Types::File, all: false, ..column })
    }

    /// One line per series that is not proven or not whole.
    pub(crate) fn show(&self) {
        for (series, why) in &self.left_out {
            note(format!("Linux {}: {why}", series.name()));
        }
    }

    /// In the order of the series.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn of(&self, series: Series) -> Option<Column> {
        self.columns.iter().find(|column| column.series == series).copied()
    }

    /// A series that was requested by name.
    pub(crate) fn column(&self, series: Series) -> Result<Column> {
        self.of(series).with_context(|| self.why(series))
    }

    /// The same, with kfdsim's GPUs and types of the driver.
    pub(crate) fn simulated(&self, series: Series) -> Result<Column> {
        match self.column(series)? {
            column if column.built => Ok(column.with_some_types()),
            _ => bail!("{}", self.why(series)),
        }
    }

    /// The one on which everything is run.
    pub(crate) fn main(&self) -> Result<Column> {
        let main = self.columns.iter().find(|column| column.all).copied();
        main.context("Debian's indexes have no kernel for which kfdsim can be built")
    }

    /// Why a series is not at hand as requested.
    pub(crate) fn why(&self, series: Series) -> String {
        let found = self.left_out.iter().find(|(left_out, _)| *left_out == series);
        let why = found.map_or("nothing of it is missing", |(_, why)| why);
        format!("Linux {}: {why}", series.name())
    }

    pub(crate) fn left_out(&self) -> impl Iterator<Item = Series> {
        Series::ALL.into_iter().filter(|series| self.of(*series).is_none())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::vm::offer::tests::Listed;

    /// An index with a release of each series.
    pub(crate) fn whole() -> Listed {
        Listed::of(&[
            ("5.10.0-46-amd64", "5.10.262-1"),
            ("6.1.0-56-amd64", "6.1.192-2"),
            ("6.12.117+deb12-amd64", "6.12.117-1~deb12u1"),
            ("7.2.12+deb13-amd64", "7.2.12-1~bpo13+1"),
            ("7.3.4+deb13-amd64", "7.3.4-1~bpo13+1"),
        ])
    }

    fn names(matrix: &Matrix) -> Vec<&'static str> {
        matrix.columns().iter().map(|column| column.name()).collect()
    }

    #[test]
    fn a_whole_archive_has_every_series_and_nothing_is_left_out() -> Result<()> {
        let matrix = Matrix::find(&whole())?;
        assert_eq!(names(&matrix), Series::ALL.map(Series::name));
        assert_eq!((matrix.main()?.name(), matrix.left_out.len()), ("6.12", 0));
        assert!(matrix.columns().iter().all(|column| column.built));
        Ok(())
    }

    #[test]
    fn a_series_without_an_image_is_left_out_with_one_line() -> Result<()> {
        let matrix = Matrix::find(&whole().without("linux-image-5.10."))?;
        assert_eq!(names(&matrix), ["6.1", "6.12", "7.2", "7.3"]);
        assert_eq!(matrix.left_out().collect::<Vec<_>>(), [Series::V5_10]);
        let expected = "Linux 5.10: left out, Debian no longer has linux-image-5.10.*";
        assert_eq!(matrix.column(Series::V5_10).unwrap_err().to_string(), expected);
        assert!(matrix.column(Series::V6_1).is_ok());
        Ok(())
    }

    #[test]
    fn a_series_without_headers_boots_without_gpus() -> Result<()> {
        let matrix = Matrix::find(&whole().without("linux-headers-6.12"))?;
        assert_eq!(names(&matrix), Series::ALL.map(Series::name));
        assert!(!matrix.column(Series::V6_12)?.built);
        let why = matrix.simulated(Series::V6_12).unwrap_err().to_string();
        assert!(
            why.starts_with(
                "Linux 6.12: nothing is built for it, Debian no longer has linux-headers-6.12.117"
            )
        );
        assert_eq!(matrix.main()?.name(), "7.2", "what is run once moves to the next one");
        let types = |series| matrix.simulated(series).map(|column| column.types).ok();
        assert_eq!((types(Series::V5_10), types(Series::V6_1)), (Some(Types::File), Some(Types::Kernel)));
        Ok(())
    }

    #[test]
    fn an_archive_without_kernels_is_an_error_only_where_one_is_needed() -> Result<()> {
        let matrix = Matrix::find(&Listed::default())?;
        assert!(matrix.columns().is_empty() && matrix.main().is_err());
        assert_eq!(matrix.left_out().count(), Series::ALL.len());
        let without = Matrix::find(&whole().without("linux-headers").without("linux-source"))?;
        assert!(without.main().is_err() && without.columns().len() == Series::ALL.len());
        Ok(())
    }
}
