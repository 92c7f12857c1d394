//! The budget of lines: how many lines of product and of tests each top folder may have, and how many packages the workspace may
//! depend on, in `budget.txt`. The numbers fall with the tree. A commit that raises one gives the reason in a line `Budget: …` of its
//! message.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lines::{before_tests, is_of_tests, sources};

/// Where the budget is: `<folder> <product lines> <lines of tests>`, and `packages <number>`.
const FILE: &str = "tests/xtask/budget.txt";
/// Lines that a folder may be below its budget before the budget has to follow.
const SLACK: usize = 400;
/// Name of the row of packages.
const PACKAGES: &str = "packages";

/// Lines of product and of tests; of the row of packages, their number and 0.
type Rows = BTreeMap<String, [usize; 2]>;

/// Every folder above its budget, every budget far above its folder, and every number that rose without a reason.
pub(crate) fn faults(root: &Path, tracked: &[PathBuf]) -> Vec<String> {
    let text = std::fs::read_to_string(root.join(FILE)).unwrap_or_default();
    let budget = match read(&text) {
        Ok(budget) => budget,
        Err(fault) => return vec![fault],
    };
    let mut faults = compare(&budget, &measure(root, tracked));
    faults.extend(without_reason(root));
    faults
}

fn read(text: &str) -> Result<Rows, String> {
    let rows = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let row = match words.as_slice() {
            [name, product, tests] => product.parse().ok().zip(tests.parse().ok()).map(|pair| (*name, pair)),
            [name, number] if *name == PACKAGES => number.parse().ok().map(|number| (*name, (number, 0))),
            _ => None,
        };
        let (name, (first, second)) = row.ok_or_else(|| format!("{FILE}: {line:?} is no row"))?;
        Ok((name.to_owned(), [first, second]))
    })
    .collect()
}

/// The lines of each top folder now, and the packages of the lock file.
fn measure(root: &Path, tracked: &[PathBuf]) -> Rows {
    let mut rows = Rows::new();
    for (file, text) in sources(root, tracked) {
        let folder = file.iter().next().unwrap_or_default().to_string_lossy().into_owned();
        let row = rows.entry(folder).or_default();
        let (product, tests) = lines(file, &text);
        *row = [row[0] + product, row[1] + tests];
    }
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).unwrap_or_default();
    rows.insert(PACKAGES.to_owned(), [lock.lines().filter(|line| *line == "[[package]]").count(), 0]);
    rows
}

/// Lines of product and of tests in a file.
fn lines(file: &Path, text: &str) -> (usize, usize) {
    let all = text.lines().count();
    let product = if is_of_tests(file) { 0 } else { before_tests(text) };
    (product, all - product)
}

fn compare(budget: &Rows, found: &Rows) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, now) in found {
        let Some(allowed) = budget.get(name) else {
            faults.push(format!("{name}: has no row in {FILE}; write: {name} {} {}", now[0], now[1]));
            continue;
        };
        for (what, (now, allowed)) in ["product", "tests"].into_iter().zip(now.iter().zip(allowed)) {
            let what = if name == PACKAGES { "number" } else { what };
            if now > allowed {
                faults.push(format!(
                    "{name}: {what} is {now}, {allowed} in {FILE}; remove lines, or raise it with the reason \
                     in a line `Budget: …` of the commit message"
                ));
            } else if now + SLACK < *allowed {
                faults
                    .push(format!("{name}: {what} fell to {now}, {allowed} in {FILE}; write the new number"));
            }
        }
    }
    let gone = budget.keys().filter(|name| !found.contains_key(*name));
    faults.extend(gone.map(|name| format!("{name}: is gone, remove its row from {FILE}")));
    faults
}

/// The numbers that the newest change of the file raised, if its commit gives no reason. Nothing without a history.
fn without_reason(root: &Path) -> Vec<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(log) = git(&["log", "-1", "--format=%H%n%B", "--", FILE]) else { return Vec::new() };
    let commit = log.lines().next().unwrap_or_default();
    let of = |revision: &str| git(&["show", &format!("{revision}:{FILE}")]).and_then(|text| read(&text).ok());
    let (Some(new), Some(old)) = (of(commit), of(&format!("{commit}~1"))) else { return Vec::new() };
    if log.lines().any(|line| line.starts_with("Budget: ")) { Vec::new() } else { raised(&old, &new) }
}

fn raised(old: &Rows, new: &Rows) -> Vec<String> {
    let rose = |(name, now): (&String, &[usize; 2])| {
        let before = old.get(name)?;
        let rose = now.iter().zip(before).any(|(now, before)| now > before);
        rose.then(|| {
            format!("{name}: its last change in {FILE} raised it without a line `Budget: …` in the commit")
        })
    };
    new.iter().filter_map(rose).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "# comment\ncli 1000 500\npackages 400\n";

    #[test]
    fn rows_are_read_or_named() {
        let rows = read(ROWS).unwrap();
        assert_eq!((rows["cli"], rows["packages"]), ([1000, 500], [400, 0]));
        assert_eq!(read("cli many 3\n").unwrap_err(), format!("{FILE}: \"cli many 3\" is no row"));
    }

    #[test]
    fn what_is_above_or_far_below_is_a_fault() {
        let budget = read(ROWS).unwrap();
        let found = |product, tests, packages| {
            compare(
                &budget,
                &Rows::from([("cli".into(), [product, tests]), ("packages".into(), [packages, 0])]),
            )
        };
        assert!(found(1000, 500, 400).is_empty());
        assert!(found(600, 100, 0).is_empty());
        assert!(found(1001, 500, 400)[0].starts_with("cli: product is 1001, 1000 in"));
        assert!(found(1000, 501, 400)[0].starts_with("cli: tests is 501"));
        assert!(found(1000, 500, 401)[0].starts_with("packages: number is 401"));
        assert!(found(599, 500, 400)[0].starts_with("cli: product fell to 599"));
        let other = compare(&budget, &Rows::from([("new".into(), [1, 2])]));
        assert!(other[0].starts_with("new: has no row") && other[1].starts_with("cli: is gone"), "{other:?}");
    }

    #[test]
    fn a_number_that_rises_needs_a_reason() {
        let (old, new) = (read(ROWS).unwrap(), read("cli 1000 501\npackages 300\n").unwrap());
        assert_eq!(raised(&old, &new).len(), 1);
        assert!(raised(&new, &new).is_empty());
    }

    #[test]
    fn tests_and_product_are_counted_apart() {
        let text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(lines(Path::new("cli/src/a.rs"), text), (2, 3));
        assert_eq!(lines(Path::new("cli/src/a/tests.rs"), text), (0, 5));
        assert_eq!(lines(Path::new("tests/xtask/src/a.rs"), text), (0, 5));
    }
}
