//! Rules of ours in chains of other programs. On a host with Docker, ufw or firewalld the chains of forwarded packets drop
//! what no rule accepts, and frames between nodes pass the same chains where bridges call them (`br_netfilter`, whose
//! switch of a single bridge cannot turn off what the host has on for all). An accept rule elsewhere does not help: a packet has to be
//! accepted by every base chain. So each chain that may drop gets two rules, for the cluster's bridge only: what comes from it passes,
//! and so does what belongs to its connections. They have a comment by which they are found and removed again.

mod ruleset;
mod watch;
mod xtables;

use std::fmt;
use std::io;

use serde_json::Value;

use super::command::{nft, run};
use super::host;
use crate::naming;
use ruleset::BaseChain;
use xtables::Variant;

pub use watch::Watch;

/// File that notes that firewalld has the bridge in a zone.
const FIREWALLD: &str = "firewalld";
/// firewalld's zone that forwards everything.
const ZONE: &str = "trusted";
/// Why chains of the family bridge stay: tables of `ebtables` do not survive rules of others.
const BRIDGE_FAMILY: &str = "chains of the family bridge are not changed";
/// Rules in each chain.
const RULES: usize = 2;

/// A chain through which forwarded packets pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardChain {
    Nft {
        /// `ip`, `ip6`, `inet` or `bridge`.
        family: String,
        table: String,
        /// Its own name.
        chain: String,
    },
    /// The chain `FORWARD` of a table of iptables.
    Xtables {
        /// Program that changes it, for instance `iptables-nft`.
        program: String,
        table: String,
    },
}

impl fmt::Display for ForwardChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nft { family, table, chain } => write!(f, "{family} {table} {chain} (nft)"),
            Self::Xtables { program, table } => write!(f, "{table} FORWARD ({program})"),
        }
    }
}

async fn nft_json(arguments: &[&str]) -> io::Result<Value> {
    let mut all = vec!["-j"];
    all.extend(arguments);
    serde_json::from_str(&run("nft", &all, "").await?).map_err(io::Error::other)
}

/// All chains through which forwarded packets pass, with the policy of those of nftables.
async fn chains() -> io::Result<Vec<(ForwardChain, bool)>> {
    let mut all = Vec::new();
    for BaseChain { family, table, name, drops } in
        ruleset::forward_chains(&nft_json(&["list", "chains"]).await?)
    {
        let has_xtables =
            name == "FORWARD" && family.starts_with("ip") && xtables::TABLES.contains(&table.as_str());
        let program = if has_xtables { xtables::program(&family, Variant::Nft).await } else { None };
        // A table that iptables does not understand any more is changed by nft.
        let program = match program {
            Some(program) if xtables::list(&program, &table).await.is_ok() => Some(program),
            _ => None,
        };
        all.push(match program {
            Some(program) => (ForwardChain::Xtables { program, table }, drops),
            None => (ForwardChain::Nft { family, table, chain: name }, drops),
        });
    }
    for family in ["ip", "ip6"] {
        let tables = xtables::legacy_tables(family);
        if tables.is_empty() {
            continue;
        }
        let name = format!("{family}tables-legacy");
        let program = xtables::program(family, Variant::Legacy).await.unwrap_or(name);
        all.extend(
            tables
                .into_iter()
                .map(|table| (ForwardChain::Xtables { program: program.clone(), table }, false)),
        );
    }
    Ok(all)
}

/// Chains of the host's namespace that may drop forwarded packets: what local clusters put their rules into.
///
/// # Errors
/// If `nft` is missing or fails, for instance without privileges.
pub async fn dropping() -> io::Result<Vec<ForwardChain>> {
    let mut found = Vec::new();
    for (chain, drops) in chains().await? {
        let drops = drops
            || match &chain {
                ForwardChain::Nft { family, table, chain } => {
                    ruleset::may_drop(&nft_json(&["-t", "list", "table", family, table]).await?, chain)
                }
                // What cannot be listed is reported when the rules are to be added.
                ForwardChain::Xtables { program, table } => {
                    xtables::list(program, table).await.map_or(true, |rules| xtables::may_drop(&rules))
                }
            };
        if drops {
            found.push(chain);
        }
    }
    Ok(found)
}

impl ForwardChain {
    /// Adds the rules of a cluster, unless they are there.
    async fn admit(&self, cluster: &str) -> io::Result<()> {
        let (bridge, comment) = (naming::bridge(cluster), naming::rule_comment(cluster));
        match self {
            Self::Xtables { program, table } => {
                let rules = xtables::list(program, table).await?;
                if xtables::own(&rules, &comment).count() == RULES {
                    return Ok(());
                }
                xtables::remove(program, table, &comment).await?;
                xtables::insert(program, table, &bridge, &comment).await
            }
            Self::Nft { family, .. } if family == "bridge" => Err(io::Error::other(BRIDGE_FAMILY)),
            Self::Nft { family, table, chain } => {
                let place = format!("{family} {table} {chain}");
                let listing = nft_json(&["-a", "list", "chain", family, table, chain]).await?;
                let own = ruleset::handles(&listing, &comment);
                if own.len() == RULES {
                    return Ok(());
                }
                let delete = own.iter().map(|handle| format!("delete rule {place} handle {handle}\n"));
                let script = delete.collect::<String>()
                    + &format!(
                        "insert rule {place} oifname \"{bridge}\" ct state established,related counter accept comment \"{comment}\"\n\
                         insert rule {place} iifname \"{bridge}\" counter accept comment \"{comment}\"\n"
                    );
                match nft(&script).await {
                    Err(error) if table == FIREWALLD => firewalld(cluster, &bridge)
                        .await
                        .map_err(|other| io::Error::other(format!("{error}; {other}"))),
                    done => done,
                }
            }
        }
    }

    /// Removes the rules of a cluster.
    async fn dismiss(&self, comment: &str) -> io::Result<()> {
        match self {
            Self::Xtables { program, table } => xtables::remove(program, table, comment).await,
            Self::Nft { family, table, chain } => {
                let listing = nft_json(&["-a", "list", "chain", family, table, chain]).await?;
                let delete = |handle| format!("delete rule {family} {table} {chain} handle {handle}\n");
                let script: String = ruleset::handles(&listing, comment).into_iter().map(delete).collect();
                if script.is_empty() { Ok(()) } else { nft(&script).await }
            }
        }
    }

    /// Why rules cannot be added, if that is known without trying.
    pub async fn obstacle(&self) -> Option<String> {
        match self {
            Self::Nft { family, .. } if family == "bridge" => Some(BRIDGE_FAMILY.to_owned()),
            Self::Nft { .. } => None,
            Self::Xtables { program, table } => {
                xtables::list(program, table).await.err().map(|error| error.to_string())
            }
        }
    }

    /// What its owner can do where we cannot.
    fn remedy(&self, cluster: &str) -> String {
        let bridge = naming::bridge(cluster);
        match self {
            Self::Nft { table, .. } if table == FIREWALLD => {
                format!("firewall-cmd --zone={ZONE} --change-interface={bridge}")
            }
            Self::Nft { family, table, chain } => {
                format!("nft insert rule {family} {table} {chain} iifname {bridge} accept")
            }
            Self::Xtables { program, table } => {
                format!("install {program}, or: {program} -t {table} -I FORWARD -i {bridge} -j ACCEPT")
            }
        }
    }
}

/// firewalld may own its table, so that no other program can change it; then the bridge goes into a zone that forwards.
async fn firewalld(cluster: &str, bridge: &str) -> io::Result<()> {
    let current = format!("--get-zone-of-interface={bridge}");
    if run("firewall-cmd", &[&current], "").await.is_ok_and(|zone| zone.trim() == ZONE) {
        return Ok(());
    }
    let directory = host::directory(cluster);
    std::fs::create_dir_all(&directory)?;
    // Noted first: what is noted is undone when the cluster is removed.
    std::fs::write(directory.join(FIREWALLD), bridge)?;
    let (zone, interface) = (format!("--zone={ZONE}"), format!("--change-interface={bridge}"));
    run("firewall-cmd", &[&zone, &interface], "").await.map(drop)
}

/// Adds the rules of a cluster to each chain that may drop its packets; what is there already is kept. Returns a line for each chain
/// that could not be changed, with a remedy.
///
/// # Errors
/// If the chains cannot be listed.
pub async fn ensure(cluster: &str) -> io::Result<Vec<String>> {
    let mut problems = Vec::new();
    for chain in dropping().await? {
        if let Err(error) = chain.admit(cluster).await {
            problems.push(format!(
                "VMs may have no network and live migration may fail: the chain {chain} may drop their packets and cannot be \
                 changed: {error}; {}",
                chain.remedy(cluster)
            ));
        }
    }
    Ok(problems)
}

/// Removes the rules of a cluster from all chains.
///
/// # Errors
/// If one cannot be changed; the others are, all the same.
pub(super) async fn remove(cluster: &str) -> io::Result<()> {
    let comment = naming::rule_comment(cluster);
    let all = match chains().await {
        Ok(all) => all,
        // Without the program or privileges nothing of the sort can have been made.
        Err(_) => return Ok(()),
    };
    let mut failed = Ok(());
    for (chain, _) in all {
        let removed = chain.dismiss(&comment).await;
        // A table of the legacy variant without its program, for instance: nothing of ours is in it.
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            failed = Err(error);
        }
    }
    let note = host::directory(cluster).join(FIREWALLD);
    if note.exists() {
        let interface = format!("--remove-interface={}", naming::bridge(cluster));
        // A firewalld that has ended has forgotten it.
        let _ = run("firewall-cmd", &[&format!("--zone={ZONE}"), &interface], "").await;
    }
    failed
}

#[cfg(test)]
mod tests;
