//! Which processors are switched to have so many online.

use std::collections::BTreeSet;

/// The processor that is never switched: interrupts and suspend depend on it.
const BOOT: u32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    pub processor: u32,
    /// Whether it shall be online.
    pub on: bool,
}

/// There are not enough processors to switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} processors asked for; {online} are online and {candidates} more could be switched")]
pub struct Error {
    /// The requested number.
    pub wanted: u32,
    pub online: usize,
    /// How many could be switched in the requested direction.
    pub candidates: usize,
}

/// The switches that lead to `wanted` processors online: lowest number first on, highest number first off.
///
/// # Errors
/// When there are too few candidates; then nothing is to be switched.
pub fn plan(online: &BTreeSet<u32>, offline: &BTreeSet<u32>, wanted: u32) -> Result<Vec<Switch>, Error> {
    let target = usize::try_from(wanted).unwrap_or(usize::MAX);
    let on = target >= online.len();
    let needed = target.abs_diff(online.len());
    let candidates: Vec<u32> = if on {
        offline.iter().copied().filter(|n| *n != BOOT && !online.contains(n)).collect()
    } else {
        online.iter().rev().copied().filter(|n| *n != BOOT).collect()
    };
    if candidates.len() < needed {
        return Err(Error { wanted, online: online.len(), candidates: candidates.len() });
    }
    Ok(candidates.into_iter().take(needed).map(|processor| Switch { processor, on }).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn plans_reach_the_number_or_change_nothing(
            numbers in proptest::collection::btree_map(1u32..40, any::<bool>(), 0..40),
            boot in any::<bool>(),
            wanted in 0u32..50,
        ) {
            let mut online: BTreeSet<u32> = numbers.iter().filter(|n| *n.1).map(|n| *n.0).collect();
            let mut offline: BTreeSet<u32> = numbers.iter().filter(|n| !*n.1).map(|n| *n.0).collect();
            let _ = if boot { online.insert(0) } else { offline.insert(0) };
            let lowest = usize::from(boot);
            let highest = online.len() + offline.len() - usize::from(!boot);
            match plan(&online, &offline, wanted) {
                Err(_) => prop_assert!((wanted as usize) < lowest || wanted as usize > highest),
                Ok(switches) => {
                    for switch in &switches {
                        prop_assert_ne!(switch.processor, 0);
                        let (from, to) =
                            if switch.on { (&mut offline, &mut online) } else { (&mut online, &mut offline) };
                        prop_assert!(from.remove(&switch.processor));
                        prop_assert!(to.insert(switch.processor));
                    }
                    prop_assert_eq!(online.len(), wanted as usize);
                    let sorted = switches.windows(2).all(|w| (w[0].processor < w[1].processor) == w[0].on);
                    prop_assert!(sorted);
                    prop_assert!(plan(&online, &offline, wanted).unwrap().is_empty());
                }
            }
        }
    }
}
