//! Pages of the book in `docs`: their blocks, and how what a command prints is compared with what the page shows. The format is
//! described in `docs/README.md`. Pure.

pub mod shell;

/// A page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// What the page needs, from its first line.
    pub needs: Vec<String>,
    /// Its steps, in order.
    pub steps: Vec<Step>,
}

/// A part of a page that a session works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A command that is executed.
    Run(Command),
    /// A command that is only checked.
    Check(Command),
    /// A file that is written.
    File {
        /// Its name, in the working directory.
        name: String,
        /// Its content.
        text: String,
    },
}

/// A command and what it prints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Line of the page, counted from 1.
    pub line: usize,
    /// As it is typed, with its continuation lines.
    pub text: String,
    /// The expected exit code; `None`: any.
    pub code: Option<i32>,
    /// The expected output, with wildcards.
    pub output: Vec<String>,
}

/// Words that a page can need.
const WORDS: [&str; 5] = ["none", "neonctl", "local", "kubectl", "postgres"];

/// Reads a page.
///
/// # Errors
/// What is wrong, with the line: an unknown need, a block that is not closed, output before the first command, an exit code
/// that is no number, a command in a block of no language, a command to execute on a page that needs nothing.
pub fn parse(text: &str) -> Result<Page, String> {
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let first = lines.next().map(|(_, line)| line).unwrap_or_default();
    let needs = first.strip_prefix("<!-- run: ").and_then(|rest| rest.strip_suffix(" -->"));
    let needs: Vec<String> = needs
        .ok_or("line 1: a page begins with <!-- run: NEEDS -->")?
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    if let Some(unknown) = needs.iter().find(|word| !WORDS.contains(&word.as_str())) {
        return Err(format!("line 1: {unknown:?} is none of {}", WORDS.join(", ")));
    }
    let mut page = Page { needs, steps: Vec::new() };
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let mut body = Vec::new();
        loop {
            match lines.next() {
                Some((_, "```")) => break,
                Some((at, line)) => body.push((at, line)),
                None => return Err(format!("line {number}: the block is not closed")),
            }
        }
        page.block(number, info, &body)?;
    }
    Ok(page)
}

impl Page {
    /// Whether anything of the page is executed.
    #[must_use]
    pub fn is_executed(&self) -> bool {
        self.needs.iter().any(|word| word != "none")
    }

    fn block(&mut self, number: usize, info: &str, body: &[(usize, &str)]) -> Result<(), String> {
        match info {
            "console" if !self.is_executed() => Err(format!(
                "line {number}: nothing is executed on a page that needs none; write console,cluster"
            )),
            "console" => {
                self.steps.extend(commands(body)?.into_iter().map(Step::Run));
                Ok(())
            }
            "console,cluster" => {
                self.steps.extend(commands(body)?.into_iter().map(Step::Check));
                Ok(())
            }
            "" if body.iter().any(|(_, line)| line.starts_with("$ ")) => {
                Err(format!("line {number}: a block with commands is console or console,cluster"))
            }
            _ => {
                if let Some((_, name)) = info.split_once(",file=") {
                    let text = body.iter().map(|(_, line)| format!("{line}\n")).collect();
                    self.steps.push(Step::File { name: name.to_owned(), text });
                }
                Ok(())
            }
        }
    }
}

fn commands(body: &[(usize, &str)]) -> Result<Vec<Command>, String> {
    let mut commands: Vec<Command> = Vec::new();
    for (line, text) in body {
        if let Some(command) = text.strip_prefix("$ ") {
            commands.push(Command {
                line: *line,
                text: command.to_owned(),
                code: Some(0),
                output: Vec::new(),
            });
            continue;
        }
        let Some(last) = commands.last_mut() else {
            if text.trim().is_empty() {
                continue;
            }
            return Err(format!("line {line}: output before the first command"));
        };
        match (text.strip_prefix("> "), text.strip_prefix("? ")) {
            (Some(more), _) if last.output.is_empty() => {
                last.text.push('\n');
                last.text.push_str(more);
            }
            (_, Some("*")) if last.output.is_empty() => last.code = None,
            (_, Some(code)) if last.output.is_empty() => {
                let code = code.parse().map_err(|_| format!("line {line}: {code:?} is no exit code"))?;
                last.code = Some(code);
            }
            _ => last.output.push((*text).to_owned()),
        }
    }
    for command in &mut commands {
        trim(&mut command.output);
    }
    Ok(commands)
}

/// Empty lines at the end do not count.
fn trim(lines: &mut Vec<String>) {
    while lines.last().is_some_and(|line| line.trim().is_empty()) {
        lines.pop();
    }
}

/// Whether a command printed what the page shows; otherwise a description of the first difference.
///
/// # Errors
/// The first expected line that no printed line matches, or the first printed line that is too much.
pub fn compare(expected: &[String], printed: &str) -> Result<(), String> {
    let mut lines: Vec<String> = printed.lines().map(|line| line.trim_end().to_owned()).collect();
    trim(&mut lines);
    let expected: Vec<&str> = expected.iter().map(|line| line.trim_end()).collect();
    let reached = furthest(&expected, &lines);
    if reached == (expected.len(), lines.len()) {
        return Ok(());
    }
    let (wanted, got) = (expected.get(reached.0), lines.get(reached.1));
    Err(format!(
        "expected {}, printed {}",
        wanted.map_or_else(|| "nothing more".to_owned(), |line| format!("{line:?}")),
        got.map_or_else(|| "nothing more".to_owned(), |line| format!("{line:?}")),
    ))
}

/// How many expected and printed lines match from the start: all of both if the whole matches.
fn furthest(expected: &[&str], printed: &[String]) -> (usize, usize) {
    let mut best = (0, 0);
    // Positions in both lists from which to go on; each is looked at once.
    let mut seen = std::collections::BTreeSet::new();
    let mut open = vec![(0, 0)];
    while let Some((at, line)) = open.pop() {
        if !seen.insert((at, line)) {
            continue;
        }
        best = best.max((at, line));
        match (expected.get(at), printed.get(line)) {
            (None, None) => return (at, line),
            (Some(&"..."), printed) => {
                if printed.is_some() {
                    open.push((at, line + 1));
                }
                open.push((at + 1, line));
            }
            (Some(wanted), Some(got)) if matches(wanted, got) => open.push((at + 1, line + 1)),
            _ => {}
        }
    }
    best
}

/// Whether a line matches a pattern in which `[..]` is any text.
#[must_use]
pub fn matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("[..]");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_page_is_a_session() {
        let page = parse(
            "<!-- run: local kubectl -->\n# T\n```console\n$ a \\\n> b\n? 3\none\n\n$ c\n? *\n```\n```yaml,file=x.yaml\nk: v\n```\n\
             ```console,cluster\n$ neonctl status\nwhatever\n```\n```rust\n$ no\n```\n",
        )
        .unwrap();
        assert_eq!(page.needs, ["local", "kubectl"]);
        let run = |line, text: &str, code, output: &str| Command {
            line,
            text: text.into(),
            code,
            output: lines(output),
        };
        assert_eq!(
            page.steps,
            [
                Step::Run(run(4, "a \\\nb", Some(3), "one")),
                Step::Run(run(9, "c", None, "")),
                Step::File { name: "x.yaml".into(), text: "k: v\n".into() },
                Step::Check(run(16, "neonctl status", Some(0), "whatever")),
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, part) in [
            ("# T\n", "line 1: a page begins"),
            ("<!-- run: moon -->\n", "line 1: \"moon\""),
            ("<!-- run: local -->\n```console\n$ a\n", "line 2: the block is not closed"),
            ("<!-- run: local -->\n```console\nout\n$ a\n```\n", "line 3: output before"),
            ("<!-- run: local -->\n```console\n$ a\n? x\n```\n", "line 4: \"x\" is no exit code"),
            ("<!-- run: none -->\n```console\n$ a\n```\n", "line 2: nothing is executed"),
            ("<!-- run: none -->\n```\n$ a\n```\n", "line 2: a block with commands"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(part), "{error}");
        }
    }

    #[test]
    fn wildcards_match_within_a_line_and_over_lines() {
        for (pattern, line, same) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("[..]", "", true),
            ("a[..]c[..]", "abcd", true),
            ("a[..]c", "acc", true),
            ("a[..]c", "ab", false),
            ("[..]b[..]d", "abd", true),
        ] {
            assert_eq!(matches(pattern, line), same, "{pattern} {line}");
        }
        for (expected, printed, same) in [
            ("a\nb", "a  \nb\n\n", true),
            ("...\nb", "a\na\nb", true),
            ("a\n...", "a", true),
            ("...\na\n...\nb", "a\nb\na\nc\nb", true),
            ("", "", true),
            ("", "a", false),
            ("a", "", false),
            ("a\n...\nc", "a\nb", false),
        ] {
            assert_eq!(compare(&lines(expected), printed).is_ok(), same, "{expected:?} {printed:?}");
        }
        let error = compare(&lines("a\nb"), "a\nc").unwrap_err();
        assert_eq!(error, "expected \"b\", printed \"c\"");
    }
}
