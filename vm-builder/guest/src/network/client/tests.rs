use proptest::prelude::*;

use super::*;

const HARDWARE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

fn offer(lease: Option<u32>) -> Offer {
    Offer {
        address: [10, 0, 0, 9].into(),
        prefix: 24,
        routes: Vec::new(),
        name_servers: Vec::new(),
        search: Vec::new(),
        hostname: None,
        mtu: None,
        lease,
        renewal: None,
        rebinding: None,
    }
}

fn reply(client: &Client, kind: Kind, lease: Option<u32>) -> Reply {
    Reply { kind, exchange: client.exchange, hardware: HARDWARE, server: Some(SERVER), offer: offer(lease) }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn bound(lease: Option<u32>) -> Client {
    let mut client = Client::new(HARDWARE, 5, at(0));
    assert_eq!(client.tick(at(0)).len(), 1);
    let actions = client.receive(&reply(&client, Kind::Offer, lease), at(0));
    assert!(
        matches!(actions.as_slice(), [Action::Send(query, None)] if query.server == Some(SERVER) && query.requested.is_some())
    );
    let actions = client.receive(&reply(&client, Kind::Ack, lease), at(0));
    assert_eq!(actions, [Action::Configure(offer(lease))]);
    assert!(client.is_bound());
    client
}

#[test]
fn an_endless_lease_is_left_alone() {
    assert_eq!(bound(None).wake_at(), None);
}

#[test]
fn a_lease_is_renewed_then_asked_of_all_then_given_up() {
    let mut client = bound(Some(3600));
    assert_eq!(client.wake_at(), Some(at(1800)));
    let actions = client.tick(at(1800));
    assert!(matches!(actions.as_slice(), [Action::Send(query, Some(SERVER))] if query.current.is_some()));
    let actions = client.tick(at(3150));
    assert!(matches!(actions.as_slice(), [Action::Send(query, None)] if query.current.is_some()));
    let actions = client.tick(at(3600));
    assert!(
        matches!(actions.as_slice(), [Action::Remove(_), Action::Send(query, None)] if query.kind == Kind::Discover)
    );
    assert!(!client.is_bound());
}

#[test]
fn an_answer_to_a_renewal_restarts_the_lease() {
    let mut client = bound(Some(3600));
    client.tick(at(1800));
    let ack = reply(&client, Kind::Ack, Some(3600));
    assert_eq!(client.receive(&ack, at(1801)), [Action::Configure(offer(Some(3600)))]);
    assert_eq!(client.wake_at(), Some(at(3601)));
}

#[test]
fn a_refusal_takes_the_address_away() {
    let mut client = bound(Some(3600));
    client.tick(at(1800));
    let nak = reply(&client, Kind::Nak, None);
    assert_eq!(client.receive(&nak, at(1801)), [Action::Remove(offer(Some(3600)))]);
    assert_eq!(client.wake_at(), Some(at(1802)));
}

#[test]
fn replies_to_others_or_to_older_questions_change_nothing() {
    let mut client = bound(Some(3600));
    let old = reply(&client, Kind::Nak, None);
    client.tick(at(1800));
    let before = client.clone();
    let mut other = reply(&client, Kind::Nak, None);
    other.hardware = [9; 6];
    for reply in [old, other] {
        assert_eq!(client.receive(&reply, at(1801)), []);
    }
    assert_eq!(client, before);
}

#[test]
fn a_silent_server_is_given_up() {
    let mut client = Client::new(HARDWARE, 5, at(0));
    client.tick(at(0));
    client.receive(&reply(&client, Kind::Offer, None), at(0));
    let mut kinds = Vec::new();
    while kinds.last() != Some(&Kind::Discover) {
        let now = client.wake_at().unwrap();
        assert!(now < at(60));
        kinds.extend(client.tick(now).iter().filter_map(|action| match action {
            Action::Send(query, _) => Some(query.kind),
            _ => None,
        }));
    }
    assert_eq!(kinds.len(), TRIES as usize);
}

proptest! {
    /// Whatever happens, the client continues, never sends twice without time passing, and never twice a second on end.
    #[test]
    fn it_is_total_and_never_spins(
        events in proptest::collection::vec((0_u8..6, any::<bool>(), proptest::option::of(any::<u32>()), 0_u64..5000), 0..200),
    ) {
        let mut client = Client::new(HARDWARE, 1, at(0));
        let mut now = at(0);
        for (kind, own, lease, passed) in events {
            now += at(passed);
            let kind = match kind { 0 => Kind::Offer, 1 | 2 => Kind::Ack, 3 => Kind::Nak, _ => Kind::Discover };
            if kind == Kind::Discover {
                client.tick(now);
                prop_assert_eq!(client.tick(now), Vec::new());
            } else {
                let mut reply = reply(&client, kind, lease);
                if !own {
                    reply.exchange ^= 1;
                }
                client.receive(&reply, now);
            }
            prop_assert!(client.is_bound() || client.wake_at().is_some());
        }
    }
}
