//! Relative links in Markdown files: the file must exist, and the heading if one is named.

use std::path::{Path, PathBuf};

/// Links that lead nowhere.
pub(crate) fn faults(root: &Path, tracked: &[PathBuf]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in tracked.iter().filter(|file| file.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        for link in targets(&text) {
            if !resolves(root, file, &link) {
                faults.push(format!("{}: link to {link} leads nowhere", file.display()));
            }
        }
    }
    faults
}

fn resolves(root: &Path, file: &Path, link: &str) -> bool {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let beside = root.join(file.parent().unwrap_or(Path::new("")));
    let target = if path.is_empty() { root.join(file) } else { beside.join(path) };
    if heading.is_empty() {
        return target.exists();
    }
    let text = std::fs::read_to_string(&target).unwrap_or_default();
    prose(&text).filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading)
}

/// The lines outside fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    })
}

/// The anchor that a heading gets where Markdown is shown.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    words
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// What `[text](target)` points to, unless it has a scheme.
fn targets(text: &str) -> Vec<String> {
    prose(text)
        .flat_map(|line| line.split("](").skip(1))
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target.to_owned()))
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_headings_are_followed() {
        let root = tempfile::tempdir().unwrap();
        let text = "# A title, with: marks\n[a](#a-title-with-marks) [b](b.md) [c](https://x.y) [d](#nowhere)\n```\n[e](e.md)\n```\n";
        std::fs::write(root.path().join("a.md"), text).unwrap();
        let faults = faults(root.path(), &["a.md".into()]);
        assert_eq!(faults, ["a.md: link to b.md leads nowhere", "a.md: link to #nowhere leads nowhere"]);
    }
}
