//! Tests that documents cite as `cargo test -p CRATE … FILTER`: crate and target exist, and the filter selects something.

mod named;

use std::path::{Path, PathBuf};

use crate::package::Package;

/// Commands that would run nothing.
pub(crate) fn faults(root: &Path, packages: &[Package], tracked: &[PathBuf]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in tracked.iter().filter(|file| file.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        for command in commands(&text) {
            if let Err(why) = selects(root, packages, tracked, command) {
                faults.push(format!("{}: `{command}`: {why}", file.display()));
            }
        }
    }
    faults
}

/// Every command that runs tests, in a line of text or of code.
fn commands(text: &str) -> impl Iterator<Item = &str> {
    const START: &str = "cargo test -p ";
    text.lines().flat_map(|line| {
        line.match_indices(START).filter_map(move |(at, _)| {
            let rest = line.get(at..)?;
            let end = rest.find(['`', '#', '|', ';', ')']).unwrap_or(rest.len());
            Some(rest.get(..end)?.trim_end_matches([' ', ',', '.']))
        })
    })
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Cited<'a> {
    package: &'a str,
    /// A target below `tests`; none: the library, or a program.
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
            // Tests of a program lie beside those of the library.
            "--features" | "--bin" => drop(words.next()),
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
    let part = match cited.target {
        Some(target) => {
            let tests = &package.tests;
            let main = tests.get(target).ok_or_else(|| format!("{} has no test {target}", package.name))?;
            // A test in one file has no directory.
            if main.ends_with("main.rs") { parent(main) } else { main.with_extension("") }
        }
        None => package.directory.join("src"),
    };
    let mut found = tracked.iter().filter(|file| {
        let is_source = file.extension().is_some_and(|extension| extension == "rs");
        is_source && (file.starts_with(&part) || file.with_extension("") == part)
    });
    let filter = cited.filter.unwrap_or_default();
    let mut any = false;
    let selected = found.any(|file| {
        any = true;
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        named::tests(&module(file, &part), &text).iter().any(|name| name.contains(filter))
    });
    match (selected, any) {
        (true, _) => Ok(()),
        (false, true) => Err(format!("no test has {filter} in its name")),
        (false, false) => Err(format!("no program in {}", part.display())),
    }
}

fn parent(file: &Path) -> PathBuf {
    file.parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Path of the module that a file is, within its crate.
fn module(file: &Path, part: &Path) -> String {
    let place = file.strip_prefix(part).map(|place| place.with_extension("")).unwrap_or_default();
    let parts: Vec<_> = place.iter().map(|name| name.to_string_lossy()).collect();
    match parts.as_slice() {
        [root] if ["lib", "main", ""].contains(&root.as_ref()) => String::new(),
        parts => parts.join("::"),
    }
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

    #[test]
    fn commands_are_found_in_text_and_in_code() {
        let text = "| a | `cargo test -p a --lib x`, `cargo test -p b` |\n\n    cargo test -p c --test it y  # slow\n";
        let found: Vec<&str> = commands(text).collect();
        assert_eq!(found, ["cargo test -p a --lib x", "cargo test -p b", "cargo test -p c --test it y"]);
    }

    #[test]
    fn files_are_modules() {
        let of = |file: &str, part: &str| module(Path::new(file), Path::new(part));
        assert_eq!(of("a/src/lib.rs", "a/src"), "");
        assert_eq!(of("a/src/b/c.rs", "a/src"), "b::c");
        assert_eq!(of("a/tests/it/main.rs", "a/tests/it"), "");
        assert_eq!(of("a/tests/it.rs", "a/tests/it"), "");
    }
}
