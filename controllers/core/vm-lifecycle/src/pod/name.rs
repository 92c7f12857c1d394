//! Names of runner pods: the name of the VM, a hyphen, and five characters of which the last is `0`, `1` or `3`.
//!
//! Kubernetes ends the names that it generates with five characters of an alphabet without these three digits. So a webhook
//! configuration (`matchConditions`), which gets the name of an evicted pod and none of its labels, can distinguish runner
//! pods from other pods.

/// Without vowels, so that no words come about; the alphabet of Kubernetes' `generateName`.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// What ends the name of a runner pod and no name that Kubernetes generates.
const LAST: &[u8; 3] = b"013";

/// What the names of runner pods match, in the syntax of RE2.
pub const PATTERN: &str = "^.+-[bcdfghjklmnpqrstvwxz2456789]{4}[013]$";

/// What is appended to the name of the VM, made of random bytes: one of 1,594,323 values.
#[must_use]
pub fn suffix(random: [u8; 5]) -> String {
    let pick = |letters: &[u8], byte: u8| {
        let letter = letters.get(usize::from(byte) % letters.len().max(1));
        char::from(letter.copied().unwrap_or(b'x'))
    };
    let [first @ .., last] = random;
    first.into_iter().map(|byte| pick(ALPHABET, byte)).chain([pick(LAST, last)]).collect()
}

/// Whether the name matches [`PATTERN`]. Those that earlier versions made have other names.
#[must_use]
pub fn is_runner(name: &str) -> bool {
    let Some((vm, suffix)) = name.rsplit_once('-') else { return false };
    let is_right = |(index, byte): (usize, u8)| if index < 4 { &ALPHABET[..] } else { LAST }.contains(&byte);
    !vm.is_empty() && suffix.len() == 5 && suffix.bytes().enumerate().all(is_right)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_other_workloads_are_not_those_of_runner_pods() {
        for name in
            ["web-7d4b9c6f5d-x2x7q", "web-0", "db-1", "db-bcdf", "-bcdf0", "bcdf0", "db-bcdf0x", "db-acdf0"]
        {
            assert!(!is_runner(name), "{name}");
        }
        assert!(is_runner("db-bcdf0") && is_runner("a-b-z9z93"));
    }

    proptest! {
        #[test]
        fn each_suffix_makes_the_name_of_a_runner_pod(random: [u8; 5], vm in "[a-z]([a-z0-9-]{0,20}[a-z0-9])?") {
            let name = format!("{vm}-{}", suffix(random));
            prop_assert!(is_runner(&name), "{name}");
        }

        #[test]
        fn a_name_that_kubernetes_generates_is_not_one(owner in "[a-z]([a-z0-9-]{0,20}[a-z0-9])?",
            end in "[bcdfghjklmnpqrstvwxz2456789]{5}") {
            let name = format!("{owner}-{end}");
            prop_assert!(!is_runner(&name), "{name}");
        }
    }
}
