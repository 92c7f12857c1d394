//! From bytes to logical lines: comments go, continued lines are joined. Pure.

use super::Fault;

/// A logical line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Number of its first line, from 1.
    pub(super) number: usize,
    pub(super) text: String,
}

/// The logical lines of a Dockerfile, none of them empty; and the character that escapes.
pub(super) fn logical(bytes: &[u8]) -> Result<(Vec<Line>, char), Fault> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        Fault::new(1 + count(before, b'\n'), "the text is not UTF-8")
    })?;
    if let Some(at) = text.find('\0') {
        let before = bytes.get(..at).unwrap_or_default();
        return Err(Fault::new(1 + count(before, b'\n'), "the text contains a NUL"));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let escape = escape(text)?;
    let mut lines: Vec<Line> = Vec::new();
    let mut open: Option<Line> = None;
    for (index, raw) in text.lines().enumerate() {
        let start = raw.trim_start();
        // Comments and empty lines may stand within a continued line.
        if start.is_empty() || start.starts_with('#') {
            continue;
        }
        let (part, goes_on) = match raw.trim_end().strip_suffix(escape) {
            Some(part) => (part, true),
            None => (raw, false),
        };
        let mut line = match open.take() {
            Some(line) => line,
            None => Line { number: index + 1, text: String::new() },
        };
        line.text.push_str(if line.text.is_empty() { part.trim_start() } else { part });
        if goes_on {
            open = Some(line);
        } else {
            lines.push(line);
        }
    }
    lines.extend(open);
    lines.retain(|line| !line.text.trim().is_empty());
    Ok((lines, escape))
}

fn count(bytes: &[u8], wanted: u8) -> usize {
    bytes.iter().filter(|byte| **byte == wanted).count()
}

/// The directive `# escape=`, which may stand among the comments at the beginning.
fn escape(text: &str) -> Result<char, Fault> {
    for (index, line) in text.lines().enumerate() {
        let Some((name, value)) = line.trim().strip_prefix('#').and_then(|rest| rest.split_once('=')) else {
            break;
        };
        if name.trim().eq_ignore_ascii_case("escape") {
            return match value.trim() {
                "\\" => Ok('\\'),
                "`" => Ok('`'),
                other => Err(Fault::new(index + 1, format!("the directive escape cannot be {other:?}"))
                    .remedy("write # escape=\\ or # escape=`")),
            };
        }
    }
    Ok('\\')
}
