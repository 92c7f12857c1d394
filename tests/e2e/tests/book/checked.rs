//! What is true of all pages without executing one.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use neonvm_e2e::book::{Step, shell};

use crate::{contents, executed, page, pages};

fn files(directory: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        let name = format!("{prefix}{}", name.to_string_lossy());
        if entry.is_dir() {
            files(&entry, &format!("{name}/"), found);
        } else if name.ends_with(".md") && name != "SUMMARY.md" {
            found.insert(name);
        }
    }
}

#[test]
fn each_page_is_in_the_table_of_contents_and_is_read() {
    let mut found = BTreeSet::new();
    files(&pages(), "", &mut found);
    assert_eq!(contents().into_iter().collect::<BTreeSet<_>>(), found);
    for name in contents() {
        page(&name);
    }
}

#[test]
fn each_page_with_commands_to_execute_has_a_test() {
    let with = contents().into_iter().filter(|name| page(name).is_executed()).collect::<BTreeSet<_>>();
    assert_eq!(executed::PAGES.map(str::to_owned).into_iter().collect::<BTreeSet<_>>(), with);
}

/// Each call of neonctl has a command and flags that exist. Parsing ends at `--help`, before anything is done.
#[test]
fn each_call_of_neonctl_can_be_parsed() {
    let neonctl = neonvm_e2e::programs().unwrap().join("neonctl");
    let mut wrong = Vec::new();
    for name in contents() {
        for step in page(&name).steps {
            let (Step::Run(command) | Step::Check(command)) = step else { continue };
            for mut words in shell::calls(&command.text, "neonctl") {
                // The help of a whole wrong command would be that of its parent.
                let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
                words.insert(end, "--help".to_owned());
                let output = Command::new(&neonctl).args(&words).output().unwrap();
                // Some pages show what a wrong flag leads to.
                if !output.status.success() && command.code != Some(2) {
                    let text = String::from_utf8_lossy(&output.stderr).into_owned();
                    wrong.push(format!(
                        "docs/src/{name}:{}: neonctl {}: {text}",
                        command.line,
                        words.join(" ")
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
