use std::time::Duration;

use super::*;
use crate::source::Limits;
use crate::source::sample::{Form, compressed, noise};

fn cache() -> (tempfile::TempDir, Cache) {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path()).unwrap();
    (directory, cache)
}

fn budget(bytes: u64) -> Budget {
    Budget::new(Limits { bytes, free: 0, ..Limits::default() }, Path::new("/"))
}

fn stored(cache: &Cache, bytes: &[u8]) -> CachedLayer {
    let packed = compressed(Form::Zstd, bytes);
    let unpacked = cache.unpack("x", &mut packed.as_slice(), &budget(1 << 20)).unwrap();
    cache.commit(unpacked, Some(Digest::from_bytes(bytes)), "x").unwrap()
}

#[test]
fn a_layer_is_found_by_its_digest_while_it_is_intact() {
    let (_directory, cache) = cache();
    let bytes = noise(10_000, 3);
    let digest = Digest::from_bytes(&bytes);
    assert!(cache.layer(digest, false).unwrap().is_none());
    let mut layer = stored(&cache, &bytes);
    let mut read = Vec::new();
    layer.file.read_to_end(&mut read).unwrap();
    assert_eq!((read, layer.size), (bytes.clone(), 10_000));
    let path = cache.path("layers", digest);
    // Another byte is found by hashing, another length at once.
    let mut wrong = bytes.clone();
    wrong[5000] ^= 1;
    std::fs::write(&path, &wrong).unwrap();
    assert!(cache.layer(digest, false).unwrap().is_some());
    assert!(cache.layer(digest, true).unwrap().is_none());
    stored(&cache, &bytes);
    std::fs::write(&path, &wrong[1..]).unwrap();
    assert!(cache.layer(digest, false).unwrap().is_none());
    assert!(!path.exists());
}

#[test]
fn nothing_is_left_of_what_does_not_fit() {
    let (directory, cache) = cache();
    let unpacked = cache.unpack("x", &mut b"abc".as_slice(), &budget(10)).unwrap();
    assert!(matches!(
        cache.commit(unpacked, Some(Digest::from_bytes(b"abd")), "x"),
        Err(Error::DigestMismatch { .. })
    ));
    for form in Form::ALL {
        let packed = compressed(form, &vec![0; 100_000]);
        let error = cache.unpack("x", &mut packed.as_slice(), &budget(99_999)).unwrap_err();
        assert!(matches!(error, Error::Limit { .. }), "{form:?}");
        if !matches!(form, Form::Plain) {
            let error = cache.unpack("x", &mut &packed[..packed.len() - 1], &budget(1 << 20)).unwrap_err();
            assert!(matches!(error, Error::Malformed { .. }), "{form:?}: {error}");
        }
    }
    // A dictionary of 4 GiB, which the decoder would take at once.
    let options = lzma_rust2::XzOptions::with_preset(0);
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    std::io::Write::write_all(&mut xz, b"x").unwrap();
    let mut xz = xz.finish().unwrap();
    xz[16] = 40;
    let sum = crc32(&xz[12..20]);
    xz[20..24].copy_from_slice(&sum.to_le_bytes());
    let error = cache.unpack("x", &mut xz.as_slice(), &budget(10)).unwrap_err().to_string();
    assert!(error.contains("memory"), "{error}");
    assert_eq!(std::fs::read_dir(directory.path().join("temporary")).unwrap().count(), 0);
    assert_eq!(cache.usage().unwrap().files, 0);
}

#[test]
fn members_and_frames_follow_one_another() {
    let (_directory, cache) = cache();
    for form in [Form::Gzip, Form::Zstd, Form::Xz, Form::Bzip2] {
        let packed = [compressed(form, b"one "), compressed(form, b"two")].concat();
        let unpacked = cache.unpack("x", &mut packed.as_slice(), &budget(100)).unwrap();
        assert_eq!((unpacked.digest, unpacked.size), (Digest::from_bytes(b"one two"), 7), "{form:?}");
    }
}

#[test]
fn documents_are_hashed_each_time() {
    let (_directory, cache) = cache();
    let digest = cache.put_blob(b"{}").unwrap();
    assert_eq!(cache.blob(digest).unwrap().unwrap(), b"{}");
    std::fs::write(cache.path("blobs", digest), b"[]").unwrap();
    assert!(cache.blob(digest).unwrap().is_none());
    let reference: Reference = "a:b".parse().unwrap();
    let (amd, arm) = ("linux/amd64".parse().unwrap(), "linux/arm64".parse().unwrap());
    cache.remember(&reference, &amd, digest).unwrap();
    assert_eq!(cache.recall(&reference, &amd).unwrap(), Some(digest));
    assert_eq!(cache.recall(&reference, &arm).unwrap(), None);
}

#[test]
fn pruning_spares_what_is_young_open_or_being_fetched() {
    let (_directory, cache) = cache();
    let mut layer = stored(&cache, b"old");
    stored(&cache, b"young");
    cache.put_blob(b"document").unwrap();
    let old = cache.path("layers", Digest::from_bytes(b"old"));
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(7200);
    File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
    let mut partial = cache.try_partial(Digest::from_bytes(b"z")).unwrap().unwrap();
    partial.append(b"123").unwrap();
    assert!(cache.try_partial(Digest::from_bytes(b"z")).unwrap().is_none(), "it is locked");
    let before = cache.usage().unwrap();
    assert_eq!(before.layers, 2);
    let removed = cache.prune(Some(Duration::from_secs(3600))).unwrap();
    assert_eq!((removed.layers, removed.files), (1, 1));
    assert!(!old.exists() && !old.with_extension("size").exists());
    let mut read = String::new();
    layer.file.read_to_string(&mut read).unwrap();
    assert_eq!(read, "old", "still open");
    cache.prune(None).unwrap();
    assert_eq!(cache.usage().unwrap().files, 1, "the part that is locked");
    drop(partial);
    cache.prune(None).unwrap();
    assert_eq!(cache.usage().unwrap(), Usage::default());
}

#[test]
fn a_full_disk_names_the_directory() {
    let error = Error::io("write", Path::new("/somewhere/file"), io::ErrorKind::StorageFull.into());
    assert_eq!(error.to_string(), "no space left in /somewhere");
    let file = File::options().write(true).open("/dev/full").unwrap();
    let error = (&file).write_all(b"x").unwrap_err();
    assert!(matches!(Error::io("write", Path::new("/dev/full"), error), Error::DiskFull(_)));
}

#[test]
fn what_a_killed_process_left_is_gone_and_what_a_living_one_writes_stays() {
    let (directory, cache) = cache();
    let temporary = directory.path().join("temporary");
    let left = || std::fs::read_dir(&temporary).unwrap().count();
    // A file on its way has no name, if the file system can do that.
    let file = cache.temporary().unwrap();
    let named = left();
    let work = cache.work().unwrap();
    std::fs::write(work.path().join("layer"), "x").unwrap();
    // What is not locked belongs to no process.
    std::fs::write(temporary.join("13665-0"), "x").unwrap();
    std::fs::create_dir_all(temporary.join("work/of/fragments")).unwrap();
    Cache::open(directory.path()).unwrap();
    assert_eq!(left(), named + 1);
    assert!(work.path().join("layer").exists());
    let target = directory.path().join("target");
    file.rename(&target).unwrap();
    drop(work);
    assert!(target.exists() && left() == 0);
}

/// The sum of a header of xz.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0u32, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}
