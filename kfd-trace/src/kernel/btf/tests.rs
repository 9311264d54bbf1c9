//! Tests of the reader with hand-written BTF; for real kernels see tests/kernel_fixtures.rs.

use super::write::BtfWriter;
use super::*;
use std::sync::Arc;

fn at(offset: u32, size: u32) -> Result<Member, BtfError> {
    Ok(Member { offset, size })
}

/// A queue as in the driver, with everything that a path can contain.
fn queue_sample() -> BtfWriter {
    let mut types = BtfWriter::new();
    let int = types.int("unsigned int", 4);
    let long = types.int("long", 8);
    let u32_type = types.typedef("uint32_t", int);
    let constant = types.constant(u32_type);
    let inner = types.strukt("", 8, &[("low", int, 0), ("high", constant, 32)]);
    let either = types.union("", 8, &[("whole", long, 0), ("", inner, 0)]);
    let properties = types.strukt(
        "queue_properties",
        24,
        &[("type", int, 0), ("queue_id", u32_type, 64), ("", either, 128)],
    );
    let pointer = types.pointer(properties);
    let slots = types.array(properties, 3);
    let grid_row = types.array(int, 4);
    let grid = types.array(grid_row, 2);
    let flexible = types.array(long, 0);
    types.strukt(
        "queue",
        160,
        &[
            ("mqd", pointer, 0),
            ("properties", properties, 320),
            ("slots", slots, 512),
            ("grid", grid, 1088),
            ("rest", flexible, 1280),
        ],
    );
    types.packed("flags", 4, &[("bit", int, 1 << 24), ("word", int, 0), ("odd", int, 3)]);
    let partial = types.partial_int("unsigned int", 4, 3);
    types.strukt("old_flags", 4, &[("bits", partial, 0)]);
    types.enumeration("kfd_queue_type", false, &[("COMPUTE", 0), ("SDMA", 1), ("LAST", 0xffff_ffff)]);
    types.enumeration("errors", true, &[("BAD", 0xffff_ffff)]);
    types.enumeration64("wide", &[("HUGE", 1, 1), ("MINUS", 0xffff_ffff, 0xffff_ffff)]);
    types
}

#[test]
fn paths_go_through_nesting_typedefs_and_arrays() {
    let btf = queue_sample().btf();
    assert_eq!(btf.offset_of("queue", "properties"), at(40, 24));
    assert_eq!(btf.offset_of("queue", "properties.queue_id"), at(48, 4));
    assert_eq!(btf.offset_of("queue", "mqd"), at(0, 8));
    assert_eq!(btf.offset_of("queue", "properties.whole"), at(56, 8));
    assert_eq!(btf.offset_of("queue", "properties.high"), at(60, 4));
    assert_eq!(btf.offset_of("queue", "slots"), at(64, 72));
    assert_eq!(btf.offset_of("queue", "slots[2].queue_id"), at(64 + 48 + 8, 4));
    assert_eq!(btf.offset_of("queue", "grid[1][2]"), at(136 + 16 + 8, 4));
    assert_eq!(btf.offset_of("queue", "rest"), at(160, 0));
    assert_eq!(btf.offset_of("queue", "rest[2]"), at(176, 8));
    assert_eq!(btf.size_of("queue_properties"), Ok(24));
    assert!(btf.struct_exists("queue") && !btf.struct_exists("kfd_queue_type"));
}

#[test]
fn what_is_missing_is_named() {
    let btf = queue_sample().btf();
    let error = |strukt: &str, path: &str| btf.offset_of(strukt, path).unwrap_err().to_string();
    assert_eq!(error("kfd_node", "id"), "no struct kfd_node");
    assert_eq!(error("queue", "process"), "struct queue has no member process");
    assert_eq!(error("queue", "properties.vmid"), "struct queue_properties has no member vmid");
    assert!(error("queue", "mqd.type").contains("mqd in the path is not a structure"));
    assert!(error("queue", "mqd[0]").contains("not an array"));
    assert!(error("queue", "slots[3]").contains("index 3 of slots, which has 3"));
    assert!(error("queue", "slots.type").contains("slots in the path is not a structure"));
    assert_eq!(btf.size_of("nothing"), Err(BtfError::NoStruct { name: "nothing".into() }));
    assert_eq!(btf.enum_values("queue"), Err(BtfError::NoEnum { name: "queue".into() }));
    for path in ["", ".", "a.", "a[", "a[x]", "a[0]b", "a b", "a[-1]"] {
        assert_eq!(btf.offset_of("queue", path), Err(BtfError::BadPath { path: path.into() }));
    }
}

#[test]
fn bitfields_are_refused() {
    let btf = queue_sample().btf();
    for (strukt, member) in [("flags", "bit"), ("flags", "odd"), ("old_flags", "bits")] {
        let error = BtfError::Bitfield { strukt: strukt.into(), member: member.into() };
        assert_eq!(btf.offset_of(strukt, member), Err(error));
    }
    assert_eq!(btf.offset_of("flags", "word"), at(0, 4));
}

#[test]
fn enums_keep_order_and_sign() {
    let btf = queue_sample().btf();
    let named = |list: &[(&str, i64)]| list.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect::<Vec<_>>();
    let queue_types = named(&[("COMPUTE", 0), ("SDMA", 1), ("LAST", 0xffff_ffff)]);
    assert_eq!(btf.enum_values("kfd_queue_type"), Ok(queue_types));
    assert_eq!(btf.enum_values("errors"), Ok(named(&[("BAD", -1)])));
    assert_eq!(btf.enum_values("wide"), Ok(named(&[("HUGE", 0x1_0000_0001), ("MINUS", -1)])));
}

#[test]
fn a_module_sees_its_base_and_prefers_its_own() {
    let mut base = BtfWriter::new();
    let int = base.int("int", 4);
    base.strukt("queue", 4, &[("elevator", int, 0)]);
    let list = base.strukt("list_head", 16, &[]);
    let mut module = BtfWriter::on(&base);
    module.strukt("queue", 20, &[("list", list, 0), ("id", int, 128)]);
    let vmlinux = base.btf();
    let amdgpu = Btf::parse(module.bytes(), Some(Arc::clone(&vmlinux))).unwrap();
    assert_eq!(amdgpu.offset_of("queue", "id"), at(16, 4));
    assert_eq!(amdgpu.offset_of("queue", "list"), at(0, 16));
    assert_eq!(amdgpu.size_of("list_head"), Ok(16));
    assert_eq!(vmlinux.offset_of("queue", "elevator"), at(0, 4));
    assert!(amdgpu.offset_of("queue", "elevator").is_err());
}

#[test]
fn same_name_must_agree() {
    let mut types = BtfWriter::new();
    let int = types.int("int", 4);
    types.strukt("twin", 8, &[("same", int, 0), ("moved", int, 32)]);
    types.strukt("twin", 12, &[("same", int, 0), ("moved", int, 64), ("only", int, 32)]);
    types.enumeration("choice", false, &[("A", 0)]);
    types.enumeration("choice", false, &[("A", 1)]);
    let btf = types.btf();
    let ambiguous = |name: &str| BtfError::Ambiguous { name: name.into(), copies: 2 };
    assert_eq!(btf.offset_of("twin", "same"), at(0, 4));
    assert_eq!(btf.offset_of("twin", "moved"), Err(ambiguous("twin")));
    assert_eq!(
        btf.offset_of("twin", "only"),
        Err(ambiguous("twin")),
        "the other may be the one that is meant"
    );
    assert_eq!(btf.size_of("twin"), Err(ambiguous("twin")));
    assert_eq!(btf.enum_values("choice"), Err(ambiguous("choice")));
    assert!(matches!(btf.offset_of("twin", "absent"), Err(BtfError::NoMember { .. })));
}

#[test]
fn cycles_end() {
    let mut types = BtfWriter::new();
    // Type 1 is a typedef of itself, 2 a structure with 40 anonymous copies of itself, 3 an array of itself.
    types.typedef("loop", 1);
    let selves = [("", 2, 0); 40];
    types.strukt("nest", 4, &selves);
    types.array(3, 2);
    types.strukt("holder", 4, &[("typedef", 1, 0), ("array", 3, 0)]);
    let btf = types.btf();
    assert_eq!(btf.offset_of("nest", "x"), Err(BtfError::TooDeep { id: 2 }));
    assert_eq!(btf.offset_of("holder", "typedef"), Err(BtfError::TooDeep { id: 1 }));
    assert_eq!(btf.offset_of("holder", "array"), Err(BtfError::TooDeep { id: 3 }));
}

/// 12 levels of 8 anonymous structures each: a search that follows all of them would not end.
#[test]
fn a_wide_tree_ends() {
    let mut types = BtfWriter::new();
    let mut below = types.int("int", 4);
    for _ in 0..12 {
        below = types.strukt("", 4, &[("", below, 0); 8]);
    }
    types.strukt("tree", 4, &[("", below, 0)]);
    assert!(matches!(types.btf().offset_of("tree", "x"), Err(BtfError::TooWide { .. })));
}

/// One anonymous structure of many members, in thousands of structures of one name.
#[test]
fn many_structures_of_one_name_end() {
    let mut types = BtfWriter::new();
    let int = types.int("int", 4);
    let wide = types.strukt("", 4, &vec![("other", int, 0); 60_000]);
    for _ in 0..20_000 {
        types.strukt("queue", 4, &[("", wide, 0)]);
    }
    assert!(matches!(types.btf().offset_of("queue", "x"), Err(BtfError::TooWide { .. })));
}

/// A name of a megabyte, which any number of enumerators could share: it is not copied.
#[test]
fn a_name_without_an_end_costs_nothing() {
    let name = "n".repeat(1 << 20);
    let mut types = BtfWriter::new();
    let int = types.int(&name, 4);
    types.enumeration("choice", false, &[("last", 3)]);
    types.strukt("holder", 8, &[("last", int, 32)]);
    let mut bytes = types.bytes();
    let types_end = 24 + u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    // After the record of the integer and that of the enum; its text follows the long name.
    let enumerator = 24 + 16 + 12;
    assert_eq!(bytes[enumerator..enumerator + 4], (1u32 + (1 << 20) + 1).to_le_bytes());
    bytes[enumerator..enumerator + 4].copy_from_slice(&1u32.to_le_bytes());
    let btf = Btf::parse(bytes, None).unwrap();
    let error = btf.enum_values("choice").unwrap_err();
    assert_eq!(error, BtfError::Malformed { what: "a name of more than 511 bytes", at: types_end + 1 });
    assert_eq!(btf.offset_of("holder", "last"), at(4, 4));
}

#[test]
fn a_structure_without_a_plain_name_is_reported_by_its_number() {
    let mut types = BtfWriter::new();
    let inner = types.strukt("a\x1b[2J\nb", 4, &[]);
    types.strukt("holder", 4, &[("inner", inner, 0)]);
    let error = types.btf().offset_of("holder", "inner.x").unwrap_err();
    assert_eq!(error.to_string(), "struct type 1 has no member x");
}

#[test]
fn a_missing_member_is_reported_with_its_place() {
    let mut types = BtfWriter::new();
    types.strukt("holder", 4, &[("far", 77, 0)]);
    let error = types.btf().offset_of("holder", "far").unwrap_err();
    assert_eq!(error.to_string(), "type 77 is referred to, and the types end before 2");
    let mut bytes = types.bytes();
    let name = 24 + 12;
    bytes[name..name + 4].copy_from_slice(&500u32.to_le_bytes());
    let strings = 24 + 24;
    let error = Btf::parse(bytes, None).unwrap().offset_of("holder", "far").unwrap_err();
    assert_eq!(error, BtfError::Malformed { what: "a name beyond the strings", at: strings + 500 });
}

#[test]
fn sections_keep_to_themselves() {
    let whole = queue_sample().bytes();
    let what = |bytes: Vec<u8>| match Btf::parse(bytes, None) {
        Err(BtfError::Malformed { what, .. }) => what,
        other => panic!("{:?}", other.err()),
    };
    let mut short_types = whole.clone();
    short_types[12] -= 4;
    assert!(what(short_types).contains("beyond the types"));
    let mut open_string = whole.clone();
    *open_string.last_mut().unwrap() = b'x';
    assert!(what(open_string).contains("NUL"));
}

#[test]
fn what_is_not_btf_is_refused() {
    let error = |bytes: &[u8]| Btf::parse(bytes.to_vec(), None).err().unwrap();
    assert!(matches!(error(b""), BtfError::Malformed { .. }));
    assert_eq!(error(&[0xeb, 0x9f, 1, 0]), BtfError::NotBtf { magic: 0x9feb });
    let mut version = queue_sample().bytes();
    version[2] = 2;
    assert!(matches!(error(&version), BtfError::Malformed { .. }));
    let mut types = BtfWriter::new();
    types.int("int", 4);
    types.unknown();
    assert_eq!(error(&types.bytes()), BtfError::UnknownKind { id: 2, kind: 31 });
}

fn ask_everything(btf: &Btf) {
    for strukt in ["queue", "queue_properties", "flags", "old_flags", "nothing"] {
        for path in ["properties.queue_id", "slots[1].high", "grid[1][1]", "rest[7]", "mqd", "bit", "bits"] {
            let _ = btf.offset_of(strukt, path);
        }
        let _ = btf.size_of(strukt);
    }
    for name in ["kfd_queue_type", "errors", "wide"] {
        let _ = btf.enum_values(name);
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let whole = queue_sample().bytes();
    for end in 0..whole.len() {
        assert!(Btf::parse(whole[..end].to_vec(), None).is_err(), "cut off at {end}");
    }
    let base = queue_sample().btf();
    let mut parsed = 0;
    for position in 0..whole.len() {
        for change in [0x01, 0x04, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[position] ^= change;
            for base in [None, Some(Arc::clone(&base))] {
                if let Ok(btf) = Btf::parse(bytes.clone(), base) {
                    ask_everything(&btf);
                    parsed += 1;
                }
            }
        }
    }
    assert!(parsed > 1000, "only {parsed} mutations reached the queries");
}

#[test]
fn a_function_is_known_by_its_id() {
    let mut types = BtfWriter::new();
    let int = types.int("int", 4);
    types.strukt("bpf_iter_ksym", 4, &[("meta", int, 0)]);
    let function = types.function("bpf_iter_ksym", 0);
    let base = types.btf();
    assert_eq!((base.function("bpf_iter_ksym"), base.function("bpf_iter_task")), (Some(function), None));
    let mut module = BtfWriter::on(&types);
    let own = module.function("kfd_ioctl", 0);
    let module = Btf::parse(module.bytes(), Some(base)).unwrap();
    assert_eq!((module.function("bpf_iter_ksym"), module.function("kfd_ioctl")), (Some(function), Some(own)));
}
