//! Bringing processors of this machine online and offline, below `/sys`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Highest processor number read; above what Linux can be built for on any VM (8,192).
const HIGHEST: u32 = 65_535;
/// The processor that is never switched: interrupts and suspend depend on it.
const BOOT: u32 = 0;

/// Why the processors could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file below `/sys` could not be read or written.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A file below `/sys` holds something else than a list of processors.
    #[error("{}: {problem}", path.display())]
    List { path: PathBuf, problem: &'static str },
    #[error("{wanted} processors asked for; {online} are online and {candidates} more could be switched")]
    TooFew { wanted: u32, online: usize, candidates: usize },
}

/// The processors of a VM, below `/sys/devices/system/cpu` of some root.
#[derive(Clone, Debug)]
pub struct Processors {
    directory: PathBuf,
}

impl Processors {
    /// Those of the guest with its `/` at `root`.
    pub fn below(root: &Path) -> Self {
        Self { directory: root.join("sys/devices/system/cpu") }
    }

    /// How many are online.
    pub fn online(&self) -> Result<u32, Error> {
        Ok(u32::try_from(self.read("online")?.len()).unwrap_or(u32::MAX))
    }

    /// Makes `wanted` processors online: lowest numbers first, highest off first, never touching number 0.
    ///
    /// # Errors
    /// When there are too few processors, or the kernel refuses one; those before it stay changed.
    pub fn set_online(&self, wanted: u32) -> Result<(), Error> {
        let online = self.read("online")?;
        let mut offline = self.read("offline")?;
        // `offline` counts processors that could be plugged one day; only those present have a switch.
        if self.directory.join("present").exists() {
            let present = self.read("present")?;
            offline.retain(|number| present.contains(number));
        }
        let (processors, on) = plan(&online, &offline, wanted)?;
        for processor in processors {
            let path = self.directory.join(format!("cpu{processor}/online"));
            fs::write(&path, if on { "1" } else { "0" }).map_err(|source| Error::Io { path, source })?;
        }
        Ok(())
    }

    fn read(&self, name: &str) -> Result<BTreeSet<u32>, Error> {
        let path = self.directory.join(name);
        let text = fs::read_to_string(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
        parse(&text).map_err(|problem| Error::List { path, problem })
    }
}

/// Reads a list of processors as Linux writes it, such as `0-3,5`; an empty line is the empty list.
pub fn parse(text: &str) -> Result<BTreeSet<u32>, &'static str> {
    let text = text.trim_end_matches('\n');
    let mut numbers = BTreeSet::new();
    if text.is_empty() {
        return Ok(numbers);
    }
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if last < first {
            return Err("a range ends before it starts");
        }
        numbers.extend(first..=last);
    }
    Ok(numbers)
}

fn number(text: &str) -> Result<u32, &'static str> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("not a list of processors");
    }
    text.parse().ok().filter(|number| *number <= HIGHEST).ok_or("a processor number is too high")
}

/// The processors to switch for `wanted` online, and whether on or off: lowest number first on, highest number first off.
///
/// # Errors
/// When there are too few candidates; then nothing is to be switched.
fn plan(online: &BTreeSet<u32>, offline: &BTreeSet<u32>, wanted: u32) -> Result<(Vec<u32>, bool), Error> {
    let target = usize::try_from(wanted).unwrap_or(usize::MAX);
    let on = target >= online.len();
    let needed = target.abs_diff(online.len());
    let mut candidates: Vec<u32> = if on {
        offline.iter().copied().filter(|n| *n != BOOT && !online.contains(n)).collect()
    } else {
        online.iter().rev().copied().filter(|n| *n != BOOT).collect()
    };
    if candidates.len() < needed {
        return Err(Error::TooFew { wanted, online: online.len(), candidates: candidates.len() });
    }
    candidates.truncate(needed);
    Ok((candidates, on))
}

/// Switches a CPU on that ACPI added, by its path below `/sys` as announced. One that is on already stays so.
pub fn bring_online(path: &str) {
    let switch = Path::new("/sys").join(path.trim_start_matches('/')).join("online");
    if fs::read(&switch).is_ok_and(|state| state.starts_with(b"0")) {
        let _ = fs::write(&switch, "1");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn machine(online: &str, offline: Option<&str>, switches: u32) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("sys/devices/system/cpu");
        for number in 1..switches {
            fs::create_dir_all(directory.join(format!("cpu{number}"))).unwrap();
        }
        fs::write(directory.join("online"), online).unwrap();
        if let Some(offline) = offline {
            fs::write(directory.join("offline"), offline).unwrap();
        }
        root
    }

    fn switched(root: &tempfile::TempDir) -> Vec<(u32, String)> {
        let file = |n| root.path().join(format!("sys/devices/system/cpu/cpu{n}/online"));
        (0..64).filter_map(|n| Some((n, fs::read_to_string(file(n)).ok()?))).collect()
    }

    #[test]
    fn lowest_come_online_first_and_highest_leave_first() {
        let root = machine("0\n", Some("1-3\n"), 4);
        Processors::below(root.path()).set_online(3).unwrap();
        assert_eq!(switched(&root), [(1, "1".into()), (2, "1".into())]);
        let root = machine("0-3\n", Some("\n"), 4);
        Processors::below(root.path()).set_online(2).unwrap();
        assert_eq!(switched(&root), [(2, "0".into()), (3, "0".into())]);
    }

    #[test]
    fn an_unreadable_offline_list_is_an_error() {
        let root = machine("0\n", None, 4);
        assert!(matches!(Processors::below(root.path()).set_online(2), Err(Error::Io { .. })));
        assert_eq!(switched(&root), []);
    }

    #[test]
    fn processors_that_are_not_present_are_no_candidates() {
        let root = machine("0\n", Some("1-7\n"), 4);
        fs::write(root.path().join("sys/devices/system/cpu/present"), "0,2-3\n").unwrap();
        Processors::below(root.path()).set_online(2).unwrap();
        assert_eq!(switched(&root), [(2, "1".into())]);
        assert!(matches!(Processors::below(root.path()).set_online(4), Err(Error::TooFew { .. })));
    }

    #[test]
    fn the_number_online_is_counted() {
        assert_eq!(Processors::below(machine("0-2,5\n", None, 4).path()).online().unwrap(), 4);
        assert!(Processors::below(machine("zero\n", None, 4).path()).online().is_err());
    }

    #[test]
    fn kernel_lists_are_read() {
        assert_eq!(parse("0-3,5\n").unwrap(), BTreeSet::from([0, 1, 2, 3, 5]));
        assert_eq!(parse("\n").unwrap(), BTreeSet::new());
        for (text, problem) in [
            ("3-1", "ends before"),
            ("1,,2", "not a list"),
            ("+1", "not a list"),
            ("1- 2", "not a list"),
            ("99999999999", "too high"),
            ("0-4294967295", "too high"),
        ] {
            assert!(parse(text).unwrap_err().contains(problem), "{text}");
        }
    }

    proptest! {
        #[test]
        fn reading_undoes_writing(numbers in proptest::collection::btree_set(0u32..1000, 0..50)) {
            let text = numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            prop_assert_eq!(parse(&text).unwrap(), numbers);
        }

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
                Ok((processors, on)) => {
                    for processor in &processors {
                        prop_assert_ne!(*processor, 0);
                        let (from, to) =
                            if on { (&mut offline, &mut online) } else { (&mut online, &mut offline) };
                        prop_assert!(from.remove(processor));
                        prop_assert!(to.insert(*processor));
                    }
                    prop_assert_eq!(online.len(), wanted as usize);
                    prop_assert!(processors.windows(2).all(|two| (two[0] < two[1]) == on));
                    prop_assert!(plan(&online, &offline, wanted).unwrap().0.is_empty());
                }
            }
        }
    }
}
