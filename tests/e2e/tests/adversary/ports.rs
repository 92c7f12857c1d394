//! Nothing listens that the table of ports in `SECURITY.md` does not hold.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use crate::cluster::Cluster;
use crate::sockets::{ListenAddress, Listener, listeners_of};

/// A row: who listens, and where.
struct Row {
    role: String,
    places: Vec<String>,
}

fn table() -> Vec<Row> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../SECURITY.md");
    let text = std::fs::read_to_string(file).unwrap();
    let section = text.split("\n## ").find(|section| section.starts_with("Ports")).unwrap();
    let codes = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let role = codes(cells[0]).first()?.clone();
        Some(Row { role, places: codes(cells[1]) })
    };
    section.lines().filter(|line| line.starts_with("| `")).filter_map(row).collect()
}

/// Whether a pattern of the table, such as `tcp pod:25183`, is about a place.
fn matches(pattern: &str, place: &ListenAddress) -> bool {
    let Some((protocol, at)) = pattern.split_once(' ') else { return false };
    let internet = |address: &SocketAddr| {
        let Some((whose, port)) = at.rsplit_once(':') else { return false };
        (port == "*" || port == address.port().to_string()) && is_of(whose, address.ip())
    };
    match (protocol, place) {
        ("tcp", ListenAddress::Tcp(address)) | ("udp", ListenAddress::Udp(address)) => internet(address),
        ("unix", ListenAddress::Unix(path)) => at == "*" || path.rsplit('/').next() == Some(at),
        _ => false,
    }
}

fn is_of(whose: &str, ip: IpAddr) -> bool {
    match whose {
        "loopback" => ip.is_loopback(),
        "any" => ip.is_unspecified(),
        "node" | "pod" => !ip.is_unspecified(),
        _ => false,
    }
}

fn is_known(table: &[Row], listener: &Listener) -> bool {
    let rows = table.iter().filter(|row| row.role == listener.role);
    rows.flat_map(|row| &row.places).any(|pattern| matches(pattern, &listener.place))
}

#[test]
fn patterns_of_the_table_are_strict() {
    let tcp = |address: &str| ListenAddress::Tcp(address.parse().unwrap());
    assert!(matches("tcp loopback:*", &tcp("127.0.0.1:5")) && !matches("tcp loopback:*", &tcp("0.0.0.0:5")));
    assert!(
        matches("tcp pod:25183", &tcp("10.0.0.1:25183")) && !matches("tcp pod:25183", &tcp("10.0.0.1:1"))
    );
    assert!(!matches("udp any:67", &tcp("0.0.0.0:67")) && !matches("tcp pod:*", &tcp("0.0.0.0:1")));
    assert!(matches("unix a.sock", &ListenAddress::Unix("/x/a.sock".into())));
    assert!(!matches("unix a.sock", &ListenAddress::Unix("/x/b.sock".into())));
}

#[test]
fn every_listener_of_a_cluster_is_in_the_table() {
    let table = table();
    let cluster = Cluster::start(1);
    let found = listeners_of(&cluster);
    let unknown: Vec<&Listener> = found.iter().filter(|listener| !is_known(&table, listener)).collect();
    assert!(unknown.is_empty(), "listeners that SECURITY.md does not hold: {unknown:#?}");
}
