//! Text as a tree that becomes one line where it may, and several lines elsewhere.

use std::fmt;

/// Longest line of what is removed or inserted.
const COLUMNS: usize = 80;

/// What stands before a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sign {
    #[default]
    None,
    Removed,
    Inserted,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Text {
    Line(String),
    Wrapped { before: String, inside: Box<Text>, after: String },
    List(Vec<Record>),
}

/// One entry of a list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub(super) sign: Sign,
    pub(super) key: String,
    pub(super) value: Text,
    pub(super) comment: Option<Count>,
}

/// How many records of which sort were left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Count {
    pub(super) name: &'static str,
    pub(super) same: usize,
    pub(super) removed: usize,
    pub(super) inserted: usize,
    pub(super) modified: usize,
}

impl Count {
    pub(super) fn different(&self) -> usize {
        self.removed + self.inserted + self.modified
    }

    pub(super) fn is_zero(&self) -> bool {
        self.same + self.different() == 0
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.same += other.same;
        self.removed += other.removed;
        self.inserted += other.inserted;
        self.modified += other.modified;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.same, "identical"),
            (self.removed, "removed"),
            (self.inserted, "inserted"),
            (self.modified, "modified"),
        ];
        let parts = counts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts.map(|(count, label)| format!("{count} {label}")).collect();
        let several = self.same + self.different() > 1;
        let name = match (self.name, several) {
            ("entry", true) => "entries".to_owned(),
            (name, true) => format!("{name}s"),
            (name, false) => name.to_owned(),
        };
        match parts.as_slice() {
            [first @ .., last] if first.len() > 1 => write!(f, "{}, and {last} {name}", first.join(", ")),
            parts => write!(f, "{} {name}", parts.join(" and ")),
        }
    }
}

impl Record {
    pub(super) fn new(sign: Sign, key: String, value: Text) -> Self {
        Self { sign, key, value, comment: None }
    }
}

/// Notes that records are left out.
pub(super) fn leave_out(list: &mut Vec<Record>, count: Option<Count>) {
    match (list.last_mut().filter(|last| last.value.is_dots()), count) {
        (Some(Record { comment: Some(known), .. }), Some(count)) => known.add(&count),
        (Some(last), count) => last.comment = count.or(last.comment.take()),
        (None, comment) => {
            list.push(Record { comment, ..Record::new(Sign::None, String::new(), Text::dots()) });
        }
    }
}

impl Text {
    pub(super) fn line(text: impl Into<String>) -> Self {
        Self::Line(text.into())
    }

    pub(super) fn dots() -> Self {
        Self::line("...")
    }

    fn is_dots(&self) -> bool {
        matches!(self, Self::Line(line) if line == "...")
    }

    pub(super) fn wrapped(before: impl Into<String>, inside: Self, after: impl Into<String>) -> Self {
        Self::Wrapped { before: before.into(), inside: Box::new(inside), after: after.into() }
    }

    /// The whole text, with a line break at its end.
    pub(super) fn to_text(&self) -> String {
        let (_, text) = self.compact(Sign::None);
        let mut out = String::new();
        indent(&mut out, Sign::None, 0);
        text.expand(&mut out, Sign::None, 0);
        out.push('\n');
        out
    }

    /// The text as one line, and the tree with the parts that may stand on one line as such.
    fn compact(&self, sign: Sign) -> (String, Self) {
        match self {
            Self::Line(line) => (line.clone(), self.clone()),
            Self::Wrapped { before, inside, after } => {
                let (line, inside) = inside.compact(sign);
                let line = format!("{before}{line}{after}");
                match inside {
                    Self::Line(_) => (line.clone(), Self::Line(line)),
                    inside => (line, Self::wrapped(before.as_str(), inside, after.as_str())),
                }
            }
            Self::List(records) => compact_list(records, sign),
        }
    }

    fn expand(&self, out: &mut String, sign: Sign, depth: usize) {
        match self {
            Self::Line(line) => out.push_str(line),
            Self::Wrapped { before, inside, after } => {
                out.push_str(before);
                inside.expand(out, sign, depth);
                out.push_str(after);
            }
            Self::List(records) => expand_list(records, out, sign, depth),
        }
    }
}

fn joined(outer: Sign, own: Sign) -> Sign {
    if own == Sign::None { outer } else { own }
}

fn compact_list(records: &[Record], sign: Sign) -> (String, Text) {
    let mut records = records.to_vec();
    let mut lines = Vec::new();
    let mut several = false;
    for record in &mut records {
        let (line, value) = record.value.compact(joined(sign, record.sign));
        several |= record.sign != Sign::None || record.comment.is_some() || !matches!(value, Text::Line(_));
        record.value = value;
        lines.push(if record.key.is_empty() { line } else { format!("{}: {line}", record.key) });
    }
    let line = lines.join(", ");
    several |= sign != Sign::None && line.len() > COLUMNS;
    if several { (line, Text::List(records)) } else { (line.clone(), Text::Line(line)) }
}

fn expand_list(records: &[Record], out: &mut String, sign: Sign, depth: usize) {
    let plain = |record: &Record| {
        record.sign == Sign::None
            && record.key.is_empty()
            && record.comment.is_none()
            && matches!(record.value, Text::Line(_))
    };
    if !records.is_empty() && records.iter().all(plain) {
        return expand_lines(records, out, sign, depth);
    }
    let widths = widths(records);
    for (record, width) in records.iter().zip(widths) {
        let sign = joined(sign, record.sign);
        out.push('\n');
        indent(out, sign, depth + 1);
        if !record.key.is_empty() {
            out.push_str(&record.key);
            out.push_str(": ");
            let missing = width.saturating_sub(record.key.chars().count());
            out.extend(std::iter::repeat_n(' ', missing));
        }
        record.value.expand(out, sign, depth + 1);
        if !record.value.is_dots() {
            out.push(',');
        }
        if let Some(comment) = &record.comment {
            out.push_str(&format!(" // {comment}"));
        }
    }
    out.push('\n');
    indent(out, sign, depth);
}

/// Short values, several on a line.
fn expand_lines(records: &[Record], out: &mut String, sign: Sign, depth: usize) {
    let mut batch = String::new();
    let mut flush = |batch: &mut String| {
        if !batch.is_empty() {
            out.push('\n');
            indent(out, sign, depth + 1);
            out.push_str(batch.trim_end_matches(' '));
            batch.clear();
        }
    };
    for record in records {
        let Text::Line(line) = &record.value else { continue };
        if batch.len() + line.len() + 2 > COLUMNS {
            flush(&mut batch);
        }
        batch.push_str(line);
        batch.push_str(", ");
    }
    flush(&mut batch);
    out.push('\n');
    indent(out, sign, depth);
}

/// The width of the keys beside each record: neighbours with values of one line stand below each other.
fn widths(records: &[Record]) -> Vec<usize> {
    let aligned = |record: &Record| !record.key.is_empty() && matches!(record.value, Text::Line(_));
    let mut widths = vec![0; records.len()];
    let mut from = 0;
    while from < records.len() {
        let run = records.iter().skip(from).take_while(|record| aligned(record));
        let (count, width) =
            run.fold((0, 0), |(count, width), record| (count + 1, record.key.chars().count().max(width)));
        widths.iter_mut().skip(from).take(count).for_each(|slot| *slot = width);
        from += count + 1;
    }
    widths
}

fn indent(out: &mut String, sign: Sign, depth: usize) {
    out.push_str(match sign {
        Sign::None => "  ",
        Sign::Removed => "- ",
        Sign::Inserted => "+ ",
    });
    out.extend(std::iter::repeat_n('\t', depth));
}
