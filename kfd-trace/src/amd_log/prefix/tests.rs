use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn parsed(line: &str) -> Option<(Prefix, String)> {
    PrefixReader::default()
        .parse(line.as_bytes())
        .map(|(prefix, rest)| (prefix, String::from_utf8_lossy(rest).into_owned()))
}

#[test]
fn prefixes_of_each_version() {
    let same = |pid, tid, style| Prefix { level: 4, time_us: Some(7_270_505_876), pid, tid, style };
    let cases = [
        (
            ":4:rocvirtual.cpp           :869 : 7270505876 us: 157801: [tid:0x7f316f4006c0] text",
            same(Some(157_801), Some(0x7f31_6f40_06c0), Style::Rocm56),
        ),
        (
            ":4:rocvirtual.cpp           :871 : 7270505876 us: [pid:21    tid:0x7f316f4006c0] text",
            same(Some(21), Some(0x7f31_6f40_06c0), Style::Rocm57),
        ),
        (
            ":4:rocvirtual.cpp           :1177: 7270505876 us: [pid:157801 tid: 0x1f6c0] text",
            same(Some(157_801), Some(0x1f6c0), Style::Rocm63),
        ),
        (
            ":4:rocdevice.cpp            :3211: 7270505876d us: [pid:21983 tid: 7f316f4006c0] text",
            same(Some(21_983), Some(0x7f31_6f40_06c0), Style::Rocm632),
        ),
        (":4:                         :0   : 7270505876 us:  text", same(None, None, Style::TimeOnly)),
    ];
    for (line, prefix) in cases {
        assert_eq!(parsed(line), Some((prefix, "text".to_owned())), "{line}");
    }
    let quoted = Prefix { level: 3, time_us: None, pid: None, tid: None, style: Style::Quoted };
    assert_eq!(parsed(":3:rocdevice.cpp:415: Initalizing"), Some((quoted, "Initalizing".to_owned())));
}

#[test]
fn prefixes_behind_other_text_and_paths_of_windows() {
    let found = |line: &str| {
        let (at, prefix, rest) = PrefixReader::default().find(line.as_bytes()).unwrap();
        (line[..at].to_owned(), prefix.level, prefix.time_us, String::from_utf8_lossy(rest).into_owned())
    };
    let text = |before: &str, level, time| (before.to_owned(), level, time, "t".to_owned());
    for before in
        ["", "    ", "> ", "08:00:00 a:1: ", "run.log:4:", "12:", "[1,3]<stderr>:", "0/20 [00:00<?, ?it/s]"]
    {
        assert_eq!(found(&format!("{before}:3:a.cpp:1: 7 us:  t")), text(before, 3, Some(7)));
        assert_eq!(found(&format!("{before}:4:a.cpp:1: t")), text(before, 4, None));
    }
    assert_eq!(found(r":3:C:\src\a.cpp:3100: 7 us:  t"), text("", 3, Some(7)));
    let next = |message: &str| {
        let found = PrefixReader::default().find_next(message.as_bytes());
        found.map(|(at, prefix, _)| (at, prefix.time_us))
    };
    assert_eq!(next("a us: b us: :4:a.cpp:1: 8 us:  t"), Some((12, Some(8))));
    assert_eq!(next("duration: 12 us: :4:a.cpp:1: t"), None, "without a time it may be text of a message");
}

#[test]
fn what_is_no_prefix_is_not_taken_for_one() {
    let long = format!(":4:{}:1: x", "f".repeat(300));
    for line in [
        "",
        ":",
        ":4",
        ":x:a.cpp:1: t",
        "4:a.cpp:1: t",
        ":4:a.cpp:b: t",
        ":4:a.cpp:1 t",
        " :4:a.cpp:1: t",
        ":4:a:1: t",
        &long,
    ] {
        assert_eq!(parsed(line), None, "{line}");
    }
    for line in
        ["run.log:4::x.cpp:100: t", "a.c:3:12: error: b.cpp:1: t", "at 08:00:00: t", "1:2:3:4:5:6:7: t"]
    {
        assert_eq!(PrefixReader::default().find(line.as_bytes()), None, "{line}");
    }
    assert_eq!(parsed(":4:a:1: 99999999999999999 us: t"), None, "no machine runs for so long");
    let (prefix, rest) = parsed(":4:a:1: 1 us: [pid:99999999999 tid:0x1] t").unwrap();
    assert_eq!((prefix.pid, rest.as_str()), (None, "[pid:99999999999 tid:0x1] t"));
}

/// Lines whose pieces are often those of the line before, whole or cut.
fn lines() -> impl Strategy<Value = Vec<String>> {
    let head = select(vec![
        ":4:kernel.cpp               :612 : ",
        ":4:kernel.cpp               :612 :  ",
        ":3:kernel.cpp               :612 : ",
        ":4:kernel.cpp               :6123: ",
        ":4:a:1: ",
        ":4:a:1:",
        r":4:C:\src\a.cpp:3100: ",
        "trainer-1  | :4:a:1: ",
        ":4:",
    ]);
    let time = select(vec![
        "7270505876",
        "7270505877",
        "7270506001",
        "72705058761",
        "7270505",
        "7270505 876",
        "727",
        "",
        "0000000876",
        "0000001876",
        "0000001877",
        "99999999999999999",
        "18446744073709551615",
        "18446744073709551616",
    ]);
    let unit = select(vec![" us: ", " us: ", " us:", "d us: ", "us: ", ""]);
    let who = select(vec![
        "[pid:157801 tid: 0x1f6c0] ",
        "[pid:157801 tid:0x1f6c0] ",
        "[pid:157801 tid: 1f6c0]  ",
        "[pid:157801 tid: 0x1f6c01] ",
        "157801: [tid:0x7f31] ",
        "[pid:99999999999 tid:0x1] ",
        " ",
    ]);
    let text = select(vec![
        "text",
        "",
        " :4:b.cpp:1: 7270505876 us:  t",
        ":4:kernel.cpp               :612 : 8",
        "us: :4:",
    ]);
    let line = (head, time, unit, who, text, 0..400_usize).prop_map(|(head, time, unit, who, text, cut)| {
        let line = [head, time, unit, who, text].concat();
        line[..cut.min(line.len())].to_owned()
    });
    vec(line, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_line_is_read_as_if_it_were_the_first(lines in lines()) {
        let mut reader = PrefixReader::default();
        for line in lines.iter().map(String::as_bytes) {
            prop_assert_eq!(reader.find(line), PrefixReader::default().find(line));
            prop_assert_eq!(reader.find_next(line), PrefixReader::default().find_next(line));
            let slow = PrefixReader::default().within(line).find(|(_, prefix, _)| prefix.time_us.is_some());
            prop_assert_eq!(reader.find_next(line), slow);
        }
    }
}

#[test]
fn what_the_line_before_had_is_not_parsed() {
    let mut reader = PrefixReader::default();
    for line in
        [":4:a:1: 7270505876 us: [pid:7 tid: 0x1f] one", ":4:a:1: 7270505999 us: [pid:7 tid: 0x1f] two"]
    {
        assert!(reader.parse(line.as_bytes()).is_some());
        assert_eq!((&*reader.head, reader.time_ms), (b":4:a:1: 7270505".as_slice(), 7_270_505));
        assert_eq!(
            (&*reader.who, reader.parsed),
            (b"[pid:7 tid: 0x1f]".as_slice(), Some((7, 0x1f, Style::Rocm63)))
        );
    }
    // What is kept is taken for what it is: here it is something else.
    (reader.time_ms, reader.parsed) = (1, Some((8, 9, Style::Rocm63)));
    let (prefix, _) = reader.parse(b":4:a:1: 7270505876 us: [pid:7 tid: 0x1f] three").unwrap();
    assert_eq!((prefix.time_us, prefix.pid, prefix.tid), (Some(1876), Some(8), Some(9)));
}
