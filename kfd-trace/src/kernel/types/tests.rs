use super::*;
use crate::kernel::btf::BtfWriter;

/// A machine with a driver that has no BTF, and a folder for types.
struct Machine {
    root: tempfile::TempDir,
    roots: Roots,
}

impl Machine {
    fn new(version: Option<&str>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("drivers");
        let types = TypesPlaces { folder, ..TypesPlaces::default() };
        let roots = Roots { types, ..Roots::under(root.path()) };
        let machine = Machine { root, roots };
        machine.put("proc/sys/kernel/osrelease", b"5.10.0\n");
        machine.put("sys/module/amdgpu/srcversion", b"7C0E\n");
        if let Some(version) = version {
            machine.put("sys/module/amdgpu/version", version.as_bytes());
        }
        machine
    }

    fn put(&self, path: &str, bytes: &[u8]) -> PathBuf {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn found(&self) -> DriverTypes {
        elsewhere(&self.roots, None)
    }
}

/// Types whose `kfd_process` has this size, of a driver with this source version.
fn types(size: u32, srcversion: Option<&str>) -> Vec<u8> {
    let mut types = BtfWriter::new();
    let process = types.strukt("kfd_process", size, &[]);
    if let Some(srcversion) = srcversion {
        let identity = DriverIdentity {
            srcversion: Some(srcversion.to_owned()),
            release: Some("5.10.0".to_owned()),
            ..DriverIdentity::default()
        };
        for tag in identity.tags() {
            types.tag(process, &tag);
        }
    }
    types.bytes()
}

fn size(found: &DriverTypes) -> Option<u32> {
    found.btf.as_ref().map(|btf| btf.size_of("kfd_process").unwrap())
}

#[test]
fn without_any_place_there_are_no_types() {
    let found = Machine::new(None).found();
    assert_eq!((size(&found), found.source, found.problems), (None, TypesSource::None, vec![]));
}

#[test]
fn the_folder_has_a_file_by_its_name_or_by_its_tags() {
    let machine = Machine::new(None);
    machine.put("drivers/z.btf", &types(5, Some("9999")));
    machine.put("drivers/y.txt", &types(6, Some("7C0E")));
    assert_eq!(size(&machine.found()), None, "another driver's");
    let other = machine.put("drivers/copied.btf", &types(7, Some("7C0E")));
    assert_eq!((size(&machine.found()), machine.found().source), (Some(7), TypesSource::File(other)));
    let own = machine.put("drivers/amdgpu-7C0E-5.10.0.btf", &types(8, None));
    let found = machine.found();
    assert_eq!((size(&found), &found.source), (Some(8), &TypesSource::File(own)));
    assert_eq!(found.problems, [""; 0]);
}

#[test]
fn a_given_file_of_another_driver_is_refused_and_nothing_else_is_taken() {
    let mut machine = Machine::new(None);
    machine.put("drivers/amdgpu-7C0E-5.10.0.btf", &types(8, Some("7C0E")));
    let file = machine.put("given", &types(9, Some("9999")));
    machine.roots.types.file = Some(file);
    let found = machine.found();
    assert_eq!(size(&found), None);
    assert_eq!(found.problems.len(), 1);
    assert!(
        found.problems[0].contains("given: it is of driver 9999, and 7C0E is here"),
        "{:?}",
        found.problems
    );
    machine.put("given", &types(9, None));
    assert_eq!(size(&machine.found()), Some(9), "of another tool: it names no driver");
}

#[test]
fn what_is_no_file_of_types_is_one_line() {
    let mut machine = Machine::new(None);
    for (bytes, expected) in
        [(&b"no BTF"[..], "BTF"), (&BtfWriter::new().bytes()[..], "no struct kfd_process")]
    {
        machine.roots.types.file = Some(machine.put("given", bytes));
        let found = machine.found();
        assert!(found.btf.is_none() && found.problems.len() == 1);
        assert!(found.problems[0].contains(expected), "{:?}", found.problems);
    }
    machine.roots.types.file = Some(machine.root.path().to_owned());
    assert!(machine.found().problems[0].contains("not a file of types"));
    machine.roots.types.file = Some(machine.root.path().join("none"));
    assert!(machine.found().problems[0].contains("No such file"));
}

#[test]
fn split_types_stand_on_those_of_the_kernel() {
    let mut base = BtfWriter::new();
    let int = base.int("int", 4);
    base.strukt("file", 4, &[("private_data", int, 0)]);
    let mut driver = BtfWriter::on(&base);
    driver.strukt("kfd_process", 16, &[("mm", int, 64)]);
    let vmlinux = Arc::new(Btf::parse(base.bytes(), None).unwrap());
    let mut machine = Machine::new(None);
    machine.roots.types.file = Some(machine.put("split", &driver.bytes()));
    let found = elsewhere(&machine.roots, Some(&vmlinux));
    assert_eq!(found.btf.unwrap().offset_of("kfd_process", "mm").unwrap().offset, 8);
    assert_eq!(machine.found().problems.len(), 1, "without them it cannot be read");
}

#[test]
fn refuted_types_are_not_taken_again_and_the_next_place_is_tried() {
    let mut machine = Machine::new(Some("6.12.12"));
    let own = machine.put("drivers/amdgpu-6.12.12-7C0E-5.10.0.btf", &types(8, None));
    let source = TypesSource::File(own);
    machine.roots.types.refuted = vec![(source, "lead_thread is not a task".to_owned())];
    let found = machine.found();
    assert_eq!((size(&found), found.source), (None, TypesSource::None));
    assert!(found.problems[0].contains("contradicts it: lead_thread"), "{:?}", found.problems);
    assert!(found.problems[1].contains("no BTF to compare"), "and the table: {:?}", found.problems);
}
