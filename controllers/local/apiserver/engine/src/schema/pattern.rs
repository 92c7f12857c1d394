//! Regular expressions of schemas are written for Go's RE2; this crate runs them with `regex`, which reads a few
//! things differently.

use regex::{Regex, RegexBuilder};

/// Compiles a pattern written for Go.
///
/// # Errors
/// The reason, when it is no regular expression or a very large one.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(&translate(pattern)).size_limit(1 << 20).dfa_size_limit(1 << 20).build().map_err(
        |error| {
            let text = error.to_string();
            text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
        },
    )
}

/// In Go `\d`, `\w` and `\s` mean ASCII, and inside a class `[`, `&&`, `~~` and `--` stand for themselves.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.chars().peekable();
    let mut class = 0_usize;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str("[\\t\\n\\f\\r ]"),
                Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
                Some(next) => out.extend(['\\', next]),
                None => out.push('\\'),
            },
            '[' if class == 0 => {
                class = 1;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                if chars.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
            }
            '[' if chars.peek() == Some(&':') => {
                // A named class such as [:alpha:] ends with its own bracket.
                out.push('[');
                for next in chars.by_ref() {
                    out.push(next);
                    if next == ']' {
                        break;
                    }
                }
            }
            '[' => out.push_str("\\["),
            ']' if class == 1 => {
                class = 0;
                out.push(']');
            }
            '&' | '~' if class == 1 => out.extend(['\\', c]),
            '-' if class == 1 && chars.peek() == Some(&'-') => out.push_str("\\-"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::compile;

    #[test]
    fn go_syntax_is_understood() {
        for (pattern, good, bad) in [
            ("^[a-z]+$", "abc", "A1"),
            (r"^\d+%$", "10%", "١%"),
            (r"^[\w.-]+$", "a_b.c-d", "a b"),
            ("^[[]x$", "[x", "x"),
            ("^[^[]$", "a", "["),
            ("^[a&&b]+$", "a&b", "c"),
            (r"^(?:a\/b|c)$", "a/b", "ab"),
            ("^[[:alpha:]]+$", "ab", "1"),
            ("^[]a]+$", "]a", "b"),
        ] {
            let regex = compile(pattern).unwrap();
            assert!(regex.is_match(good), "{pattern} {good}");
            assert!(!regex.is_match(bad), "{pattern} {bad}");
        }
        assert!(compile("(").is_err());
        assert!(compile("(?=a)").is_err());
    }

    proptest! {
        #[test]
        fn never_panics(pattern in "[\\[\\]a-c\\^\\\\wds(){}*+?.&~:|-]{0,20}") {
            let _ = compile(&pattern);
        }
    }
}
