//! Chains of `iptables`, of both variants. Its tables are changed by its own programs only: `iptables` of nftables refuses
//! to work on a table with a rule that it could not have made.

use std::collections::BTreeSet;
use std::io;

use super::super::command::run;

/// Tables that forwarded packets pass in a chain `FORWARD` and that may have verdicts.
pub(super) const TABLES: [&str; 3] = ["filter", "mangle", "security"];
const CHAIN: &str = "FORWARD";

/// Which implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Nft,
    Legacy,
}

/// The program for a family (`ip` or `ip6`): with the name of its variant, or the plain one if it is of that variant.
pub(super) async fn program(family: &str, variant: Variant) -> Option<String> {
    let (suffix, mark) = match variant {
        Variant::Nft => ("nft", "nf_tables"),
        Variant::Legacy => ("legacy", "legacy"),
    };
    for name in [format!("{family}tables-{suffix}"), format!("{family}tables")] {
        if run(&name, &["--version"], "").await.is_ok_and(|version| version.contains(mark)) {
            return Some(name);
        }
    }
    None
}

/// The rules of a table, one a line.
pub(super) async fn list(program: &str, table: &str) -> io::Result<String> {
    run(program, &["-w", "5", "-t", table, "-S"], "").await
}

/// Tables of the legacy variant that are in use in the namespace of this thread.
pub(super) fn legacy_tables(family: &str) -> Vec<String> {
    let names = std::fs::read_to_string(format!("/proc/thread-self/net/{family}_tables_names"));
    let names = names.unwrap_or_default();
    names.lines().map(str::trim).filter(|name| TABLES.contains(name)).map(str::to_owned).collect()
}

/// The words behind an option in a rule.
fn after<'a>(line: &'a str, options: &[&str]) -> Option<&'a str> {
    line.split_whitespace().skip_while(|word| !options.contains(word)).nth(1)
}

/// Whether forwarded packets may be dropped, by the rules of a table.
pub(super) fn may_drop(rules: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![CHAIN];
    while let Some(chain) = open.pop() {
        if !seen.insert(chain) {
            continue;
        }
        for line in rules.lines() {
            let mut words = line.split_whitespace();
            let (kind, of) = (words.next(), words.next());
            if of != Some(chain) {
                continue;
            }
            let target = if kind == Some("-P") { words.next() } else { after(line, &["-j", "-g"]) };
            match target {
                Some("DROP" | "REJECT") => return true,
                Some(other) if kind == Some("-A") => open.push(other),
                _ => {}
            }
        }
    }
    false
}

/// Our rules among those of a table.
pub(super) fn own<'a>(rules: &'a str, comment: &'a str) -> impl Iterator<Item = &'a str> {
    let begin = format!("-A {CHAIN} ");
    rules.lines().filter(move |line| {
        line.starts_with(&begin)
            && after(line, &["--comment"]).is_some_and(|text| text.trim_matches('"') == comment)
    })
}

/// Puts our rules first: what comes from the bridge passes, and what belongs to it returns.
pub(super) async fn insert(program: &str, table: &str, bridge: &str, comment: &str) -> io::Result<()> {
    let returning = ["-o", bridge, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED"];
    for matching in [&returning[..], &["-i", bridge]] {
        let mut arguments = vec!["-w", "5", "-t", table, "-I", CHAIN, "1"];
        arguments.extend(matching);
        arguments.extend(["-m", "comment", "--comment", comment, "-j", "ACCEPT"]);
        run(program, &arguments, "").await?;
    }
    Ok(())
}

/// Removes our rules.
pub(super) async fn remove(program: &str, table: &str, comment: &str) -> io::Result<()> {
    let rules = list(program, table).await?;
    for line in own(&rules, comment) {
        let mut arguments = vec!["-w", "5", "-t", table, "-D"];
        // Behind `-A`; our rules have no word with a blank.
        arguments.extend(line.split_whitespace().skip(1).map(|word| word.trim_matches('"')));
        run(program, &arguments, "").await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_verdicts_are_read() {
        assert!(may_drop("-P INPUT ACCEPT\n-P FORWARD DROP\n"));
        assert!(!may_drop("-P INPUT DROP\n-P FORWARD ACCEPT\n-A INPUT -j DROP\n-A FORWARD -j LOG\n"));
        let docker = "-P FORWARD ACCEPT\n-N DOCKER-USER\n-N A\n-A FORWARD -j DOCKER-USER\n-A DOCKER-USER -i eth0 -g A\n-A A -j ";
        assert!(may_drop(&format!("{docker}REJECT --reject-with icmp-port-unreachable")));
        assert!(!may_drop(&format!("{docker}FORWARD")));
        assert!(!may_drop(""));
    }

    #[test]
    fn our_rules_are_known_by_their_comment() {
        let rules = "-P FORWARD DROP\n-A FORWARD -i nvx -m comment --comment neonvm-1 -j ACCEPT\n\
                     -A FORWARD -i nvy -m comment --comment \"neonvm-12\" -j ACCEPT\n-A OTHER -m comment --comment neonvm-1 -j DROP";
        assert_eq!(own(rules, "neonvm-1").count(), 1);
        assert!(own(rules, "neonvm-12").next().is_some_and(|line| line.contains("nvy")));
    }
}
