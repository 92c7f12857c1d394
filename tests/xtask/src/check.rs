//! `xtask check`: all checks that do not run the product.

use std::path::Path;

use crate::{
    arrows, budget, circles, cited, early, foreign, generated, links, orphans, outputs, package, packages,
    process, sizes, starts, strings, terms, wording,
};

/// Prints every fault; true if there is none. `still`: without the format, and without the generated files, for which
/// something has to be compiled.
pub(crate) fn run(root: &Path, still: bool) -> anyhow::Result<bool> {
    let packages = package::workspace(root)?;
    let tracked = package::tracked(root)?;
    let mut results = vec![
        ("arrows", arrows::faults(&packages)),
        ("circles", circles::faults(root, &tracked)),
        ("orphans", orphans::faults(root, &packages, &tracked)),
        ("sizes", sizes::faults(root, &tracked)),
        ("budget", budget::faults(root, &tracked)),
        ("links", links::faults(root, &tracked)),
        ("cited", cited::faults(root, &packages, &tracked)),
        ("wording", wording::faults(root, &tracked)),
        ("terms", terms::faults(root, &tracked)),
        ("early", early::faults(root, &tracked)),
        ("unsafe", foreign::faults(root, &tracked)),
        ("outputs", outputs::faults(root, &tracked)),
        ("programs", starts::faults(root, &tracked)),
        ("texts", strings::faults(root)?),
        ("bans", generated::bans(root)?),
    ];
    if !still {
        let formatted = process::run_cargo(root, &["fmt", "--all", "--check"])?;
        let fault = (!formatted).then(|| "run: cargo fmt --all".to_owned());
        results.push(("format", fault.into_iter().collect()));
        results.push(("generated", generated::faults(root)?));
        match packages::offline_faults(root)? {
            Some(faults) => results.push(("packages", faults)),
            None => println!("check packages   skipped: no cargo-deny; cargo xtask packages installs it"),
        }
    }
    let mut good = true;
    for (name, faults) in results {
        println!("check {name:<10} {}", if faults.is_empty() { "ok" } else { "FAILED" });
        good &= faults.is_empty();
        for fault in faults {
            println!("  {fault}");
        }
    }
    Ok(good)
}
