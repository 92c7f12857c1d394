//! What a record of the state file looks like, and the proofs that it is what was written: a checksum in each record, and a seal over
//! all of them that shows whether one is missing, doubled or older than the rest. Both find damage, not forgery.

use ring::digest::{Context, SHA256};

/// A checksum: the first half of a SHA-256.
pub(super) type Sum = [u8; 16];

/// Bytes of a record in front of its JSON.
const HEAD: usize = 24;
/// Bytes of an encoded seal.
const SEAL: usize = 48;

/// The checksum of parts, each of which counts with its length.
fn sum_of(parts: &[&[u8]]) -> Sum {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context.finish().as_ref().first_chunk().copied().unwrap_or_default()
}

/// The checksum of an object.
pub(super) fn of_object(key: &[u8], revision: u64, json: &[u8]) -> Sum {
    sum_of(&[b"object", key, &revision.to_be_bytes(), json])
}

/// The checksum of the revision of a table's last change.
pub(super) fn of_last(table: &str, revision: u64) -> Sum {
    sum_of(&[b"last", table.as_bytes(), &revision.to_be_bytes()])
}

/// A record: checksum, revision (big endian), JSON.
pub(super) fn encode(sum: &Sum, revision: u64, json: &[u8], into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(sum);
    into.extend_from_slice(&revision.to_be_bytes());
    into.extend_from_slice(json);
}

/// Revision, JSON and checksum of a record, if it is what was written under its key.
pub(super) fn decode<'a>(key: &[u8], value: &'a [u8]) -> Option<(u64, &'a [u8], Sum)> {
    let (head, json) = value.split_first_chunk::<HEAD>()?;
    let (sum, revision) = head.split_first_chunk::<16>()?;
    let revision = u64::from_be_bytes(revision.try_into().ok()?);
    (of_object(key, revision, json) == *sum).then_some((revision, json, *sum))
}

/// A record of the first format, which had no checksums: revision and JSON, which must at least be an object that carries this
/// revision, if it carries any.
pub(super) fn decode_first(value: &[u8]) -> Option<(u64, &[u8])> {
    let (revision, json) = value.split_first_chunk::<8>()?;
    let revision = u64::from_be_bytes(*revision);
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(json).ok()?;
    let stored = object.get("metadata").and_then(|metadata| metadata.get("resourceVersion"));
    let is_same = stored.is_none_or(|text| text.as_str().is_some_and(|text| text == revision.to_string()));
    is_same.then_some((revision, json))
}

/// What all records together must come to: the checksums of objects and of last changes, combined without regard to their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seal {
    pub(super) sum: Sum,
    /// Records of both kinds.
    pub(super) count: u64,
    /// The newest revision.
    pub(super) revision: u64,
}

impl Seal {
    pub(super) fn add(&mut self, sum: &Sum) {
        self.mix(sum);
        self.count = self.count.wrapping_add(1);
    }

    pub(super) fn remove(&mut self, sum: &Sum) {
        self.mix(sum);
        self.count = self.count.wrapping_sub(1);
    }

    fn mix(&mut self, sum: &Sum) {
        for (mine, theirs) in self.sum.iter_mut().zip(sum) {
            *mine ^= theirs;
        }
    }

    pub(super) fn encode(&self) -> [u8; SEAL] {
        let mut bytes = [0; SEAL];
        let (count, revision) = (self.count.to_be_bytes(), self.revision.to_be_bytes());
        let own = sum_of(&[b"seal", &self.sum, &count, &revision]);
        let parts = self.sum.iter().chain(&count).chain(&revision).chain(&own);
        bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = *from);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let sum = bytes.first_chunk().copied()?;
        let seal = Self { sum, count: number(16)?, revision: number(24)? };
        (seal.encode().as_slice() == bytes).then_some(seal)
    }
}

/// Revision and checksum, for a separate file.
pub(super) fn encode_revision(revision: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    let number = revision.to_be_bytes();
    let sum = sum_of(&[b"revision", &number]);
    bytes.iter_mut().zip(number.iter().chain(&sum)).for_each(|(to, from)| *to = *from);
    bytes
}

/// The revision of such a file; none if it is damaged.
pub(super) fn decode_revision(bytes: &[u8]) -> Option<u64> {
    let revision = u64::from_be_bytes(*bytes.first_chunk()?);
    (encode_revision(revision).as_slice() == bytes).then_some(revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_a_record_counts() {
        let (key, mut value) = (b"/pods\0default/a".to_vec(), Vec::new());
        encode(&of_object(&key, 7, b"{}"), 7, b"{}", &mut value);
        assert_eq!(decode(&key, &value).map(|(revision, json, _)| (revision, json)), Some((7, &b"{}"[..])));
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&key, &damaged), None);
        }
        // A record under another key is another record.
        assert_eq!(decode(b"/pods\0default/b", &value), None);
        assert_eq!(decode(&key, &value[..10]), None);
    }

    #[test]
    fn a_seal_does_not_know_the_order_but_every_record() {
        let sums: Vec<Sum> = (0..4).map(|n| of_last("t", n)).collect();
        let (mut one, mut other) =
            (Seal { revision: 9, ..Seal::default() }, Seal { revision: 9, ..Seal::default() });
        sums.iter().for_each(|sum| one.add(sum));
        sums.iter().rev().for_each(|sum| other.add(sum));
        assert_eq!(one, other);
        other.remove(&sums[2]);
        assert_ne!(one, other);
        let bytes = one.encode();
        assert_eq!(Seal::decode(&bytes), Some(one));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Seal::decode(&damaged), None);
        }
        assert_eq!(decode_revision(&encode_revision(5)), Some(5));
        assert_eq!(decode_revision(&[0; 24]), None);
    }

    #[test]
    fn records_without_checksums_must_make_sense() {
        let of = |revision: u64, json: &str| [&revision.to_be_bytes()[..], json.as_bytes()].concat();
        let fine = of(7, r#"{"metadata":{"resourceVersion":"7"}}"#);
        assert_eq!(decode_first(&fine).map(|(revision, _)| revision), Some(7));
        assert!(decode_first(&of(7, "{}")).is_some());
        for bad in
            [of(8, r#"{"metadata":{"resourceVersion":"7"}}"#), of(7, "{"), of(7, "[]"), b"short".to_vec()]
        {
            assert_eq!(decode_first(&bad), None);
        }
    }
}
