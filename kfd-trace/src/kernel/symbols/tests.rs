use super::*;

const TEXT: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81200000 t update_queue
ffffffffc0a00010 t update_mqd\t[amdgpu]
ffffffffc0a00020 t update_queue\t[amdgpu]
ffffffffc0a00030 t update_mqd\t[amdgpu]
ffffffffc0a00040 t init_user_queue.constprop.0\t[amdgpu]
ffffffffc0a00050 d kfd_fops\t[amdgpu]
ffffffffc0b00000 t update_mqd\t[other]
";

#[test]
fn duplicates_are_kept_in_file_order() {
    let symbols = Symbols::parse(TEXT.as_bytes());
    let addresses =
        |found: Vec<Symbol<'_>>| found.iter().map(|s| s.address & 0xffff_ffff).collect::<Vec<_>>();
    assert_eq!(addresses(symbols.find("update_mqd")), [0xc0a0_0010, 0xc0a0_0030, 0xc0b0_0000]);
    assert_eq!(addresses(symbols.find_in(Some("amdgpu"), "update_mqd")), [0xc0a0_0010, 0xc0a0_0030]);
    assert_eq!(addresses(symbols.find_in(None, "update_queue")), [0x8120_0000]);
    assert_eq!((symbols.len(), symbols.malformed_lines()), (9, 0));
}

#[test]
fn unique_counts_every_module_and_the_image() {
    let symbols = Symbols::parse(TEXT.as_bytes());
    assert!(symbols.is_unique("kfd_fops"));
    assert!(!symbols.is_unique("update_queue"));
    assert!(!symbols.is_unique("no_such"));
    assert!(!symbols.is_unique("init_user_queue"), "a suffix belongs to the name");
    assert!(symbols.is_unique("init_user_queue.constprop.0"));
}

#[test]
fn modules_and_types_are_read() {
    let symbols = Symbols::parse(TEXT.as_bytes());
    assert!(symbols.has_module("amdgpu") && !symbols.has_module("kfd"));
    let fops = symbols.find("kfd_fops")[0];
    assert_eq!((fops.kind, fops.module, fops.is_code()), ('d', Some("amdgpu"), false));
    assert_eq!(symbols.find("_stext")[0].module, None);
    let names: Vec<_> = symbols.in_module("amdgpu").map(|(name, _)| name).collect();
    assert_eq!(names.len(), 5);
    assert_eq!(names[4], "kfd_fops");
    assert_eq!(symbols.in_module("nothing").count(), 0);
}

#[test]
fn hidden_addresses_are_noticed() {
    assert!(!Symbols::parse(TEXT.as_bytes()).addresses_hidden());
    assert!(Symbols::parse(b"0000000000000000 T a\n0000000000000000 t b\t[amdgpu]\n").addresses_hidden());
    assert!(!Symbols::parse(b"").addresses_hidden());
}

#[test]
fn what_is_no_symbol_is_counted() {
    let text = b"hello\n12 t\n12 t \n12 t a\tb\n12345678123456789 t a\n t a\n12 t \xff\n1 t good";
    let symbols = Symbols::parse(text);
    assert_eq!((symbols.len(), symbols.malformed_lines()), (1, 7));
}

#[test]
fn a_module_has_a_plain_name() {
    let symbols = Symbols::parse(b"12 t a\t[]\n12 t b\t[\x1b[2J]\n12 t c\t[\xff]\n12 t d\t[x86_pkg]\n");
    assert_eq!((symbols.len(), symbols.malformed_lines()), (1, 3));
    assert!(symbols.has_module("x86_pkg"));
}

/// The maximum number of modules, each of which recurs after all others.
#[test]
fn tens_of_thousands_of_modules_are_no_search() {
    let lines = |round: u32| (0..65_000).map(move |module| format!("{round} t s\t[m{module}]\n"));
    let text: String = (1..=4).flat_map(lines).collect();
    let begin = std::time::Instant::now();
    let symbols = Symbols::parse(text.as_bytes());
    assert_eq!((symbols.len(), symbols.malformed_lines()), (260_000, 0));
    assert!(begin.elapsed() < std::time::Duration::from_secs(30), "{:?}", begin.elapsed());
    assert_eq!(
        symbols.in_module("m64999").map(|(_, symbol)| symbol.address).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
}

#[test]
fn a_missing_or_empty_file_is_an_error() {
    let procfs = tempfile::tempdir().unwrap();
    assert!(matches!(Symbols::read(procfs.path()), Err(SymbolError::Read { .. })));
    std::fs::write(procfs.path().join("kallsyms"), "\n").unwrap();
    assert!(matches!(Symbols::read(procfs.path()), Err(SymbolError::Empty { .. })));
    std::fs::write(procfs.path().join("kallsyms"), TEXT).unwrap();
    assert_eq!(Symbols::read(procfs.path()).unwrap().len(), 9);
}

#[test]
fn a_name_is_checked_in_all_of_its_bytes() {
    for place in 0..20 {
        for odd in [b' ', b'\t', b'\r', 0, 0x7f, 0x80, 0xff] {
            let mut line = b"ffffffff81000000 t abcdefghijklmnopqrst".to_vec();
            line[19 + place] = odd;
            let symbols = Symbols::parse(&line);
            assert_eq!((symbols.len(), symbols.malformed_lines()), (0, 1), "{odd:#x} at {place}");
        }
    }
    let symbols = Symbols::parse(&b"1 t !\n1 t ~~~~~~~~!!!!!!!!~\n1 t a]\n1 t b\t[c]d]\n1 t e]\t[f]\n"[..]);
    assert_eq!((symbols.len(), symbols.malformed_lines()), (4, 1));
    assert!(symbols.is_unique("a]") && symbols.has_module("f") && symbols.find("e]").len() == 1);
}

#[test]
fn of_a_module_alone_no_name_is_known_to_be_unique() {
    let names: [(u64, u8, &[u8]); 2] =
        [(16, b't', b"update_mqd"), (0xffff_ffff_c0a0_0020, b'd', b"kfd_fops")];
    let symbols = Symbols::of_module(names.into_iter(), "amdgpu");
    let address = |name| symbols.find_in(Some("amdgpu"), name).first().map(|symbol| symbol.address);
    assert_eq!((address("update_mqd"), address("kfd_fops")), (Some(16), Some(0xffff_ffff_c0a0_0020)));
    assert!(
        !symbols.is_unique("update_mqd") && symbols.has_module("amdgpu") && symbols.malformed_lines() == 0
    );
}
