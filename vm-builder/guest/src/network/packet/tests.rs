use proptest::prelude::*;

use super::*;

/// A reply as a server would send it.
pub(crate) fn reply(kind: Kind, exchange: u32, hardware: [u8; 6], options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2, 1, 6, 0];
    bytes.extend(exchange.to_be_bytes());
    bytes.resize(16, 0);
    bytes.extend([169, 254, 254, 254]);
    bytes.resize(28, 0);
    bytes.extend(hardware);
    bytes.resize(HEAD, 0);
    bytes.extend(MAGIC);
    bytes.extend([53, 1, kind.into(), 54, 4, 169, 254, 254, 253]);
    bytes.extend(options);
    bytes.push(255);
    bytes
}

#[test]
fn every_option_is_read() {
    let options = [
        &[1, 4, 255, 255, 255, 252, 3, 4, 169, 254, 254, 253, 6, 8, 10, 0, 0, 10, 8, 8, 8, 8][..],
        &[26, 2, 5, 120, 51, 4, 0, 0, 14, 16, 58, 4, 0, 0, 7, 8, 59, 4, 0, 0, 12, 78, 12, 2, b'v', b'm'],
        &[119, 11, 3, b's', b'v', b'c', 2, b'l', b'o', 0, 1, b'a', 192],
        &[119, 1, 4],
    ]
    .concat();
    let reply = Reply::parse(&reply(Kind::Ack, 7, [1; 6], &options)).unwrap();
    let offer = reply.offer;
    assert_eq!((reply.kind, reply.exchange, reply.server), (Kind::Ack, 7, Some([169, 254, 254, 253].into())));
    assert_eq!((offer.address, offer.prefix), ([169, 254, 254, 254].into(), 30));
    assert_eq!(offer.routes, [([0, 0, 0, 0].into(), 0, [169, 254, 254, 253].into())]);
    assert_eq!(offer.name_servers.len(), 2);
    assert_eq!(offer.search, ["svc.lo", "a.lo"]);
    assert_eq!((offer.mtu, offer.lease, offer.renewal), (Some(1400), Some(3600), Some(1800)));
    assert_eq!(offer.hostname.as_deref(), Some("vm"));
}

#[test]
fn classless_routes_replace_the_router() {
    let options = [3, 4, 1, 1, 1, 1, 121, 14, 12, 172, 31, 10, 0, 0, 1, 0, 10, 0, 0, 2, 33, 1];
    let offer = Reply::parse(&reply(Kind::Offer, 1, [0; 6], &options)).unwrap().offer;
    assert_eq!(
        offer.routes,
        [([172, 16, 0, 0].into(), 12, [10, 0, 0, 1].into()), ([0, 0, 0, 0].into(), 0, [10, 0, 0, 2].into())]
    );
}

#[test]
fn an_infinite_lease_has_no_end_and_odd_names_are_not_taken() {
    let options = [51, 4, 255, 255, 255, 255, 12, 3, b'a', b'\n', b'b', 26, 2, 0, 1];
    let offer = Reply::parse(&reply(Kind::Ack, 1, [0; 6], &options)).unwrap().offer;
    assert_eq!((offer.lease, offer.hostname, offer.mtu), (None, None, None));
}

#[test]
fn a_query_has_the_form_servers_expect() {
    let query = Query {
        kind: Kind::Discover,
        exchange: 0x0102_0304,
        seconds: 3,
        hardware: [2, 0, 0, 0, 0, 1],
        current: None,
        requested: None,
        server: None,
    };
    let bytes = query.encode();
    assert!(bytes.len() >= 300);
    assert_eq!(bytes[..12], [1, 1, 6, 0, 1, 2, 3, 4, 0, 3, 0x80, 0]);
    assert_eq!(bytes[236..243], [99, 130, 83, 99, 53, 1, 1]);
    assert_eq!(Reply::parse(&bytes), None);
}

proptest! {
    #[test]
    fn any_options_are_read(options in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Some(parsed) = Reply::parse(&reply(Kind::Ack, 1, [0; 6], &options)) {
            prop_assert!(parsed.offer.prefix <= 32);
            prop_assert!(parsed.offer.routes.iter().all(|(_, prefix, _)| *prefix <= 32));
            prop_assert!(parsed.offer.search.iter().all(|name| is_domain(name)));
        }
    }

    #[test]
    fn any_domain_list_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let options: Vec<u8> = bytes.chunks(255).flat_map(|part| [&[119, part.len() as u8], part].concat()).collect();
        let parsed = Reply::parse(&reply(Kind::Ack, 1, [0; 6], &options)).unwrap();
        prop_assert!(parsed.offer.search.len() <= MOST);
    }

    /// Lengths of hardware addresses and overloads that no server should send.
    #[test]
    fn any_head_is_read(head in proptest::collection::vec(any::<u8>(), HEAD), hlen: u8, overload in 0..4u8) {
        let mut bytes = head;
        bytes[..3].copy_from_slice(&[2, 1, hlen]);
        bytes.extend(MAGIC);
        bytes.extend([53, 1, 5, 52, 1, overload]);
        prop_assert!(hlen == 6 || Reply::parse(&bytes).is_none());
    }
}

#[test]
fn parts_of_options_are_joined_wherever_they_are() {
    let mut bytes =
        reply(Kind::Ack, 7, [1; 6], &[12, 1, b'a', 52, 1, 3, 12, 1, b'b', 80, 3, 1, 1, 1, 81, 0, 94, 1, 0]);
    bytes[108..112].copy_from_slice(&[12, 1, b'c', 255]);
    bytes[44..48].copy_from_slice(&[12, 1, b'd', 255]);
    assert_eq!(Reply::parse(&bytes).unwrap().offer.hostname.as_deref(), Some("abcd"));
}

#[test]
fn a_query_is_encoded_as_before() {
    let query = Query {
        kind: Kind::Request,
        exchange: 1,
        seconds: 0,
        hardware: [2, 0, 0, 0, 0, 1],
        current: Some([10, 0, 0, 9].into()),
        requested: Some([10, 0, 0, 9].into()),
        server: Some([10, 0, 0, 1].into()),
    };
    let bytes = query.encode();
    assert_eq!(bytes[..16], [1, 1, 6, 0, 0, 0, 0, 1, 0, 0, 0, 0, 10, 0, 0, 9]);
    assert_eq!(bytes[28..36], [2, 0, 0, 0, 0, 1, 0, 0]);
    let options = [
        &[53, 1, 3, 61, 7, 1, 2, 0, 0, 0, 0, 1, 50, 4, 10, 0, 0, 9, 54, 4, 10, 0, 0, 1, 57, 2, 5, 220][..],
        &[55, 11, 1, 3, 6, 12, 15, 26, 51, 58, 59, 119, 121, 255],
    ];
    assert!(bytes[240..].starts_with(&options.concat()));
}
