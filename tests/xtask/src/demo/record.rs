//! `xtask demo --record FILE`: runs the demonstration and writes what it printed as an animated SVG.
//!
//! Lines appear when they appeared; pauses are cut to [`LONGEST`]. The animation is one `transform` with steps, so that it
//! works wherever SVG images are shown. With `prefers-reduced-motion` the last screen is shown.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

/// Lines and columns of the screen.
const ROWS: usize = 26;
const COLUMNS: usize = 110;
/// Of a character, in pixels.
const SIZE: (f64, f64) = (7.8, 17.0);
/// Longest pause between two lines, and how long the last screen stays.
const LONGEST: Duration = Duration::from_millis(1200);
const END: Duration = Duration::from_secs(6);

/// A line and when it appeared.
type Line = (Duration, String);

/// Runs the demonstration; true if it succeeded and the file was written.
pub(crate) fn run(root: &Path, file: &Path) -> anyhow::Result<bool> {
    let program = std::env::current_exe().context("this program")?;
    let mut command = Command::new(program);
    let mut demo = command.arg("demo").current_dir(root).stdout(Stdio::piped()).spawn()?;
    let output = demo.stdout.take().context("the demonstration has no output")?;
    let begun = Instant::now();
    let mut lines = Vec::new();
    // Where the checkout is does not matter to a reader.
    let prefix = format!("{}/", root.display());
    for line in BufReader::new(output).lines() {
        let line = line?;
        writeln!(std::io::stdout(), "{line}")?;
        lines.push((begun.elapsed(), line.replace(&prefix, "")));
    }
    if !demo.wait()?.success() {
        return Ok(false);
    }
    ensure!(!lines.is_empty(), "the demonstration printed nothing");
    std::fs::write(file, animation(&lines)).with_context(|| file.display().to_string())?;
    println!("{}", file.display());
    Ok(true)
}

fn animation(lines: &[Line]) -> String {
    let (times, total) = cut(lines);
    let (width, height) = (COLUMNS as f64 * SIZE.0 + 20.0, ROWS as f64 * SIZE.1 + 20.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\
         <title>make demo: a VM with PostgreSQL grows, moves and shrinks</title>\n<style>\n\
         text {{ font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d8dee9; white-space: pre }}\n\
         .command {{ fill: #a3e4a0 }} .title {{ fill: #ffd479; font-weight: bold }}\n\
         #lines {{ transform: translateY({:.0}px); animation: scroll {:.1}s step-end infinite }}\n\
         @media (prefers-reduced-motion: reduce) {{ #lines {{ animation: none }} }}\n@keyframes scroll {{\n",
        shift(lines.len()),
        total.as_secs_f64(),
    );
    for (index, time) in times.iter().enumerate() {
        // Of lines at the same moment the last one counts.
        if times.get(index + 1) != Some(time) {
            let share = 100.0 * time.as_secs_f64() / total.as_secs_f64();
            // A string takes every text.
            let _ = writeln!(text, "{share:.2}% {{ transform: translateY({:.0}px) }}", shift(index + 1));
        }
    }
    let _ = write!(
        text,
        "}}\n</style>\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1e2430\"/>\n\
         <clipPath id=\"screen\"><rect width=\"{width:.0}\" height=\"{height:.0}\"/></clipPath>\n\
         <g clip-path=\"url(#screen)\"><g id=\"lines\">\n"
    );
    for (index, (_, line)) in lines.iter().enumerate() {
        let y = 10.0 + (index + 1) as f64 * SIZE.1 - 4.0;
        let _ = writeln!(text, "<text x=\"10\" y=\"{y:.0}\"{}>{}</text>", class(line), escaped(line));
    }
    text + "</g></g>\n</svg>\n"
}

/// How far the lines are moved when so many of them have appeared, in pixels: the last one is at the bottom.
fn shift(shown: usize) -> f64 {
    (ROWS as f64 - shown as f64) * SIZE.1
}

/// When lines appear with pauses cut, from 0 on, and the whole length.
fn cut(lines: &[Line]) -> (Vec<Duration>, Duration) {
    let mut now = Duration::ZERO;
    let mut before = lines.first().map(|line| line.0).unwrap_or_default();
    let mut times = Vec::new();
    for (at, _) in lines {
        now += at.saturating_sub(before).min(LONGEST);
        before = *at;
        times.push(now);
    }
    (times, now + END)
}

fn class(line: &str) -> &'static str {
    let rest = line.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    match rest {
        Some((_, rest)) if rest.starts_with("$ ") => " class=\"command\"",
        Some(_) => " class=\"title\"",
        None => "",
    }
}

/// As text of XML, cut to the screen.
fn escaped(line: &str) -> String {
    let mut text = String::new();
    let shown: Vec<char> = line.chars().filter(|c| !c.is_control()).collect();
    for c in shown.iter().take(COLUMNS) {
        match c {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            c => text.push(*c),
        }
    }
    if shown.len() > COLUMNS {
        text.pop();
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seconds: u64, text: &str) -> Line {
        (Duration::from_secs(seconds), text.to_owned())
    }

    #[test]
    fn pauses_are_cut_and_the_first_line_begins() {
        let (times, total) = cut(&[line(5, "a"), line(5, "b"), line(6, "c"), line(100, "d")]);
        assert_eq!(times, [0, 0, 1000, 2200].map(Duration::from_millis));
        assert_eq!(total, Duration::from_millis(8200));
    }

    #[test]
    fn every_line_is_in_the_drawing_and_scrolls_into_it() {
        let lines = [line(0, "[  0.1s] $ neonctl vm list"), line(1, "a < b & c"), line(1, "[  1.0s] done")];
        let text = animation(&lines);
        assert!(text.contains("class=\"command\">[  0.1s] $ neonctl vm list<"), "{text}");
        assert!(text.contains(">a &lt; b &amp; c<") && text.contains("class=\"title\">[  1.0s] done<"));
        // The first line is at the bottom, the two others come at once.
        assert!(text.contains("0.00% { transform: translateY(425px) }"), "{text}");
        assert!(text.contains("% { transform: translateY(391px) }") && !text.contains("translateY(408px)"));
    }

    #[test]
    fn long_lines_and_control_characters_are_cut() {
        assert_eq!(escaped(&"x".repeat(200)).chars().count(), COLUMNS);
        assert_eq!(escaped("a\u{1b}[1mb"), "a[1mb");
    }
}
