//! All targets over their examples, damaged at random.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;

/// A change of the bytes.
#[derive(Clone, Debug)]
enum Damage {
    Cut(Index),
    Set(Index, u8),
    Repeat(Index, usize),
    Insert(Index, Vec<u8>),
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let one = prop_oneof![
        any::<Index>().prop_map(Damage::Cut),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (any::<Index>(), 1_usize..64).prop_map(|(at, count)| Damage::Repeat(at, count)),
        (any::<Index>(), prop::collection::vec(any::<u8>(), 0..9))
            .prop_map(|(at, new)| Damage::Insert(at, new)),
    ];
    prop::collection::vec(one, 0..6)
}

fn damaged(example: &[u8], damages: &[Damage]) -> Vec<u8> {
    let mut bytes = example.to_vec();
    for damage in damages {
        let at = |at: &Index, bytes: &[u8]| at.index(bytes.len() + 1);
        match damage {
            Damage::Cut(place) => bytes.truncate(at(place, &bytes)),
            Damage::Set(place, byte) => {
                let place = at(place, &bytes);
                bytes.splice(place..bytes.len().min(place + 1), [*byte]);
            }
            Damage::Repeat(place, count) => {
                let place = at(place, &bytes);
                let again: Vec<u8> = bytes.iter().skip(place).take(*count).copied().collect();
                bytes.splice(place..place, again);
            }
            Damage::Insert(place, new) => {
                let place = at(place, &bytes);
                bytes.splice(place..place, new.iter().copied());
            }
        }
    }
    bytes
}

#[test]
fn every_target_has_a_program_and_an_example() {
    let manifest = include_str!("../libfuzzer/Cargo.toml");
    let programs: BTreeSet<&str> =
        manifest.split("[[bin]]\nname = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let targets: BTreeSet<&str> = neonvm_fuzz::targets().map(|target| target.name).collect();
    assert_eq!(programs, targets);
    assert!(neonvm_fuzz::targets().all(|target| !target.examples.is_empty() && !target.from.is_empty()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_target_panics_over_damaged_examples(
        target in prop::sample::select(neonvm_fuzz::targets().collect::<Vec<_>>()),
        example in any::<Index>(),
        damages in damages(),
    ) {
        (target.run)(&damaged(example.get::<&[u8]>(target.examples), &damages));
    }

    #[test]
    fn no_target_panics_over_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for target in neonvm_fuzz::targets() {
            (target.run)(&bytes);
        }
    }
}
