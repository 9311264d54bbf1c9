//! Text that others chose (comm, cgroup names), made safe for a terminal.

/// Letters, digits, ASCII punctuation and spaces stay; the rest (control characters, and those that turn the
/// direction of writing) becomes `\u{...}`, so that no process can steer the terminal by its name.
#[must_use]
pub fn terminal(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c == ' ' || c.is_ascii_graphic() || !c.is_ascii() && c.is_alphanumeric() {
            safe.push(c);
        } else {
            safe.extend(c.escape_unicode());
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::terminal;

    #[test]
    fn nothing_that_steers_a_terminal_passes() {
        assert_eq!(terminal("a\x1b[2J\nb"), "a\\u{1b}[2J\\u{a}b");
        assert_eq!(terminal("x\u{202e}y\u{9b}"), "x\\u{202e}y\\u{9b}");
        assert_eq!(terminal("größe python3 (x)"), "größe python3 (x)");
    }
}
