//! `neond firewall`

use std::io::Write as _;

use anyhow::Context as _;

/// Prints the chains of this host that may drop forwarded packets, as JSON: `[{"chain": "…", "obstacle": "…"}]`, with an obstacle if
/// rules of local clusters cannot be added.
pub(crate) fn run() -> anyhow::Result<()> {
    crate::service::run(async {
        let chains = neonvm_kubelet::firewall::dropping().await.context("the firewall cannot be read")?;
        let mut all = Vec::new();
        for chain in chains {
            all.push(serde_json::json!({ "chain": chain.to_string(), "obstacle": chain.obstacle().await }));
        }
        writeln!(std::io::stdout().lock(), "{}", serde_json::Value::from(all))?;
        Ok(())
    })
}
