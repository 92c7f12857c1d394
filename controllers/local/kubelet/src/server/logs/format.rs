//! Lines of logs: `TIME STREAM TAG TEXT`, as container runtimes write them, or plain text.

use jiff::Timestamp;

/// Longest line that is kept together, in bytes.
const LONGEST: usize = 256 << 10;

/// Which lines are wanted, and how.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    pub(super) since: Option<Timestamp>,
    pub(super) timestamps: bool,
}

/// Cuts a stream into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    partial: Vec<u8>,
    /// The last line continues: its time is not written again.
    continues: bool,
}

/// Time, whether the line continues, and its text.
fn parse(line: &str) -> Option<(&str, bool, &str)> {
    let mut parts = line.splitn(4, ' ');
    let (time, stream, tag) = (parts.next()?, parts.next()?, parts.next()?);
    let is_stream = matches!(stream, "stdout" | "stderr");
    // Cheap to distinguish from other texts before it is parsed in full.
    let is_time = time.len() >= 20 && time.as_bytes().get(10) == Some(&b'T');
    let partial = match tag.split(':').next() {
        Some("F") => false,
        Some("P") => true,
        _ => return None,
    };
    (is_stream && is_time).then(|| (time, partial, parts.next().unwrap_or("")))
}

impl Lines {
    /// Takes bytes in; the whole lines among them as they are to be shown.
    pub(super) fn take(&mut self, bytes: &[u8], filter: &Filter) -> Vec<u8> {
        let mut shown = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            self.partial.extend_from_slice(line);
            let line = std::mem::take(&mut self.partial);
            self.show(&line, filter, &mut shown);
            rest = after.get(1..).unwrap_or_default();
        }
        self.partial.extend_from_slice(rest);
        if self.partial.len() > LONGEST {
            let line = std::mem::take(&mut self.partial);
            self.show(&line, filter, &mut shown);
        }
        shown
    }

    /// What is left without an end of line.
    pub(super) fn rest(&mut self, filter: &Filter) -> Vec<u8> {
        let mut shown = Vec::new();
        let line = std::mem::take(&mut self.partial);
        if !line.is_empty() {
            self.show(&line, filter, &mut shown);
        }
        shown
    }

    fn show(&mut self, line: &[u8], filter: &Filter, into: &mut Vec<u8>) {
        let text = String::from_utf8_lossy(line);
        let Some((time, partial, content)) = parse(&text) else {
            // Without a time its age is unknown.
            into.extend_from_slice(line);
            into.push(b'\n');
            self.continues = false;
            return;
        };
        let continued = std::mem::replace(&mut self.continues, partial);
        if let Some(since) = filter.since
            && time.parse::<Timestamp>().is_ok_and(|time| time < since)
        {
            return;
        }
        if filter.timestamps && !continued {
            into.extend_from_slice(time.as_bytes());
            into.push(b' ');
        }
        into.extend_from_slice(content.as_bytes());
        if !partial {
            into.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOG: &str = "2026-01-01T00:00:00.5Z stdout F one\n2026-01-01T00:00:01Z stdout P tw\n\
                       2026-01-01T00:00:01Z stdout F o\nplain text\n2026-01-01T00:00:02Z stderr F \n";

    fn show(filter: &Filter, cut: usize) -> String {
        let mut lines = Lines::default();
        let (a, b) = LOG.as_bytes().split_at(cut);
        let mut all = lines.take(a, filter);
        all.extend(lines.take(b, filter));
        all.extend(lines.rest(filter));
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn lines_are_shown_as_wanted() {
        assert_eq!(show(&Filter::default(), 0), "one\ntwo\nplain text\n\n");
        let timed = Filter { timestamps: true, ..Filter::default() };
        let expected =
            "2026-01-01T00:00:00.5Z one\n2026-01-01T00:00:01Z two\nplain text\n2026-01-01T00:00:02Z \n";
        assert_eq!(show(&timed, 7), expected);
        let late = Filter { since: Some("2026-01-01T00:00:02Z".parse().unwrap()), ..Filter::default() };
        assert_eq!(show(&late, 0), "plain text\n\n");
    }

    proptest! {
        #[test]
        fn where_it_is_cut_does_not_matter(cut in 0..LOG.len()) {
            prop_assert_eq!(show(&Filter::default(), cut), show(&Filter::default(), 0));
        }
    }
}
