//! Lines of a container's log: `TIME SOURCE| TEXT`. Pure.

#[derive(Clone, Debug)]
pub(super) struct Style {
    sources: Vec<String>,
    timestamps: bool,
}

impl Style {
    pub(super) fn new(sources: &[String], timestamps: bool) -> Self {
        Self { sources: sources.to_vec(), timestamps }
    }

    /// Whether no line is left out.
    pub(super) fn takes_all(&self) -> bool {
        self.sources.iter().any(|source| source == "all")
    }

    /// The line as it is shown, if it is.
    pub(super) fn render(&self, line: &str) -> Option<String> {
        let (time, rest) = match time(line) {
            Some(time) => (time, line.get(time.len() + 1..).unwrap_or_default()),
            None => ("", line),
        };
        // What has no source was written by something before the runner, or by an older one.
        let (source, text) = rest
            .split_once("| ")
            .or_else(|| rest.strip_suffix('|').map(|source| (source, "")))
            .filter(|(source, _)| matches!(*source, "guest" | "serial" | "qemu" | "runner"))
            .unwrap_or(("runner", rest));
        if !self.takes_all() && !self.sources.iter().any(|wanted| wanted == source) {
            return None;
        }
        let mut shown = String::new();
        if self.timestamps && !time.is_empty() {
            shown.push_str(time);
            shown.push(' ');
        }
        if self.takes_all() || self.sources.len() > 1 {
            shown.push_str(&format!("{source:<8} "));
        }
        shown.push_str(text);
        Some(shown)
    }
}

pub(super) fn time(line: &str) -> Option<&str> {
    let (time, _) = line.split_once(' ')?;
    let bytes = time.as_bytes();
    (bytes.len() >= 20 && bytes.get(4) == Some(&b'-') && bytes.get(10) == Some(&b'T')).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sources: &[&str], timestamps: bool, line: &str) -> Option<String> {
        Style::new(&sources.iter().map(|&s| s.to_owned()).collect::<Vec<_>>(), timestamps).render(line)
    }

    #[test]
    fn lines_are_chosen_and_shown_by_source() {
        let line = "2026-11-21T09:00:00.123456789Z guest| a | b";
        assert_eq!(shown(&["all"], false, line).unwrap(), "guest    a | b");
        assert_eq!(shown(&["guest"], false, line).unwrap(), "a | b");
        assert_eq!(
            shown(&["guest", "qemu"], true, line).unwrap(),
            "2026-11-21T09:00:00.123456789Z guest    a | b"
        );
        assert_eq!(shown(&["qemu"], false, line), None);
        assert_eq!(shown(&["runner"], false, "no source here").unwrap(), "no source here");
        assert_eq!(shown(&["serial"], false, "2026-11-21T09:00:00.123456789Z serial| ").unwrap(), "");
        assert_eq!(time("short line"), None);
    }
}
