use super::{BOOTS, LONGEST, Module, is_wanted, of, once, stage_names, with_stage};
use crate::vm::matrix::{Column, Matrix, Types, tests::whole};
use crate::vm::offer::tests::Listed;
use crate::vm::series::Series;

/// The columns of an index.
fn columns(index: &Listed) -> Vec<Column> {
    Matrix::find(index).expect("a matrix").columns().to_vec()
}

fn names(columns: &[Column], series: Series) -> Vec<&'static str> {
    let own: Vec<Column> = columns.iter().copied().filter(|column| column.series == series).collect();
    of(&own).into_iter().flat_map(|(column, boot)| boot.run(column)).map(|stage| stage.name).collect()
}

/// In the order in which guests are started.
const ALL: [&str; 13] = [
    "install",
    "service",
    "sim",
    "life",
    "tool",
    "no_gpu",
    "soak",
    "mi300",
    "cpx",
    "nohws",
    "mes",
    "locked",
    "no_amdgpu",
];

#[test]
fn each_series_has_the_stages_its_driver_can_run() {
    let columns = columns(&whole());
    assert_eq!(names(&columns, Series::V6_1), ["sim", "life", "no_gpu", "nohws", "no_amdgpu"]);
    assert_eq!(names(&columns, Series::V6_12), ALL);
    let once = ["tool", "install", "service", "soak", "locked"];
    let without: Vec<_> = ALL.into_iter().filter(|name| !once.contains(name)).collect();
    assert_eq!(names(&columns, Series::V7_2), without);
    for column in columns.iter().filter(|column| !column.built) {
        assert_eq!(names(&columns, column.series), ["no_gpu", "no_amdgpu"]);
    }
}

#[test]
fn what_is_run_once_moves_to_another_kernel_where_the_usual_one_is_missing() {
    let left = columns(&whole().without("linux-image-6.12."));
    assert_eq!((names(&left, Series::V6_12).len(), names(&left, Series::V7_2)), (0, ALL.to_vec()));
    let left = columns(&whole().without("linux-headers-6.12"));
    assert_eq!(names(&left, Series::V6_12), ["no_gpu", "no_amdgpu"]);
    assert_eq!(names(&left, Series::V7_2), ALL);
}

#[test]
fn kfdsim_is_inserted_where_it_can_be_built_and_behind_amdgpu() {
    for (column, boot) in of(&columns(&whole())) {
        let modules: Vec<_> = boot.stages(column).flat_map(|stage| stage.modules).collect();
        let at = |wanted: fn(&Module) -> bool| modules.iter().position(|module| wanted(module));
        let kfdsim = at(|module| matches!(module, Module::Kfdsim(_)));
        let amdgpu = at(|module| matches!(module, Module::Amdgpu(_)));
        assert!(kfdsim.is_none() || (column.built && amdgpu < kfdsim), "{}", boot.name);
    }
}

#[test]
fn one_kernel_is_tested_with_a_types_file_and_all_others_by_request() {
    let of = |index: &Listed| Matrix::find(index).expect("a matrix");
    let matrix = of(&whole());
    let usual = |column: Column| {
        let all = names(&[column], column.series);
        all.into_iter().filter(|stage| is_wanted(column, stage, &[])).collect::<Vec<_>>()
    };
    let by_file = |column: &Column| column.types == Types::File;
    let file_of = |matrix: &Matrix| {
        let files: Vec<_> = matrix.tested().into_iter().filter(by_file).collect();
        assert_eq!((files.len(), usual(files[0])), (1, vec!["sim", "life"]));
        files[0].name()
    };
    let sourceless = of(&whole().without("linux-source-5.10"));
    assert_eq!((file_of(&matrix), file_of(&sourceless)), ("5.10", "6.1"));
    let file = |series| Column { types: Types::File, ..matrix.column(series).expect("a column") };
    assert_eq!(usual(file(Series::V7_2)), ["sim", "life", "mi300", "cpx", "nohws", "mes"]);
}

#[test]
fn the_test_command_boots_each_kernel_and_everything_runs_all_stages_of_it() {
    let usual = |column: Column| {
        let all = names(&[column], column.series);
        all.into_iter().filter(|stage| is_wanted(column, stage, &[])).collect::<Vec<_>>()
    };
    let shown = |columns: Vec<Column>| {
        let shown =
            columns.into_iter().map(|column| format!("{}: {}", column.title(), usual(column).join(" ")));
        shown.collect::<Vec<_>>()
    };
    let matrix = Matrix::find(&whole()).expect("a matrix");
    let of_main = format!("Linux 6.12: {}", ALL.join(" "));
    let expected = [
        "Linux 5.10 with a types file: sim life",
        "Linux 5.10: no_gpu no_amdgpu",
        "Linux 6.1: nohws",
        &of_main,
        "Linux 7.2: nohws",
        "Linux 7.3: life nohws",
    ];
    assert_eq!(shown(matrix.tested()), expected);
    let of_7 = "sim life no_gpu mi300 cpx nohws mes no_amdgpu";
    let expected = [
        "Linux 5.10 with a types file: sim life nohws".to_owned(),
        "Linux 5.10: no_gpu no_amdgpu".to_owned(),
        "Linux 6.1: sim life no_gpu nohws no_amdgpu".to_owned(),
        of_main,
        format!("Linux 7.2: {of_7}"),
        format!("Linux 7.3: {of_7}"),
    ];
    assert_eq!(shown(matrix.everything()), expected);
    let without = Matrix::find(&whole().without("linux-headers-7.3")).expect("a matrix").tested();
    let without = shown(without);
    assert!(without.contains(&"Linux 7.3: no_gpu no_amdgpu".to_owned()), "nothing with GPUs can run there");
    assert!(without.contains(&"Linux 7.2: life nohws".to_owned()), "it is the newest then");
}

#[test]
fn what_only_new_drivers_have_is_tested_on_the_newest_kernel() {
    let matrix = Matrix::find(&whole()).expect("a matrix");
    let only = |column: Column| {
        let run = of(&[column]).into_iter().flat_map(|(_, boot)| boot.run(column));
        run.flat_map(move |stage| stage.only(column).map(|begin| format!("{} {begin}", stage.name)))
            .collect::<Vec<_>>()
    };
    for column in matrix.tested() {
        let expected: &[&str] = match column.series {
            Series::V7_3 => &["life contexts::", "life given_up::a_queue"],
            _ => &[],
        };
        assert_eq!(only(column), expected, "{}", column.title());
    }
    assert!(matrix.everything().into_iter().all(|column| only(column).is_empty()), "all tests");
}

#[test]
fn what_another_check_does_too_is_left_to_everything() {
    let left = |columns: Vec<Column>| {
        let main = columns.into_iter().find(|column| column.all).expect("a main one");
        let stages = BOOTS.into_iter().flat_map(|boot| Vec::from_iter(boot.stages(main)));
        stages.flat_map(|stage| stage.left_out(main)).collect::<Vec<_>>()
    };
    let matrix = Matrix::find(&whole()).expect("a matrix");
    assert_eq!(left(matrix.tested()), ["web::goes_on_tracing_beside"]);
    assert!(left(matrix.everything()).is_empty());
}

#[test]
fn the_long_guests_of_all_kernels_come_first() {
    let tested = Matrix::find(&whole()).expect("a matrix").tested();
    let guests = of(&tested);
    let wanted = guests
        .iter()
        .filter(|(column, boot)| boot.run(*column).any(|stage| is_wanted(*column, stage.name, &[])));
    let first = wanted.map(|(column, boot)| format!("{}, {}", column.title(), boot.name)).take(7);
    let expected = [
        "Linux 6.12, debian",
        "Linux 6.12, sim",
        "Linux 5.10 with a types file, sim",
        "Linux 6.12, life",
        "Linux 7.3, life",
        "Linux 5.10 with a types file, life",
        "Linux 6.12, tool",
    ];
    assert_eq!(first.collect::<Vec<_>>(), expected);
    let lasts: Vec<_> = guests.iter().filter_map(|(_, boot)| boot.stages.last()).collect();
    assert!(lasts.iter().all(|stage| LONGEST.contains(&stage.name)), "{lasts:?}");
}

#[test]
fn a_guest_that_is_resumed_runs_one_stage() {
    for (column, boot) in of(&columns(&whole())) {
        let run: Vec<_> = boot.run(column).map(|stage| stage.name).collect();
        match boot.saved {
            Some(_) => assert_eq!(run, [boot.name]),
            None => assert_eq!((boot.name, run), ("debian", vec!["install", "service"])),
        }
        assert!(boot.whole(column).stages.len() >= boot.stages.len(), "{}", boot.name);
    }
}

#[test]
fn what_is_run_once_is_run_on_one_kernel() {
    let columns = columns(&whole());
    let left_out = |column: Column| {
        let wanted = [column];
        let stages = of(&wanted).into_iter().flat_map(|(_, boot)| boot.run(column));
        stages.flat_map(|stage| stage.left_out(column)).count()
    };
    let whole: Vec<_> = columns.iter().filter(|column| left_out(**column) == 0).collect();
    assert_eq!(whole.iter().map(|column| column.name()).collect::<Vec<_>>(), ["6.12"]);
    assert!(once("sim").all(|begin| begin.contains("::")));
}

#[test]
fn a_stage_names_its_guest() {
    let named = |name| with_stage(name).map(|boot| boot.name);
    assert_eq!((named(None), named(Some("cpx")), named(Some("gfx12"))), (Some("life"), Some("cpx"), None));
    assert_eq!((named(Some("install")), named(Some("service"))), (Some("debian"), Some("debian")));
    assert_eq!(named(Some("locked")), Some("locked"));
    let mut all: Vec<_> = stage_names().collect();
    all.dedup();
    assert_eq!(all.len(), BOOTS.iter().map(|boot| boot.stages.len()).sum::<usize>());
}
