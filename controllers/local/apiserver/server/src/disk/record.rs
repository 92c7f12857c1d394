//! What a record of the state file looks like: revision and JSON. The database has checksums of its pages.

/// Bytes in front of the revision. Older versions kept a checksum there.
const UNUSED: usize = 16;
/// Bytes of a record in front of its JSON.
const HEAD: usize = UNUSED + 8;

/// A record: unused bytes, revision (big endian), JSON.
pub(super) fn encode(revision: u64, json: &[u8], into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&[0; UNUSED]);
    into.extend_from_slice(&revision.to_be_bytes());
    into.extend_from_slice(json);
}

/// Revision and JSON of a record, if it is one.
pub(super) fn decode(value: &[u8]) -> Option<(u64, &[u8])> {
    let (head, json) = value.split_first_chunk::<HEAD>()?;
    let revision = u64::from_be_bytes(head.get(UNUSED..)?.try_into().ok()?);
    json.starts_with(b"{").then_some((revision, json))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut value = Vec::new();
        encode(7, b"{}", &mut value);
        assert_eq!(decode(&value), Some((7, &b"{}"[..])));
        assert_eq!(decode(&value[..10]), None);
        assert_eq!(decode(&[0; 40]), None);
    }
}
