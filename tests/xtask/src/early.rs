//! Early returns in tests. A test that returns before it has asserted anything counts as passed; a test that cannot run is skipped
//! by `need!` of `tests/support` instead, which reports why.

use std::path::{Path, PathBuf};

use syn::visit::Visit;

use crate::lines;

/// The crate that prints why a test is skipped.
const EXEMPT: &[&str] = &["tests/support/src", "tests/xtask/src"];

/// Every such return, and every test that reports a skip by printing it.
pub(crate) fn faults(root: &Path, tracked: &[PathBuf]) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, text) in lines::sources(root, tracked) {
        if EXEMPT.iter().any(|exempt| file.starts_with(exempt)) {
            continue;
        }
        faults.extend(of_file(&text).into_iter().map(|fault| format!("{}:{fault}", file.display())));
    }
    faults
}

fn of_file(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let prints = line.contains("println!") || line.contains("print!(");
        if prints && line.contains("\"SKIP") {
            faults.push(format!(
                "{}: prints a skip, which is counted as passed; use need! of tests/support",
                number + 1
            ));
        }
    }
    // Only files with tests are parsed, which saves most of the time.
    if text.contains("test]") || text.contains("test(") {
        match syn::parse_file(text) {
            Ok(file) => Tests(&mut faults).visit_file(&file),
            Err(error) => faults.push(format!(" {error}")),
        }
    }
    faults
}

/// Finds the functions that are tests.
struct Tests<'a>(&'a mut Vec<String>);

impl<'ast> Visit<'ast> for Tests<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let is_test = |attribute: &syn::Attribute| {
            attribute.path().segments.last().is_some_and(|segment| segment.ident == "test")
        };
        if function.attrs.iter().any(is_test) {
            Returns { test: &function.sig.ident, faults: self.0 }.visit_block(&function.block);
        } else {
            syn::visit::visit_item_fn(self, function);
        }
    }
}

/// Finds what returns from the test itself.
struct Returns<'a> {
    test: &'a syn::Ident,
    faults: &'a mut Vec<String>,
}

impl<'ast> Visit<'ast> for Returns<'_> {
    fn visit_expr_return(&mut self, _: &'ast syn::ExprReturn) {
        let test = self.test;
        self.faults
            .push(format!(" {test} returns early, which is counted as passed; use need! of tests/support"));
    }

    // What these return from is not the test.
    fn visit_expr_closure(&mut self, _: &'ast syn::ExprClosure) {}
    fn visit_expr_async(&mut self, _: &'ast syn::ExprAsync) {}
    fn visit_item(&mut self, _: &'ast syn::Item) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_early_return_is_caught() {
        let planted =
            "#[test]\nfn planted() {\n    let Some(lab) = lab() else { return };\n    lab.run();\n}\n";
        let fault = " planted returns early, which is counted as passed; use need! of tests/support";
        assert_eq!(of_file(planted), [fault]);
        let asynchronous = "#[tokio::test(flavor = \"multi_thread\")]\nasync fn planted() {\n    if x { return println!(\"no\"); }\n}\n";
        assert_eq!(of_file(asynchronous).len(), 1);
        let nested = "mod tests {\n    #[test]\n    fn planted() { match x { _ => return } }\n}\n";
        assert_eq!(of_file(nested).len(), 1);
    }

    #[test]
    fn a_planted_print_of_a_skip_is_caught() {
        let planted = "fn lab() -> Option<()> {\n    eprintln!(\"SKIP machine: no kernel\");\n    None\n}\n";
        assert_eq!(
            of_file(planted),
            ["2: prints a skip, which is counted as passed; use need! of tests/support"]
        );
    }

    #[test]
    fn other_returns_are_left_alone() {
        let text = "#[test]\nfn good() {\n    need!(root());\n    let f = || { return 1; };\n    \
                    let g = async { return 2 };\n    fn h() { return }\n}\nfn helper() { return }\n";
        assert!(of_file(text).is_empty());
    }
}
