//! What two QEMUs agree on. Pure.

use std::collections::{BTreeMap, BTreeSet};

use neonvm_types::runner_protocol::{Compression, MigrationParameters, OnTimeout, PostCopy};

use super::ZSTD;

/// What a QEMU can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    pub capabilities: BTreeSet<String>,
    /// Those of them that it cannot have on its host, and why.
    pub refused: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedFeatures {
    /// Connections for memory.
    pub channels: u8,
    pub compression: Compression,
    /// Slow the guest down if it must be.
    pub auto_converge: bool,
    /// The guest may run on the target before its memory is there.
    pub post_copy: bool,
}

impl From<&MigrationParameters> for RequestedFeatures {
    fn from(parameters: &MigrationParameters) -> Self {
        Self {
            channels: parameters.channels,
            compression: parameters.compression,
            auto_converge: parameters.auto_converge,
            post_copy: parameters.post_copy != PostCopy::Never
                || parameters.on_timeout == OnTimeout::PostCopy,
        }
    }
}

/// The settings for a VM's migration that both QEMUs support.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Capabilities to be on, on both sides.
    pub capabilities: BTreeSet<String>,
    /// Connections for memory; 1 without `multifd`.
    pub channels: u8,
    pub compression: Compression,
    /// Requested features that are not used, each with its reason.
    pub dropped: Vec<String>,
}

impl Agreement {
    /// Whether the guest may run on the target before its memory is there.
    #[must_use]
    pub fn has_post_copy(&self) -> bool {
        self.capabilities.contains("postcopy-ram")
    }

    /// For people, such as `multifd x4, zstd, auto-converge, pause-before-switchover`.
    #[must_use]
    pub fn mode(&self) -> String {
        let mut words = Vec::new();
        if self.capabilities.contains("multifd") {
            words.push(format!("multifd x{}", self.channels));
            if self.compression == Compression::Zstd {
                words.push("zstd".to_owned());
            }
        }
        for name in ["auto-converge", "postcopy-ram", "postcopy-preempt", "pause-before-switchover"] {
            if self.capabilities.contains(name) {
                words.push(name.trim_end_matches("-ram").to_owned());
            }
        }
        words.join(", ")
    }
}

/// Without these no migration is safe, and each supported QEMU has them.
const NEEDED: [&str; 3] = ["events", "return-path", "pause-before-switchover"];

/// Why `name` is not available, if it is not.
fn obstacle(name: &str, source: &Abilities, target: &Abilities) -> Option<String> {
    for (side, abilities) in [("source", source), ("target", target)] {
        if let Some(reason) = abilities.refused.get(name) {
            return Some(format!("the {side}'s QEMU refuses it: {reason}"));
        }
        if !abilities.capabilities.contains(name) {
            return Some(format!("the {side}'s QEMU does not know it"));
        }
    }
    None
}

/// The largest set of requested features that both sides have and that work together.
///
/// # Errors
/// If one of them lacks what every migration needs.
pub fn negotiate(
    wanted: &RequestedFeatures,
    source: &Abilities,
    target: &Abilities,
) -> Result<Agreement, String> {
    let mut agreed = Agreement { channels: 1, ..Agreement::default() };
    for name in NEEDED {
        match obstacle(name, source, target) {
            None => drop(agreed.capabilities.insert(name.to_owned())),
            Some(why) => return Err(format!("{name}: {why}")),
        }
    }
    let take = |name: &str, agreed: &mut Agreement| -> bool {
        let why = obstacle(name, source, target);
        match &why {
            None => drop(agreed.capabilities.insert(name.to_owned())),
            Some(why) => agreed.dropped.push(format!("{name}: {why}")),
        }
        why.is_none()
    };
    if wanted.auto_converge {
        take("auto-converge", &mut agreed);
    }
    if wanted.post_copy && take("postcopy-ram", &mut agreed) {
        // Pages the guest waits for overtake the others: of use, not worth a word where it is missing.
        if obstacle("postcopy-preempt", source, target).is_none() {
            agreed.capabilities.insert("postcopy-preempt".to_owned());
        }
    }
    if wanted.channels > 1 || wanted.compression != Compression::None {
        if agreed.has_post_copy() {
            // QEMU 7.2 takes both and then never comes to the second part.
            let what = if wanted.compression == Compression::Zstd { "multifd, zstd" } else { "multifd" };
            agreed.dropped.push(format!("{what}: not together with post-copy"));
        } else if take("multifd", &mut agreed) {
            agreed.channels = wanted.channels.max(1);
            if wanted.compression == Compression::Zstd {
                match obstacle(ZSTD, source, target) {
                    None => agreed.compression = Compression::Zstd,
                    Some(why) => agreed.dropped.push(format!("zstd: {why}")),
                }
            }
        }
    }
    Ok(agreed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [&str; 8] = [
        "events",
        "return-path",
        "pause-before-switchover",
        "multifd",
        "auto-converge",
        "postcopy-ram",
        "postcopy-preempt",
        ZSTD,
    ];

    fn all() -> Abilities {
        Abilities { capabilities: ALL.iter().map(|&name| name.to_owned()).collect(), ..Abilities::default() }
    }

    fn wanted() -> RequestedFeatures {
        RequestedFeatures {
            channels: 4,
            compression: Compression::Zstd,
            auto_converge: true,
            post_copy: false,
        }
    }

    #[test]
    fn equals_agree_on_everything() {
        let agreed = negotiate(&wanted(), &all(), &all()).unwrap();
        assert_eq!(agreed.mode(), "multifd x4, zstd, auto-converge, pause-before-switchover");
        assert!(agreed.dropped.is_empty());
        assert!(!agreed.capabilities.contains(ZSTD), "QEMU has no capability of that name");
    }

    #[test]
    fn post_copy_excludes_channels_and_a_refusal_names_its_remedy() {
        let post_copy = RequestedFeatures { post_copy: true, ..wanted() };
        let agreed = negotiate(&post_copy, &all(), &all()).unwrap();
        assert_eq!(agreed.mode(), "auto-converge, postcopy, postcopy-preempt, pause-before-switchover");
        assert_eq!(agreed.dropped, ["multifd, zstd: not together with post-copy"]);
        let mut target = all();
        target.refused.insert("postcopy-ram".into(), "no (remedy)".into());
        let agreed = negotiate(&post_copy, &all(), &target).unwrap();
        assert_eq!(agreed.mode(), "multifd x4, zstd, auto-converge, pause-before-switchover");
        assert_eq!(agreed.dropped, ["postcopy-ram: the target's QEMU refuses it: no (remedy)"]);
    }

    #[test]
    fn no_move_without_a_return_path() {
        let mut target = all();
        target.capabilities.remove("return-path");
        let why = negotiate(&wanted(), &all(), &target).unwrap_err();
        assert_eq!(why, "return-path: the target's QEMU does not know it");
    }

    proptest! {
        #[test]
        fn only_what_both_have_is_switched_on(
            source in proptest::collection::btree_set(0..ALL.len(), 0..ALL.len()),
            target in proptest::collection::btree_set(0..ALL.len(), 0..ALL.len()),
            channels in 0_u8..=255, zstd: bool, auto_converge: bool, post_copy: bool,
        ) {
            let of = |some: &BTreeSet<usize>| Abilities {
                capabilities: some.iter().map(|&index| ALL[index].to_owned()).collect(),
                ..Abilities::default()
            };
            let compression = if zstd { Compression::Zstd } else { Compression::None };
            let wanted = RequestedFeatures { channels, compression, auto_converge, post_copy };
            if let Ok(agreed) = negotiate(&wanted, &of(&source), &of(&target)) {
                for name in &agreed.capabilities {
                    prop_assert!(of(&source).capabilities.contains(name) && of(&target).capabilities.contains(name));
                }
                for name in NEEDED {
                    prop_assert!(agreed.capabilities.contains(name));
                }
                prop_assert!(!(agreed.capabilities.contains("multifd") && agreed.has_post_copy()));
                prop_assert!(agreed.channels == 1 || agreed.capabilities.contains("multifd"));
                prop_assert!(!agreed.capabilities.contains("postcopy-preempt") || agreed.has_post_copy());
            }
        }
    }
}
