use super::*;

/// `SOURCE TEXT` of each entry.
fn read(lines: &[&str]) -> (Vec<String>, Entries) {
    let (mut entries, mut found) = (Entries::default(), Vec::new());
    let mut each = |sources: Option<String>, entry: String| {
        found.push(format!("{}{entry}", sources.map(|source| format!("{source}> ")).unwrap_or_default()));
    };
    for line in lines {
        let mut now = Vec::new();
        entries.line(LogLine::Whole(line.as_bytes()), |source, entry| {
            let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
            let entry = match entry {
                Entry::Log(prefix, message) => format!("{}:{}", prefix.level, text(message)),
                Entry::Foreign(line) => format!("foreign:{}", text(line)),
                other => format!("{other:?}"),
            };
            now.push((source, entry));
        });
        now.into_iter().for_each(|(source, entry)| each(entries.sources.name(source), entry));
    }
    (found, entries)
}

#[test]
fn a_line_of_clr_is_found_behind_other_text_and_behind_another_one() {
    let (found, entries) = read(&[
        ":3:a.cpp:1: 7 us:  one",
        "trainer-1  | :3:a.cpp:1: 7 us:  two",
        "step 1 ... :3:a.cpp:1: 7 us:  three",
        ":4:a.cpp:1: 7 us:  four            :3:b.cpp:1: 8 us:  five:0:c.cpp:1: 9 us:  six",
        "epoch 1: loss 0.25",
        "",
        "   ",
    ]);
    let expected = [
        "3:one",
        "trainer-1> 3:two",
        "3:three",
        "4:four",
        "3:five",
        "0:six",
        "foreign:epoch 1: loss 0.25",
        "Blank",
        "Blank",
    ];
    assert_eq!((found.as_slice(), entries.appended), (expected.map(str::to_owned).as_slice(), 2));
}

#[test]
fn lines_that_a_container_cut_are_joined_by_stream() {
    let cri = |stream: &str, tag: &str, text: &str| format!("2026-09-01T08:00:00.1Z {stream} {tag} {text}");
    let json = |text: &str| format!(r#"{{"log":"{text}","stream":"stderr"}}"#);
    let lines = [
        cri("stderr", "P", "step 1 :3:a.c"),
        cri("stdout", "P", "other "),
        cri("stdout", "F", "text"),
        cri("stderr", "P", "pp:1: 7 us:  o"),
        cri("stderr", "F", "ne"),
        cri("stderr", "F", ":3:a.cpp:1: 7 us:  two"),
        json(":3:a.cpp:1: 7 us:  th"),
        json("ree\\u001b[0m\\n"),
        cri("stderr", "P", "without an end"),
    ];
    let (found, entries) = read(&lines.each_ref().map(String::as_str));
    let partial = "Partial";
    let expected =
        [partial, partial, "foreign:other text", partial, "3:one", "3:two", partial, "3:three", partial];
    assert_eq!((found.as_slice(), entries.unfinished()), (expected.map(str::to_owned).as_slice(), 1));
}

#[test]
fn joined_lines_are_bounded() {
    let part = format!("2026-09-01T08:00:00.1Z stderr P {}", "x".repeat(LONGEST_LINE / 2));
    let end = "2026-09-01T08:00:00.1Z stderr F :3:a.cpp:1: 7 us:  end";
    let (found, entries) = read(&[&part, &part, &part, end, end]);
    assert_eq!(found, ["Partial", "Partial", "Partial", "Overlong", "3:end"]);
    assert_eq!(entries.unfinished(), 0);
}
