//! Records on disk: for each VM a file of JSON lines and one that was full before it. Bounded for each VM, in all, and in age.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use neonvm_types::NamespacedName;
use neonvm_types::agent_history::Record;

/// A file that is this long is put aside, in bytes; the one before it is removed.
const FULL: u64 = 512 << 10;
/// All files together, in bytes. Beyond it the files that were written longest ago are removed.
const MOST: u64 = 256 << 20;
/// Files that were not written for so long are removed.
const OLDEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often the two bounds above are applied: after so much time or so many bytes.
const CHECK: (Duration, u64) = (Duration::from_secs(3600), 8 << 20);
/// Longest part of a file's name that is the VM's; longer ones are cut and numbered by their hash.
const LONGEST: usize = 200;

const CURRENT: &str = "jsonl";
const BEFORE: &str = "jsonl.old";

/// The directory, for writing.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    checked: Instant,
    written: u64,
}

impl Files {
    /// Makes the directory if it is not there, for its owner alone, and removes what is beyond the bounds.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let files = Self { directory: directory.to_owned(), checked: Instant::now(), written: 0 };
        files.prune(MOST)?;
        Ok(files)
    }

    /// Adds a record. Each line is preceded by an empty one, so that a line which a crash cut short spoils no other.
    pub(super) fn append(&mut self, vm: &NamespacedName, record: &Record) -> io::Result<()> {
        let Some(stem) = stem(vm) else { return Ok(()) };
        let mut line = b"\n".to_vec();
        serde_json::to_writer(&mut line, record)?;
        line.push(b'\n');
        let path = path(&self.directory, &stem, CURRENT);
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        if file.metadata()?.len() >= FULL {
            fs::rename(&path, self::path(&self.directory, &stem, BEFORE))?;
            file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        }
        file.write_all(&line)?;
        self.written = self.written.saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX));
        if self.written >= CHECK.1 || self.checked.elapsed() >= CHECK.0 {
            (self.checked, self.written) = (Instant::now(), 0);
            self.prune(MOST)?;
        }
        Ok(())
    }

    /// Removes files that are too old, then those written longest ago until no more than `most` bytes are left.
    fn prune(&self, most: u64) -> io::Result<()> {
        let now = SystemTime::now();
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let name = entry.file_name();
            let ours = name.to_str().is_some_and(|name| name.ends_with(CURRENT) || name.ends_with(BEFORE));
            if ours && metadata.is_file() {
                all.push((metadata.modified().unwrap_or(now), metadata.len(), entry.path()));
            }
        }
        all.sort();
        let mut total: u64 = all.iter().map(|(_, length, _)| length).sum();
        for (modified, length, path) in all {
            let age = now.duration_since(modified).unwrap_or_default();
            if age <= OLDEST && total <= most {
                break;
            }
            fs::remove_file(&path)?;
            total = total.saturating_sub(length);
        }
        Ok(())
    }
}

/// The records of a VM from `since` on, in milliseconds since 1970, and the last sample before: it holds until the next one.
/// Lines that cannot be read are left out.
pub(super) fn read(directory: &Path, vm: &NamespacedName, since: i64) -> io::Result<Vec<Record>> {
    let Some(stem) = stem(vm) else { return Ok(Vec::new()) };
    let mut records: Vec<Record> = Vec::new();
    let mut before = None;
    for kind in [BEFORE, CURRENT] {
        let bytes = match fs::read(path(directory, &stem, kind)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in bytes.split(|byte| *byte == b'\n') {
            let Ok(record) = serde_json::from_slice::<Record>(line) else { continue };
            if record.at >= since {
                records.push(record);
            } else if record.sample.is_some() {
                before = Some(record);
            }
        }
    }
    records.extend(before);
    // The wall clock may have been set back meanwhile.
    records.sort_by_key(|record| record.at);
    Ok(records)
}

fn path(directory: &Path, stem: &str, kind: &str) -> PathBuf {
    directory.join(format!("{stem}.{kind}"))
}

/// The part of the files' names that is the VM's: neither of its names has an underscore. None if they are no names.
fn stem(vm: &NamespacedName) -> Option<String> {
    let is_name = |name: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(allowed)
    };
    if !is_name(&vm.namespace) || !is_name(&vm.name) {
        return None;
    }
    let whole = format!("{}_{}", vm.namespace, vm.name);
    if whole.len() <= LONGEST {
        return Some(whole);
    }
    let hash = crate::shared::fnv1a(&whole);
    whole.get(..LONGEST).map(|cut| format!("{cut}_{hash:016x}"))
}

#[cfg(test)]
mod tests {
    use neonvm_types::agent_history::{Decided, Sample};

    use super::*;

    fn decision(at: i64, text: &str) -> Record {
        Record { at, decision: Some(Decided { text: text.into(), reason: None }), ..Record::default() }
    }

    fn sample(at: i64) -> Record {
        Record { at, sample: Some(Sample::default()), ..Record::default() }
    }

    fn times(directory: &Path, vm: &NamespacedName, since: i64) -> Vec<i64> {
        read(directory, vm, since).unwrap().iter().map(|record| record.at).collect()
    }

    #[test]
    fn a_line_cut_short_spoils_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let vm = NamespacedName::new("default", "pg");
        let mut files = Files::open(directory.path()).unwrap();
        files.append(&vm, &decision(1, "one")).unwrap();
        let file = directory.path().join("default_pg.jsonl");
        let whole = fs::read(&file).unwrap();
        for cut in 0..whole.len() {
            fs::write(&file, whole.get(..cut).unwrap()).unwrap();
            files.append(&vm, &decision(2, "two")).unwrap();
            let read = times(directory.path(), &vm, 0);
            assert!(read == [2] || read == [1, 2], "cut at {cut}: {read:?}");
        }
        fs::write(&file, b"\xff\xfe{\n{}{}\n5\n\"\"\n").unwrap();
        assert!(times(directory.path(), &vm, i64::MIN).is_empty());
    }

    #[test]
    fn the_files_of_a_vm_are_bounded_and_hold_the_newest() {
        let directory = tempfile::tempdir().unwrap();
        let vm = NamespacedName::new("default", "pg");
        let mut files = Files::open(directory.path()).unwrap();
        let long = "x".repeat(4000);
        for at in 0..1000 {
            files.append(&vm, &decision(at, &long)).unwrap();
        }
        let lengths: u64 =
            fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert!(lengths < 2 * (FULL + 5000), "{lengths}");
        let read = times(directory.path(), &vm, 0);
        assert!(read.len() > 100 && read.last() == Some(&999) && read.is_sorted());
    }

    #[test]
    fn a_window_begins_with_the_sample_that_held_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let vm = NamespacedName::new("default", "pg");
        let mut files = Files::open(directory.path()).unwrap();
        for record in [sample(1), sample(2), decision(3, "a"), sample(5), decision(6, "b")] {
            files.append(&vm, &record).unwrap();
        }
        assert_eq!(times(directory.path(), &vm, 4), [2, 5, 6]);
        assert_eq!(times(directory.path(), &vm, 7), [5]);
    }

    #[test]
    fn the_oldest_files_are_removed_first() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::open(directory.path()).unwrap();
        let vm = |name: &str| NamespacedName::new("default", name);
        let set = |name: &str, age: Duration| {
            let file = fs::File::options().append(true).open(directory.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        for name in ["a", "b", "c"] {
            files.append(&vm(name), &decision(1, &"x".repeat(100))).unwrap();
        }
        set("default_a.jsonl", OLDEST + Duration::from_secs(1));
        set("default_b.jsonl", Duration::from_secs(60));
        fs::write(directory.path().join("notes.txt"), "not ours").unwrap();
        files.prune(MOST).unwrap();
        assert!(
            times(directory.path(), &vm("a"), 0).is_empty()
                && !times(directory.path(), &vm("b"), 0).is_empty()
        );
        files.prune(200).unwrap();
        assert!(
            times(directory.path(), &vm("b"), 0).is_empty()
                && !times(directory.path(), &vm("c"), 0).is_empty()
        );
        assert!(directory.path().join("notes.txt").exists());
    }

    #[test]
    fn no_name_leads_out_of_the_directory_and_none_meets_another() {
        let name = |namespace: &str, name: &str| stem(&NamespacedName::new(namespace, name));
        for (namespace, vm) in
            [("..", "a"), ("a", "../b"), ("", "a"), ("a", ""), ("a", "b/c"), ("a", "b_c"), ("A", "b")]
        {
            assert_eq!(name(namespace, vm), None, "{namespace} {vm}");
        }
        let long = "x".repeat(253);
        let (first, second) = (name("n", &long).unwrap(), name("n", &format!("{long}.y")).unwrap());
        assert!(first != second && first.len() < 230);
    }
}
