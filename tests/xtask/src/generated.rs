//! Generated files must be what their generator writes today, and banned packages must not be in the tree.

use std::path::Path;

/// Test that compares `deploy/crds` with the types they come from.
const GOLDEN: &[&str] = &["test", "--quiet", "--locked", "-p", "neonvm-api", "--lib", "crd::"];

/// Packages that must not be in the tree, and who may pull them in all the same.
const BANNED: &[(&str, &[&str])] = &[
    ("openssl", &[]),
    ("openssl-sys", &[]),
    ("native-tls", &[]),
    ("aws-lc-rs", &[]),
    ("aws-lc-sys", &[]),
    ("serde_yaml", &[]),
    ("async-std", &[]),
    ("lazy_static", &["sharded-slab", "antlr4rust", "cel", "x509-parser"]),
    ("chrono", &["cel", "chrono-tz", "russh-util", "prometheus-parse"]),
];

/// Differences between `deploy/crds` and the generator.
pub(crate) fn faults(root: &Path) -> anyhow::Result<Vec<String>> {
    let output = crate::package::cargo().args(GOLDEN).current_dir(root).output()?;
    if output.status.success() {
        return Ok(Vec::new());
    }
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Ok(vec![format!("deploy/crds is not what controllers/api generates:\n{text}")])
}

/// Banned packages in the lock file.
pub(crate) fn bans(root: &Path) -> anyhow::Result<Vec<String>> {
    Ok(banned(&std::fs::read_to_string(root.join("Cargo.lock"))?))
}

/// A lock file is a list of `[[package]]` blocks with `name`, `version` and `dependencies`.
fn banned(lock: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for block in lock.split("[[package]]").skip(1) {
        let user =
            block.lines().find_map(|line| line.strip_prefix("name = ")).unwrap_or_default().trim_matches('"');
        for line in block.lines() {
            let dependency = line.trim().trim_end_matches(',').trim_matches('"');
            let dependency = dependency.split(' ').next().unwrap_or_default();
            let Some((_, wrappers)) = BANNED.iter().find(|(name, _)| *name == dependency) else { continue };
            if !wrappers.contains(&user) {
                faults.push(format!("{user} depends on {dependency}, which is banned (deny.toml)"));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_banned_package_is_found_by_its_user() {
        let lock = "[[package]]\nname = \"a\"\ndependencies = [\n \"serde\",\n \"openssl 0.10.1\",\n]\n\n\
                    [[package]]\nname = \"cel\"\ndependencies = [\n \"chrono\",\n]\n";
        assert_eq!(banned(lock), ["a depends on openssl, which is banned (deny.toml)"]);
    }
}
