//! Tests that documents cite as `cargo test -p CRATE … FILTER`: crate and target exist, and the filter selects something.

use std::path::{Path, PathBuf};

use crate::package::Package;

/// Commands that would run nothing.
pub(crate) fn faults(root: &Path, packages: &[Package], tracked: &[PathBuf]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in tracked.iter().filter(|file| file.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        for command in text.split('`').skip(1).step_by(2).filter(|code| code.starts_with("cargo test -p ")) {
            if let Err(why) = selects(root, packages, tracked, command) {
                faults.push(format!("{}: `{command}`: {why}", file.display()));
            }
        }
    }
    faults
}

/// What a command runs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cited<'a> {
    package: &'a str,
    /// A target below `tests`; none: the library.
    target: Option<&'a str>,
    filter: Option<&'a str>,
}

fn parse(command: &str) -> Cited<'_> {
    let mut cited = Cited::default();
    let mut words = command.split_whitespace().skip(2);
    while let Some(word) = words.next() {
        match word {
            "-p" => cited.package = words.next().unwrap_or_default(),
            "--test" => cited.target = words.next(),
            "--features" => drop(words.next()),
            word if word.starts_with('-') => {}
            // In capitals it stands for a name.
            word if word.chars().all(|c| c.is_ascii_uppercase()) => {}
            word => cited.filter = Some(word),
        }
    }
    cited
}

fn selects(root: &Path, packages: &[Package], tracked: &[PathBuf], command: &str) -> Result<(), String> {
    let cited = parse(command);
    let found = packages.iter().find(|package| package.name == cited.package);
    let package = found.ok_or_else(|| format!("there is no crate {}", cited.package))?;
    let part = package.directory.join(if cited.target.is_some() { "tests" } else { "src" });
    let files: Vec<&PathBuf> = tracked
        .iter()
        .filter(|file| file.starts_with(&part) && file.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    if files.is_empty() {
        return Err(format!("no program in {}", part.display()));
    }
    let segments = cited.filter.unwrap_or_default().split("::").filter(|segment| !segment.is_empty());
    for segment in segments {
        let is_place = |file: &PathBuf| {
            file.with_extension("").iter().any(|name| name.to_string_lossy().contains(segment))
        };
        let names = [format!("fn {segment}"), format!("mod {segment}")];
        let has = |file: &PathBuf| {
            let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            names.iter().any(|name| text.contains(name))
        };
        if !files.iter().any(|file| is_place(file) || has(file)) {
            return Err(format!("no test or module is called {segment}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_taken_apart() {
        let cited = parse("cargo test -p a-b --features agent --test it moves::one");
        assert_eq!(cited, Cited { package: "a-b", target: Some("it"), filter: Some("moves::one") });
        assert_eq!(parse("cargo test -p a --lib"), Cited { package: "a", ..Cited::default() });
    }
}
