//! To come.

/// To come.
pub async fn run(_: &neonvm_bench::process::Program) -> anyhow::Result<Vec<String>> {
    Ok(Vec::new())
}
