//! Text from outside, made harmless for a terminal. Pure.
//!
//! A terminal obeys what it is sent: sequences that begin with ESC or with a C1 control move the cursor, rename the window or
//! make it type an answer; bidirectional controls show a text in another order than it has. All of these are shown as what
//! they are: `\x1b`, `\u{202e}`. A backslash is not doubled, so a cleaned text stays as it is when it is cleaned again.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a terminal may do something else with it than show it.
pub(crate) fn steers(c: char) -> bool {
    // Embeddings, overrides and isolates of text direction; separators that some terminals take for line ends.
    let reorders = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || reorders || matches!(c, '\u{2028}' | '\u{2029}')
}

/// A text of several lines: line ends and tabs stay.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    shown(text, |c| matches!(c, '\n' | '\t'))
}

/// A text where one line is expected, such as a cell: line ends and tabs are shown, too.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    shown(text, |_| false)
}

fn shown(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let bad = |c: char| steers(c) && !stays(c);
    if !text.contains(bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            _ if !bad(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Writing to a string does not fail.
            _ if u32::from(c) < 0x100 => drop(write!(out, "\\x{:02x}", u32::from(c))),
            _ => drop(write!(out, "\\u{{{:x}}}", u32::from(c))),
        }
    }
    Cow::Owned(out)
}

/// JSON with the same value: in JSON such characters stand inside of texts only, where `\u202e` means the same.
pub(crate) fn json(text: String) -> String {
    let bad = |c: char| steers(c) && c != '\n';
    if !text.contains(bad) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if bad(c) {
            // All of them are below U+10000.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_steers_is_shown() {
        assert_eq!(line("a\u{1b}[2J\u{7}\u{9b}6n\u{7f}\u{0}"), "a\\x1b[2J\\x07\\x9b6n\\x7f\\x00");
        assert_eq!(line("\u{202e}x\u{2069}\u{2028}\u{85}"), "\\u{202e}x\\u{2069}\\u{2028}\\x85");
        assert_eq!(line("a\nb\tc\r"), "a\\nb\\tc\\r");
        assert_eq!(text("a\nb\tc\r\u{c}"), "a\nb\tc\\r\\x0c");
        for plain in ["", "pg-1", "\u{e4}\u{20ac}\u{1f600}", "\u{5d0}\u{5d1}", "C:\\x1b"] {
            assert_eq!(line(plain), plain);
        }
    }

    pub(crate) fn hostile() -> impl Strategy<Value = String> {
        let bad = prop::sample::select(vec![
            '\u{0}', '\u{7}', '\u{8}', '\t', '\n', '\r', '\u{1b}', '\u{7f}', '\u{80}', '\u{85}', '\u{90}',
            '\u{9b}', '\u{9d}', '\u{202a}', '\u{202e}', '\u{2028}', '\u{2029}', '\u{2066}', '\u{2069}', '[',
            '\\', '"', '\'', ':', ' ', '-', '#',
        ]);
        let some = prop_oneof![bad, any::<char>(), prop::char::range('a', 'z')];
        prop::collection::vec(some, 0..40).prop_map(|all| all.into_iter().collect())
    }

    proptest! {
        #[test]
        fn nothing_that_steers_is_left(input in hostile()) {
            let (whole, single) = (text(&input), line(&input));
            prop_assert!(!whole.chars().any(|c| steers(c) && !matches!(c, '\n' | '\t')));
            prop_assert!(!single.chars().any(steers));
            prop_assert_eq!(text(&whole), whole.as_ref());
            prop_assert_eq!(line(&single), single.as_ref());
        }

        #[test]
        fn json_keeps_its_value(key in hostile(), input in hostile()) {
            let value = serde_json::json!({ key: [input] });
            for written in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let clean = json(written);
                prop_assert!(!clean.chars().any(|c| steers(c) && c != '\n'));
                prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&clean).unwrap(), &value);
            }
        }
    }
}
