//! The CPU of emulated guests.
//!
//! QEMU's model `max` differs from version to version: since 7.2 it gained thirteen features and another family number, and
//! lost one feature, with the same machine type. A guest that migrated would have another CPU than the one that it
//! detected at its boot, and an instruction that it found on the newer QEMU would end its program on the older one. So
//! the features are listed, on top of a model that never changes, and later versions add nothing to it.

/// All that the translator of QEMU 7.2, the oldest supported, can do, without these features:
///
/// * `erms` and `fsrm`: `rep stosb` and `rep movsb` are translated to one iteration for each byte. With ERMS Linux
///   clears and copies pages with them, without it by words of 8 bytes. FSRM without ERMS, which no processor has,
///   makes kernels hang at their boot. QEMU 7.2 offers ERMS only, later versions both.
/// * `pcommit`: later versions cannot do it.
pub(super) const EMULATED: &str = "qemu64,3dnow=on,3dnowext=on,abm=on,acpi=on,adx=on,aes=on,arat=on,avx=on,avx2=on,bmi1=on,bmi2=on,\
     clflushopt=on,clwb=on,cr8legacy=on,f16c=on,fma=on,fsgsbase=on,la57=on,mmxext=on,monitor=on,movbe=on,\
     mpx=on,npt=on,pclmulqdq=on,pdpe1gb=on,pks=on,pku=on,popcnt=on,rdrand=on,rdtscp=on,smap=on,smep=on,\
     ss=on,sse4.1=on,sse4.2=on,sse4a=on,ssse3=on,svme-addr-chk=on,umip=on,vaes=on,vgif=on,xgetbv1=on,\
     xsave=on,xsaveopt=on";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use neonvm_types::runner_protocol::EMULATED_LEVEL;

    use super::EMULATED;

    /// `qemu64` itself has `cx16`, `lahf-lm` and `pni`, which is SSE3. The level counts for the choice of an image.
    #[test]
    fn the_level_is_the_highest_with_all_features() {
        let levels: [(u8, &[&str]); 3] = [
            (2, &["popcnt", "sse4.1", "sse4.2", "ssse3"]),
            (3, &["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]),
            (4, &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
        ];
        let has = |feature: &&str| EMULATED.split(',').any(|word| word.strip_suffix("=on") == Some(feature));
        let complete = levels.iter().take_while(|(_, features)| features.iter().all(has));
        assert_eq!(complete.last().map(|(level, _)| *level), Some(EMULATED_LEVEL));
    }

    #[test]
    fn features_are_added_once_and_those_that_hang_or_vary_are_not_among_them() {
        let mut words = EMULATED.split(',');
        assert_eq!(words.next(), Some("qemu64"));
        let mut seen = BTreeSet::new();
        for word in words {
            let name = word.strip_suffix("=on").unwrap_or_else(|| panic!("{word} does not add a feature"));
            assert!(seen.insert(name), "{name} twice");
        }
        for name in ["erms", "fsrm", "fzrm", "fsrs", "fsrc", "pcommit"] {
            assert!(!seen.contains(name), "{name}");
        }
    }
}
