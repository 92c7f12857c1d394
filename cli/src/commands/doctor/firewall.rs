//! Whether the host's firewall drops packets of VMs, by `neond firewall`.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::programs::ask;
use crate::commands::checks::finding::{Finding, ok, warn};

/// How long it may take: large rule sets are read.
const DEADLINE: Duration = Duration::from_secs(10);
const NAME: &str = "firewall";

/// A chain that may drop forwarded packets.
#[derive(Debug, Deserialize)]
struct Dropping {
    chain: String,
    /// Why local clusters cannot add their rules.
    obstacle: Option<String>,
}

/// The firewall, as far as it concerns VMs with network namespaces.
pub(super) fn firewall(neond: Option<&Path>, root: bool) -> Option<Finding> {
    let neond = neond.filter(|_| root)?;
    let answer = ask(neond, &["firewall"], DEADLINE);
    let unknown = |why: &str| {
        let remedy = "see the chains of hook forward: nft list chains";
        warn(NAME, format!("unknown whether forwarded packets are dropped: {why}"), remedy)
    };
    Some(match answer {
        Ok(answer) => match serde_json::from_str::<Vec<Dropping>>(answer.text.trim()) {
            Ok(chains) => verdict(&chains),
            Err(_) => unknown(&answer.complaint),
        },
        Err(error) => unknown(&error.message),
    })
}

fn verdict(chains: &[Dropping]) -> Finding {
    let names = |all: &[&Dropping]| all.iter().map(|one| one.chain.as_str()).collect::<Vec<_>>().join(", ");
    let blocked: Vec<&Dropping> = chains.iter().filter(|one| one.obstacle.is_some()).collect();
    if let Some(why) = blocked.first().and_then(|one| one.obstacle.as_deref()) {
        let detail = format!(
            "{} may drop forwarded packets and cannot be changed: {why}; VMs may have no network, and live migration may fail",
            names(&blocked)
        );
        return warn(NAME, detail, "accept there what comes from interfaces whose names begin with nv");
    }
    if chains.is_empty() {
        return ok(NAME, "forwarded packets are not dropped");
    }
    let all: Vec<&Dropping> = chains.iter().collect();
    ok(
        NAME,
        format!("{} may drop forwarded packets; local clusters add rules that accept theirs", names(&all)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::checks::finding::Verdict;

    #[test]
    fn chains_are_named() {
        let read = |text: &str| verdict(&serde_json::from_str::<Vec<Dropping>>(text).unwrap());
        assert_eq!(read("[]").detail, "forwarded packets are not dropped");
        let docker = r#"{"chain":"filter FORWARD (iptables-nft)","obstacle":null}"#;
        let good = read(&format!("[{docker}]"));
        assert!(
            good.verdict == Verdict::Ok && good.detail.starts_with("filter FORWARD (iptables-nft) may drop")
        );
        let bad = read(&format!(r#"[{docker},{{"chain":"bridge a b (nft)","obstacle":"stays"}}]"#));
        assert_eq!(bad.verdict, Verdict::Warn);
        assert!(
            bad.detail
                .starts_with("bridge a b (nft) may drop forwarded packets and cannot be changed: stays")
        );
        assert!(!bad.remedy.is_empty());
    }
}
