//! Walks all tables of a file.

use super::error::{Error, io};
use super::read::{Check, Mapping, Reader, numbers};
use crate::bytes::{index, take};
use crate::image::Image;

/// Set in the count of a cluster that must not be shared.
const OWN: u32 = 1 << 31;
/// The count of a cluster is 1, so that it may be written in place.
const COPIED: u64 = 1 << 63;
/// Greatest number of clusters of a file.
const MOST: u64 = 1 << 28;

/// How often each cluster of a file is used.
struct Uses {
    counts: Vec<u32>,
    size: u64,
}

impl Uses {
    /// A structure of whole clusters that nothing else may share.
    fn own(&mut self, structure: &'static str, at: u64, bytes: u64) -> Result<(), Error> {
        for cluster in at / self.size..(at + bytes).div_ceil(self.size) {
            match self.counts.get_mut(index(cluster)) {
                Some(count) if *count == 0 => *count = OWN | 1,
                Some(_) => {
                    let text = format!("cluster at byte {} is used twice", cluster * self.size);
                    return Err(Error::corrupt(structure, text));
                }
                None => {
                    let text = format!("cluster at byte {} is not in the file", cluster * self.size);
                    return Err(Error::corrupt(structure, text));
                }
            }
        }
        Ok(())
    }

    /// A compressed cluster, which shares clusters with others of its kind.
    fn share(&mut self, at: u64, bytes: u64) -> Result<(), Error> {
        for cluster in at / self.size..(at + bytes).div_ceil(self.size) {
            match self.counts.get_mut(index(cluster)) {
                Some(count) if *count & OWN == 0 => *count += 1,
                _ => {
                    let text = format!("at byte {at}: shares a cluster with another structure");
                    return Err(Error::corrupt("compressed cluster", text));
                }
            }
        }
        Ok(())
    }
}

fn check<S: Image>(reader: &Reader<S>) -> Result<Check, Error> {
    let head = &reader.head;
    if head.snapshots > 0 {
        return Err(Error::Unsupported("checking a file with internal snapshots".to_owned()));
    }
    let size = head.cluster();
    let clusters = reader.source.length().div_ceil(size);
    if clusters > MOST {
        return Err(Error::Unsupported(format!("checking a file of {clusters} clusters")));
    }
    let mut uses = Uses { counts: vec![0; index(clusters)], size };
    uses.own("head", 0, size)?;
    uses.own("first-level table", head.first_at, head.first_entries * 8)?;
    uses.own("table of reference counts", head.counts_at, head.counts_clusters * size)?;
    let table = head.counts_clusters * (size / 8);
    let blocks = numbers(&reader.source, head.counts_at, table, "table of reference counts")?;
    for block in blocks.iter().filter(|block| **block != 0) {
        if !block.is_multiple_of(size) {
            let text = format!("a block at byte {block}");
            return Err(Error::corrupt("table of reference counts", text));
        }
        uses.own("block of reference counts", *block, size)?;
    }
    let mut result = Check::default();
    let mut copied = Vec::new();
    for entry in &reader.first {
        let Some(at) = reader.second_at(*entry)? else { continue };
        uses.own("second-level table", at, size)?;
        copied.push((at, entry & COPIED != 0));
        for entry in numbers(&reader.source, at, head.entries(), "second-level table")? {
            match reader.mapping(entry)? {
                Mapping::None => {}
                Mapping::Zero(None) => result.zero += 1,
                Mapping::Zero(Some(at)) => {
                    result.zero += 1;
                    uses.own("cluster", at, size)?;
                }
                Mapping::Plain(at) => {
                    result.plain += 1;
                    uses.own("cluster", at, size)?;
                    copied.push((at, entry & COPIED != 0));
                }
                Mapping::Compressed(at, count) => {
                    result.compressed += 1;
                    uses.share(at, count)?;
                    reader.try_unpack(at, count)?;
                }
            }
        }
    }
    result.leaked = compare(reader, &blocks, &uses)?;
    // All of these are used once, so their flag must be set.
    if let Some((at, _)) = copied.iter().find(|(_, flag)| !flag) {
        let text = format!("cluster at byte {at} is used once but not marked so");
        return Err(Error::corrupt("second-level table", text));
    }
    Ok(result)
}

/// Compares stored counts with uses; the number of clusters that are counted too often.
fn compare<S: Image>(reader: &Reader<S>, blocks: &[u64], uses: &Uses) -> Result<u64, Error> {
    let head = &reader.head;
    let per_block = (uses.size * 8) >> head.count_order;
    let mut leaked = 0;
    let mut bytes = vec![0; index(uses.size)];
    let mut used = uses.counts.chunks(index(per_block));
    for number in 0u64.. {
        let (block, counts) = (blocks.get(index(number)).copied(), used.next());
        if block.is_none() && counts.is_none() {
            break;
        }
        match block {
            // Nothing is counted and there is nothing to count.
            Some(0) | None if counts.is_none() => continue,
            Some(at) if at != 0 => {
                reader.source.read_at(at, &mut bytes).map_err(io("block of reference counts"))?;
            }
            _ => bytes.fill(0),
        }
        let counts = counts.unwrap_or_default();
        for within in 0..per_block {
            let stored = count(&bytes, head.count_order, within);
            let real = u64::from(counts.get(index(within)).copied().unwrap_or(0) & !OWN);
            if stored < real {
                let at = (number * per_block + within) * uses.size;
                let text = format!("cluster at byte {at} is used {real} times and counted {stored}");
                return Err(Error::corrupt("reference counts", text));
            }
            leaked += u64::from(stored > real);
        }
    }
    Ok(leaked)
}

/// A count of 2^`order` bits.
fn count(bytes: &[u8], order: u32, number: u64) -> u64 {
    let at = |size: u64| index(number * size);
    match order {
        0..=2 => {
            let bits = 1u64 << order;
            let [byte] = take::<1>(bytes, index(number * bits / 8));
            (u64::from(byte) >> (number * bits % 8)) & ((1 << bits) - 1)
        }
        3 => u64::from(u8::from_be_bytes(take(bytes, at(1)))),
        4 => u64::from(u16::from_be_bytes(take(bytes, at(2)))),
        5 => u64::from(u32::from_be_bytes(take(bytes, at(4)))),
        _ => u64::from_be_bytes(take(bytes, at(8))),
    }
}

impl<S: Image> Reader<S> {
    /// Walks all tables: every offset is within the file, no two things share a cluster, and every reference count
    /// is right. Leaked clusters are counted, all else is an error.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<Check, Error> {
        check(self)
    }
}
