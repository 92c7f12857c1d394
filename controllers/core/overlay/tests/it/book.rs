use std::collections::BTreeMap;
use std::net::IpAddr;

use neonvm_core_overlay::{Book, Refusal, Settings};

use crate::server::Server;

fn settings(range: &str) -> Settings {
    Settings::parse(range).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn the_first_address_is_upstreams_and_stays() {
    let (mut server, mut book) = (Server::default(), Book::new(Settings::default(), 60));
    let lease = book.acquire(0, "ns/a", None).unwrap();
    assert_eq!((lease.address, lease.net.mask()), (ip("10.100.128.0"), ip("255.255.0.0")));
    assert_eq!(book.held("ns/a"), None, "not before it is written");
    assert!(server.flush(&mut book, 0));
    assert_eq!(book.held("ns/a").unwrap().address, ip("10.100.128.0"));
    assert_eq!(server.given(), [(ip("10.100.128.0"), "ns/a".into())]);
    assert_eq!(server.pools.keys().collect::<Vec<_>>(), ["neonvm-10.100.128.0-24"]);
    let mut other = Book::new(Settings::default(), 60);
    server.load(&mut other);
    assert_eq!(other.acquire(9, "ns/a", None).unwrap().address, ip("10.100.128.0"));
    assert_eq!(other.pending().count(), 0, "nothing to write");
}

#[test]
fn addresses_rest_before_they_are_given_again_also_after_a_restart() {
    let range = r#"{"range": "10.1.0.0/30"}"#;
    let (mut server, mut book) = (Server::default(), Book::new(settings(range), 60));
    book.acquire(0, "ns/a", None).unwrap();
    book.acquire(0, "ns/b", None).unwrap();
    server.flush(&mut book, 0);
    assert_eq!(book.release(100, "ns/a").len(), 1);
    assert!(book.release(100, "ns/a").is_empty(), "it has nothing any more");
    server.flush(&mut book, 100);
    let mut book = Book::new(settings(range), 60);
    server.load(&mut book);
    let refused = book.acquire(159, "ns/c", None).unwrap_err();
    let text = "no address is free in 10.1.0.1 to 10.1.0.2: 1 are held, 1 rest after use";
    assert_eq!(refused.to_string(), text);
    assert_eq!(book.acquire(160, "ns/c", None).unwrap().address, ip("10.1.0.1"));
    assert!(server.flush(&mut book, 160));
    assert!(!server.pools["-10.1.0.0-30".trim_start_matches('-')].to_string().contains("released"));
}

/// Upstream's release stopped at the first range, so that others filled up.
#[test]
fn an_address_of_a_later_range_is_given_back_there() {
    let ranges = r#"{"network_name": "n", "ipRanges": [{"range": "10.1.0.0/30"}, {"range": "10.2.0.0/24", "range_start": "10.2.0.9"}]}"#;
    let (mut server, mut book) = (Server::default(), Book::new(settings(ranges), 0));
    for id in ["ns/a", "ns/b", "ns/c"] {
        book.acquire(0, id, None).unwrap();
    }
    assert_eq!(book.acquire(0, "ns/c", None).unwrap().address, ip("10.2.0.9"));
    server.flush(&mut book, 0);
    let pools = book.release(0, "ns/c");
    assert_eq!(pools.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["n-10.2.0.0-24"]);
    server.flush(&mut book, 0);
    assert_eq!(server.given().len(), 2);
}

#[test]
fn upstreams_single_pool_is_kept_and_emptied() {
    let mut server = Server::default();
    server.put("neonvm-10.100.0.0-16", "10.100.0.0/16", &[(32768, "ns/old"), (32770, "ns/older")]);
    server.put("other-10.100.0.0-16", "10.100.0.0/16", &[(32769, "ns/stranger")]);
    let mut book = Book::new(Settings::default(), 60);
    server.load(&mut book);
    assert_eq!(book.held("ns/old").unwrap().address, ip("10.100.128.0"));
    assert_eq!(book.acquire(0, "ns/new", None).unwrap().address, ip("10.100.128.1"));
    assert_eq!(book.acquire(0, "ns/newer", None).unwrap().address, ip("10.100.128.3"));
    book.release(0, "ns/old");
    assert!(server.flush(&mut book, 0));
    assert_eq!(server.pools["neonvm-10.100.0.0-16"]["spec"]["allocations"].as_object().unwrap().len(), 1);
    assert_eq!(server.pools["other-10.100.0.0-16"]["spec"]["allocations"].as_object().unwrap().len(), 1);
}

#[test]
fn a_machine_keeps_the_address_of_its_status() {
    let mut book = Book::new(Settings::default(), 60);
    let lease = book.acquire(0, "ns/a", Some(ip("10.100.200.7"))).unwrap();
    assert_eq!((lease.address, lease.pool.as_ref()), (ip("10.100.200.7"), "neonvm-10.100.200.0-24"));
    let held = book.acquire(0, "ns/b", Some(ip("10.100.200.7"))).unwrap_err();
    assert_eq!(held.to_string(), "10.100.200.7 is the address of ns/a");
    let outside = book.acquire(0, "ns/b", Some(ip("10.100.0.7"))).unwrap_err();
    assert!(matches!(outside, Refusal::Outside { .. }), "{outside}");
    // The book has one address, the status has another: the latter counts.
    let lease = book.acquire(0, "ns/a", Some(ip("10.100.200.8"))).unwrap();
    assert_eq!((lease.address, book.holder(ip("10.100.200.7"))), (ip("10.100.200.8"), None));
}

#[test]
fn the_sweep_releases_addresses_without_a_machine() {
    let mut server = Server::default();
    server.put(
        "neonvm-10.100.128.0-24",
        "10.100.128.0/24",
        &[(0, "ns/a"), (1, "ns/a"), (2, "ns/gone"), (3, "ns/b"), (4, "ns/b")],
    );
    let mut book = Book::new(Settings::default(), 60);
    server.load(&mut book);
    let alive: BTreeMap<String, Option<IpAddr>> =
        [("ns/a".to_owned(), Some(ip("10.100.128.1"))), ("ns/b".to_owned(), None)].into();
    assert_eq!(book.sweep(0, &alive), 3);
    assert_eq!(book.sweep(0, &alive), 0);
    server.flush(&mut book, 0);
    let given: BTreeMap<String, IpAddr> =
        server.given().into_iter().map(|(address, id)| (id, address)).collect();
    assert_eq!(
        given,
        [("ns/a".to_owned(), ip("10.100.128.1")), ("ns/b".to_owned(), ip("10.100.128.3"))].into()
    );
    assert_eq!(book.held("ns/a").unwrap().address, ip("10.100.128.1"));
}

/// A hundred thousand in one network, and none of the last is slower than the first: no step scans all others.
#[test]
fn a_hundred_thousand_addresses() {
    let range = r#"{"range": "10.64.0.0/15"}"#;
    let (mut server, mut book) = (Server::default(), Book::new(settings(range), 60));
    for number in 0..100_000 {
        book.acquire(0, &format!("ns/vm-{number}"), None).unwrap();
    }
    assert!(server.flush(&mut book, 0));
    assert_eq!(server.pools.len(), 391);
    let largest = server.pools.values().map(|pool| pool.to_string().len()).max().unwrap();
    assert!(largest < 64 << 10, "{largest}");
    // One at a time from now on: each write is one small pool.
    for number in 0..3_000 {
        book.release(number, &format!("ns/vm-{number}"));
        book.acquire(number, &format!("ns/new-{number}"), None).unwrap();
        assert!(book.pending().count() <= 2);
        assert!(server.flush(&mut book, number));
    }
}

#[test]
fn ipv6_works_as_well() {
    let mut book = Book::new(
        settings(r#"{"network_name": "n", "range": "fd00:1::/64", "exclude": ["fd00:1::/65"]}"#),
        60,
    );
    let lease = book.acquire(0, "ns/a", None).unwrap();
    assert_eq!(lease.address, ip("fd00:1::8000:0:0:0"));
    assert_eq!((lease.net.length(), lease.pool.as_ref()), (64, "n-fd00-1-0-0-8000---120"));
}
