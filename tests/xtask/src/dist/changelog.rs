//! `CHANGELOG.md` in the form of Debian (<https://manpages.debian.org/deb-changelog.5>): one entry for each version that has a date.

use anyhow::{Context as _, ensure};

use super::deb::{MAINTAINER, debian_version};

/// Width of lines.
const WIDTH: usize = 79;

/// The entries, newest first.
pub(crate) fn debian(package: &str, markdown: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    for section in markdown.split("\n## ").skip(1) {
        let (heading, body) = section.split_once('\n').unwrap_or((section, ""));
        // Without a date it is not released.
        let Some((version, date)) = heading.split_once(" - ") else { continue };
        let version = debian_version(version.trim_matches(['[', ']']));
        let day = day(date.trim())
            .with_context(|| format!("CHANGELOG.md: {heading:?} has no date of the form YYYY-MM-DD"))?;
        let entry = format!("{package} ({version}) stable; urgency=medium\n\n{}", items(body));
        text.push_str(&format!("{entry} -- {MAINTAINER}  {day} 00:00:00 +0000\n\n"));
    }
    ensure!(!text.is_empty(), "CHANGELOG.md has no version with a date");
    Ok(text)
}

/// Items and headings of a section; paragraphs are left out if they end with a full stop.
fn items(body: &str) -> String {
    let mut blocks: Vec<(&str, String)> = Vec::new();
    for line in body.lines() {
        let line = plain(line);
        if let Some(item) = line.strip_prefix("- ") {
            blocks.push(("  * ", item.to_owned()));
        } else if let Some(more) = line.strip_prefix("  ") {
            if let Some((_, item)) = blocks.last_mut() {
                item.push_str(&format!(" {more}"));
            }
        } else if let Some(heading) = line.strip_prefix("### ").or_else(|| line.strip_suffix(':')) {
            blocks.push(("", format!("  [ {heading} ]")));
        }
    }
    let mut text = String::new();
    for (index, (start, block)) in blocks.iter().enumerate() {
        if start.is_empty() && index > 0 {
            text.push('\n');
        }
        text.push_str(&if start.is_empty() { format!("{block}\n") } else { wrapped(start, block) });
    }
    text + "\n"
}

/// An item in lines that are not too long; the later ones are indented as the first.
fn wrapped(start: &str, item: &str) -> String {
    let mut text = start.trim_end().to_owned();
    let mut column = text.len();
    for word in item.split_whitespace() {
        if column + 1 + word.chars().count() > WIDTH {
            text.push_str("\n   ");
            column = 3;
        }
        text.push(' ');
        text.push_str(word);
        column += 1 + word.chars().count();
    }
    text + "\n"
}

/// A line without links.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((label, (before, after))) = link(rest) {
        text.push_str(before);
        text.push_str(label);
        rest = after;
    }
    text + rest
}

/// The first `[label](target)`: its label, and what is before and behind it.
fn link(text: &str) -> Option<(&str, (&str, &str))> {
    let (before, rest) = text.split_once('[')?;
    let (label, rest) = rest.split_once("](")?;
    let (_, after) = rest.split_once(')')?;
    Some((label, (before, after)))
}

/// `2026-11-26` as `Thu, 26 Nov 2026`.
fn day(date: &str) -> Option<String> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    // How far the weekday of a month's days is from that of January's, in a year that begins in March.
    const SHIFTS: [usize; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<usize>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let index = month.checked_sub(1)?;
    let years = if month < 3 { year.checked_sub(1)? } else { year };
    let weekday = (years + years / 4 - years / 100 + years / 400 + SHIFTS.get(index)? + day) % 7;
    let known = (1..=31).contains(&day);
    known.then(|| Some(format!("{}, {day:02} {} {year:04}", DAYS.get(weekday)?, MONTHS.get(index)?)))?
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use neonvm_test_support::{need, needs};

    use super::*;

    const MARKDOWN: &str = "# Changelog\n\nText.\n\n## [Unreleased]\n\n## [0.2.0-rc1] - 2026-11-26\n\nA paragraph.\n\n### Added\n\nScaling:\n\n\
        - one, described in [a page](docs/x.md), in words that are so many that they need\n  a second line\n- two\n\n\
        ## [0.1.0] - 2024-02-29\n\n- first\n";

    #[test]
    fn sections_become_entries() {
        let wanted = "neonctl (0.2.0~rc1) stable; urgency=medium\n\n  [ Added ]\n\n  [ Scaling ]\n  * one, described in a page, in words that are so \
            many that they need a second\n    line\n  * two\n\n -- neonvm maintainers <maintainers@neonvm.invalid>  Thu, 26 Nov 2026 \
            00:00:00 +0000\n\nneonctl (0.1.0) stable; urgency=medium\n\n  * first\n\n -- neonvm maintainers \
            <maintainers@neonvm.invalid>  Thu, 29 Feb 2024 00:00:00 +0000\n\n";
        assert_eq!(debian("neonctl", MARKDOWN).unwrap(), wanted);
    }

    #[test]
    fn a_date_has_its_weekday() {
        for (date, wanted) in [
            ("1970-01-01", "Thu, 01 Jan 1970"),
            ("2000-02-29", "Tue, 29 Feb 2000"),
            ("2026-11-26", "Thu, 26 Nov 2026"),
            ("2100-03-01", "Mon, 01 Mar 2100"),
        ] {
            assert_eq!(day(date).as_deref(), Some(wanted));
        }
        assert!(
            ["", "2026", "2026-13-01", "2026-00-01", "2026-01-32"]
                .into_iter()
                .all(|date| day(date).is_none())
        );
        assert!(debian("x", "\n## [1.0.0] - soon\n").unwrap_err().to_string().contains("YYYY-MM-DD"));
        assert!(debian("x", "# Changelog\n").is_err());
    }

    /// The file itself, as Debian's tool reads it, which comes with development packages.
    #[test]
    fn the_changelog_of_the_project_is_read_by_debian() {
        let tool = need!(needs::optional_program("dpkg-parsechangelog"));
        let root = crate::package::root().unwrap();
        let text = debian("neonctl", &std::fs::read_to_string(root.join("CHANGELOG.md")).unwrap()).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let output = Command::new(tool).args(["--all", "-l"]).arg(file.path()).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(shown.contains("Source: neonctl\n"), "{shown}");
    }
}
