//! The verdict of a guest's kernel log. Pure.

/// Messages of a kernel that is no longer sound, and their names here.
const TROUBLE: [(&str, &str); 9] = [
    ("Kernel panic", "panic"),
    ("Oops: ", "oops"),
    ("BUG: soft lockup", "soft lockup"),
    ("BUG: ", "kernel bug"),
    ("kernel BUG at ", "kernel bug"),
    ("general protection fault", "general protection fault"),
    ("self-detected stall", "RCU stall"),
    ("detected stalls on CPUs", "RCU stall"),
    ("blocked for more than", "hung task"),
];

/// The first sign of trouble in a kernel log: its name, its line, and the line's index.
pub(crate) fn trouble(log: &str) -> Option<(&'static str, &str, usize)> {
    log.lines().enumerate().find_map(|(at, line)| Some((sign(after_stamp(line))?, line.trim_end(), at)))
}

/// The lines around one: what led to it, and the registers and calls that the kernel prints after it.
pub(crate) fn around(log: &str, at: usize) -> impl Iterator<Item = &str> {
    const BEFORE: usize = 20;
    const AFTER: usize = 60;
    let from = at.saturating_sub(BEFORE);
    log.lines().skip(from).take(at - from + 1 + AFTER)
}

fn sign(text: &str) -> Option<&'static str> {
    // Drivers may have the word within a message; the kernel's own warning begins with it.
    if text.starts_with("WARNING: ") {
        return Some("kernel warning");
    }
    TROUBLE.iter().find(|(sign, _)| text.contains(sign)).map(|(_, name)| *name)
}

/// The text after the kernel's `[   12.345678] `.
fn after_stamp(line: &str) -> &str {
    line.strip_prefix('[').and_then(|rest| rest.split_once("] ")).map_or(line, |(_, text)| text)
}

/// The last lines of a log.
pub(crate) fn tail(log: &str, lines: usize) -> impl Iterator<Item = &str> {
    let from = log.lines().count().saturating_sub(lines);
    log.lines().skip(from)
}

#[cfg(test)]
mod tests {
    use super::{around, tail, trouble};

    #[test]
    fn a_sound_log_has_no_trouble() {
        let log = "[    0.000000] Linux version 6.1.0\n[    1.2] amdgpu: WARNING: ring 3 is slow\n[    2.0] x] ok\n";
        assert_eq!(trouble(log), None);
    }

    #[test]
    fn the_first_sign_is_named() {
        for (line, name) in [
            ("[    7.1] BUG: kernel NULL pointer dereference, address: 0000000000000000", "kernel bug"),
            ("[    7.1] Oops: 0002 [#1] PREEMPT SMP NOPTI", "oops"),
            ("[    7.1] Kernel panic - not syncing: Fatal exception", "panic"),
            ("[   48.0] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [init:1]", "soft lockup"),
            ("[    7.1] WARNING: CPU: 0 PID: 1 at kernel/x.c:1 f+0x1/0x2", "kernel warning"),
            ("[  242.0] INFO: task init:1 blocked for more than 120 seconds.", "hung task"),
        ] {
            let log = format!("[    0.1] fine\n{line}\r\n[    9.9] Kernel panic - not syncing: later\n");
            assert_eq!(trouble(&log), Some((name, line, 1)));
        }
    }

    #[test]
    fn around_a_line_is_what_led_to_it_and_its_calls() {
        let log: String = (0..200).map(|line| format!("{line}\n")).collect();
        let lines: Vec<&str> = around(&log, 100).collect();
        assert_eq!((lines.len(), lines[0], lines[20], lines[80]), (81, "80", "100", "160"));
        assert_eq!(around(&log, 0).next(), Some("0"));
        assert_eq!(around(&log, 199).last(), Some("199"));
    }

    #[test]
    fn a_tail_is_at_most_so_long() {
        assert_eq!(tail("a\nb\nc\n", 2).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(tail("a\n", 2).collect::<Vec<_>>(), ["a"]);
    }
}
