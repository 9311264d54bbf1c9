use super::*;
use crate::kernel::{Loading, Roots};
use crate::model::event::Body;
use crate::state::samples::{event, seen};
use crate::tracer::reconcile::scan::samples::begun;
use std::fs;

/// What two scans report of a process that neither sysfs nor procfs has; the driver may be loaded again
/// before the first one.
fn reported(reloaded: bool) -> Vec<Body> {
    let root = tempfile::tempdir().unwrap();
    let sysfs = root.path();
    for folder in ["module/amdgpu", "module/next", "class/kfd/kfd/proc"] {
        fs::create_dir_all(sysfs.join(folder)).unwrap();
    }
    let mut tracer =
        Tracer::idle(&Roots { procfs: sysfs.join("proc"), sysfs: sysfs.to_owned(), ..Roots::default() });
    tracer.loading = Loading::read(sysfs).unwrap();
    tracer.state.apply(&event(10, 1, 4711, seen(false)));
    if reloaded {
        fs::rename(sysfs.join("module/amdgpu"), sysfs.join("module/old")).unwrap();
        fs::rename(sysfs.join("module/next"), sysfs.join("module/amdgpu")).unwrap();
    }
    let looks = [(); 2].map(|()| tracer.reconcile(begun(sysfs, false, &[]).finish()));
    looks.into_iter().flatten().map(|(event, _)| event.body).collect()
}

#[test]
fn lists_of_another_loading_of_the_driver_do_not_apply_to_the_rows() {
    assert_eq!(reported(false), [Body::ProcessRelease], "gone by two looks in a row");
    assert_eq!(reported(true), []);
}

const S: u64 = 1_000_000_000;

/// Looks until a process that released its memory is reported as ended, of which neither sysfs nor procfs has anything.
/// `over`: its release is known to be over.
fn ended(over: bool) -> bool {
    let root = tempfile::tempdir().unwrap();
    let sysfs = root.path();
    for folder in ["module/amdgpu", "class/kfd/kfd/proc"] {
        fs::create_dir_all(sysfs.join(folder)).unwrap();
    }
    let mut tracer =
        Tracer::idle(&Roots { procfs: sysfs.join("proc"), sysfs: sysfs.to_owned(), ..Roots::default() });
    tracer.loading = Loading::read(sysfs).unwrap();
    let now_ns = clock::mono_ns();
    tracer.state.apply(&event(now_ns - 4 * S, 1, 4711, seen(false)));
    tracer.state.apply(&event(now_ns - 3 * S, 1, 4711, Body::MmRelease));
    if over {
        tracer.pending.released.insert(ProcessId(1));
    }
    let looks = [(); 3].map(|()| tracer.reconcile(begun(sysfs, false, &[]).finish()));
    assert!(tracer.pending.released.is_empty() || !over, "it is remembered as long as it has a row");
    looks.into_iter().flatten().any(|(event, _)| event.body == Body::ProcessRelease)
}

#[test]
fn a_release_whose_return_was_missed_is_not_waited_for() {
    assert!(ended(true));
    assert!(!ended(false), "the driver may be freeing its memory");
}
