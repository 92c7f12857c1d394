//! Patterns of `COPY` and of `.dockerignore`. Pure.

/// Whether one name matches one part of a pattern with `*`, `?` and `[…]`.
pub(super) fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    // Where to go on after the last `*`, if the rest does not match.
    let mut back: Option<(usize, usize)> = None;
    let (mut at, mut here) = (0, 0);
    while here < name.len() {
        if pattern.get(at) == Some(&b'*') {
            back = Some((at + 1, here));
            at += 1;
        } else if let Some(length) =
            pattern.get(at..).and_then(|rest| one_matches(rest, name.get(here).copied()))
        {
            at += length;
            here += 1;
        } else if let Some((star, from)) = back {
            back = Some((star, from + 1));
            (at, here) = (star, from + 1);
        } else {
            return false;
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

/// The length of the part of a pattern that stands for this byte.
fn one_matches(pattern: &[u8], byte: Option<u8>) -> Option<usize> {
    let byte = byte?;
    match pattern.first()? {
        b'?' => Some(1),
        b'\\' => (pattern.get(1) == Some(&byte)).then_some(2),
        b'[' => {
            let Some(end) = pattern.iter().skip(2).position(|byte| *byte == b']') else {
                return (byte == b'[').then_some(1);
            };
            let set = pattern.get(1..end + 2)?;
            let (set, is_inverted) = match set.strip_prefix(b"^") {
                Some(set) => (set, true),
                None => (set, false),
            };
            let mut found = false;
            let mut at = 0;
            while let Some(first) = set.get(at) {
                let is_range = set.get(at + 1) == Some(&b'-') && set.get(at + 2).is_some();
                let last = if is_range { set.get(at + 2)? } else { first };
                found |= (*first..=*last).contains(&byte);
                at += if is_range { 3 } else { 1 };
            }
            (found != is_inverted).then_some(end + 3)
        }
        literal => (*literal == byte).then_some(1),
    }
}

/// The parts of a path or pattern, without `.` and empty ones.
pub(super) fn parts(path: &str) -> Vec<&[u8]> {
    path.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::as_bytes).collect()
}

/// Whether a path matches a pattern, in which `**` stands for any number of parts.
fn path_matches(pattern: &[&[u8]], path: &[&[u8]]) -> bool {
    // For each number of parts of the path, whether the pattern so far can end there.
    let mut reached = vec![false; path.len() + 1];
    if let Some(first) = reached.first_mut() {
        *first = true;
    }
    for part in pattern {
        let mut next = vec![false; path.len() + 1];
        if *part == b"**" {
            let mut any = false;
            for (to, from) in next.iter_mut().zip(&reached) {
                any |= *from;
                *to = any;
            }
        } else {
            for ((to, from), name) in next.iter_mut().skip(1).zip(&reached).zip(path) {
                *to = *from && name_matches(part, name);
            }
        }
        reached = next;
    }
    reached.last().copied().unwrap_or(false)
}

/// The rules of a `.dockerignore`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ignore(Vec<(String, bool)>);

impl Ignore {
    /// Reads the text of the file.
    pub(super) fn parse(text: &str) -> Self {
        let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let rule = |line: &str| match line.strip_prefix('!') {
            Some(pattern) => (pattern.trim().to_owned(), false),
            None => (line.to_owned(), true),
        };
        Self(lines.map(rule).collect())
    }

    /// Whether a path in the context is left out: by the last rule that matches it or a directory above it.
    pub(super) fn leaves_out(&self, path: &[&[u8]]) -> bool {
        let hit = |pattern: &str| {
            let pattern = parts(pattern);
            (1..=path.len()).any(|length| path_matches(&pattern, path.get(..length).unwrap_or(path)))
        };
        self.0.iter().rev().find(|(pattern, _)| hit(pattern)).is_some_and(|(_, out)| *out)
    }

    /// Whether something below a directory that is left out may be taken in again.
    pub(super) fn has_exceptions(&self) -> bool {
        self.0.iter().any(|(_, out)| !out)
    }
}
