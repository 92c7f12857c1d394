//! The client's side of DHCP as a state machine (RFC 2131 §4.4). Pure: time and random numbers come from outside.
//!
//! ```text
//! Selecting ──offer──▶ Requesting ──ack──▶ Bound ──T1──▶ Renewing ──T2──▶ Rebinding ──end──▶ Selecting
//!     ▲                    │ nak, silence     ▲              │ ack            │ ack             (address removed)
//!     └────────────────────┘                  └──────────────┴────────────────┘  nak: as end
//! ```

use std::net::Ipv4Addr;
use std::time::Duration;

use super::packet::{Kind, Offer, Query, Reply};

/// First pause before a message is sent again; doubled up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(64);
/// A request that is not answered so often is abandoned; the search starts again.
const TRIES: u32 = 4;
/// Pause before the search after a refusal, so that two broken servers cannot keep us busy.
const AFTER_NAK: Duration = Duration::from_secs(1);
/// Shortest pause between two attempts to renew.
const RENEW_PAUSE: Duration = Duration::from_secs(10);
/// A lease is taken to last at least so long.
const SHORTEST_LEASE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send; None: by broadcast.
    Send(Query, Option<Ipv4Addr>),
    /// Give the interface these settings.
    Configure(Offer),
    /// Take this address from the interface.
    Remove(Offer),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Selecting { tries: u32 },
    Requesting { offer: Offer, server: Option<Ipv4Addr>, tries: u32 },
    Bound { lease: Lease },
    Renewing { lease: Lease },
    Rebinding { lease: Lease },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    offer: Offer,
    server: Option<Ipv4Addr>,
    /// When it is renewed, when the renewal is sent to any server, when it ends; `None`: never.
    times: Option<(Duration, Duration, Duration)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    hardware: [u8; 6],
    exchange: u32,
    began: Duration,
    state: State,
    wake_at: Option<Duration>,
}

impl Client {
    /// Begins at once; the number distinguishes exchanges.
    pub fn new(hardware: [u8; 6], exchange: u32, now: Duration) -> Self {
        Self { hardware, exchange, began: now, state: State::Selecting { tries: 0 }, wake_at: Some(now) }
    }

    /// When [`Client::tick`] is to be called; None: only a reply can change anything.
    pub fn wake_at(&self) -> Option<Duration> {
        self.wake_at
    }

    /// Whether there is an address.
    pub fn is_bound(&self) -> bool {
        matches!(self.state, State::Bound { .. } | State::Renewing { .. } | State::Rebinding { .. })
    }

    /// The link came back: the current address is requested again, or the search continues at once.
    pub fn link_up(&mut self, now: Duration) {
        match &mut self.state {
            State::Bound { lease } => {
                self.state = State::Renewing { lease: lease.clone() };
                self.begin(now);
            }
            State::Selecting { tries } => *tries = 0,
            _ => {}
        }
        self.wake_at = Some(now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        if self.wake_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        match self.state.clone() {
            State::Selecting { tries } => {
                self.state = State::Selecting { tries: tries.saturating_add(1) };
                self.wake_at = now.checked_add(pause(tries));
                vec![Action::Send(self.query(Kind::Discover, now), None)]
            }
            State::Requesting { tries, .. } if tries >= TRIES => self.search(now, now),
            State::Requesting { offer, server, tries } => {
                let mut query = self.query(Kind::Request, now);
                (query.requested, query.server) = (Some(offer.address), server);
                self.state = State::Requesting { offer, server, tries: tries.saturating_add(1) };
                self.wake_at = now.checked_add(pause(tries));
                vec![Action::Send(query, None)]
            }
            State::Bound { lease } => {
                self.state = State::Renewing { lease };
                self.begin(now);
                self.tick(now)
            }
            State::Renewing { lease } => self.renew(lease, now),
            State::Rebinding { lease } => self.rebind(lease, now),
        }
    }

    /// Handles a reply of a server.
    pub fn receive(&mut self, reply: &Reply, now: Duration) -> Vec<Action> {
        if reply.exchange != self.exchange || reply.hardware != self.hardware {
            return Vec::new();
        }
        match (self.state.clone(), reply.kind) {
            (State::Selecting { tries: 1.. }, Kind::Offer) => {
                self.state = State::Requesting { offer: reply.offer.clone(), server: reply.server, tries: 0 };
                self.wake_at = Some(now);
                self.tick(now)
            }
            (State::Requesting { server, .. }, _) if server != reply.server => Vec::new(),
            (State::Requesting { .. } | State::Renewing { .. } | State::Rebinding { .. }, Kind::Ack) => {
                self.bind(reply, now)
            }
            (State::Requesting { .. }, Kind::Nak) => self.search(now, now.saturating_add(AFTER_NAK)),
            (State::Renewing { lease } | State::Rebinding { lease }, Kind::Nak) => {
                let mut actions = vec![Action::Remove(lease.offer)];
                actions.extend(self.search(now, now.saturating_add(AFTER_NAK)));
                actions
            }
            _ => Vec::new(),
        }
    }

    fn bind(&mut self, reply: &Reply, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if let State::Renewing { lease } | State::Rebinding { lease } = &self.state
            && lease.offer.address != reply.offer.address
        {
            actions.push(Action::Remove(lease.offer.clone()));
        }
        let times = reply.offer.lease.map(|seconds| times(&reply.offer, seconds, now));
        let lease = Lease { offer: reply.offer.clone(), server: reply.server, times };
        self.wake_at = times.map(|(renewal, ..)| renewal);
        actions.push(Action::Configure(lease.offer.clone()));
        self.state = State::Bound { lease };
        actions
    }

    fn renew(&mut self, lease: Lease, now: Duration) -> Vec<Action> {
        // A lease without an end is never sent to another server: requests go to the one that gave it until it answers.
        let (rebinding, _) =
            lease.times.map_or((None, None), |(_, rebinding, end)| (Some(rebinding), Some(end)));
        if rebinding.is_some_and(|at| now >= at) {
            return self.rebind(lease, now);
        }
        let mut query = self.query(Kind::Request, now);
        query.current = Some(lease.offer.address);
        let server = lease.server;
        self.wake_at = Some(half_way(now, rebinding));
        self.state = State::Renewing { lease };
        vec![Action::Send(query, server)]
    }

    fn rebind(&mut self, lease: Lease, now: Duration) -> Vec<Action> {
        let end = lease.times.map(|(.., end)| end);
        if end.is_some_and(|at| now >= at) {
            let mut actions = vec![Action::Remove(lease.offer)];
            actions.extend(self.search(now, now));
            return actions;
        }
        let mut query = self.query(Kind::Request, now);
        query.current = Some(lease.offer.address);
        self.wake_at = Some(half_way(now, end));
        self.state = State::Rebinding { lease };
        vec![Action::Send(query, None)]
    }

    fn search(&mut self, now: Duration, at: Duration) -> Vec<Action> {
        self.begin(now);
        self.state = State::Selecting { tries: 0 };
        self.wake_at = Some(at);
        self.tick(now)
    }

    fn begin(&mut self, now: Duration) {
        self.exchange = self.exchange.wrapping_mul(0x9e37_79b1).wrapping_add(1);
        self.began = now;
        self.wake_at = Some(now);
    }

    fn query(&self, kind: Kind, now: Duration) -> Query {
        let seconds = now.saturating_sub(self.began).as_secs();
        Query {
            kind,
            exchange: self.exchange,
            seconds: u16::try_from(seconds).unwrap_or(u16::MAX),
            hardware: self.hardware,
            current: None,
            requested: None,
            server: None,
        }
    }
}

fn pause(tries: u32) -> Duration {
    FIRST.saturating_mul(1 << tries.min(6)).min(LONGEST)
}

fn half_way(now: Duration, end: Option<Duration>) -> Duration {
    let Some(end) = end else { return now.saturating_add(LONGEST) };
    let next = now.saturating_add((end.saturating_sub(now) / 2).max(RENEW_PAUSE));
    next.min(end.max(now.saturating_add(FIRST)))
}

/// Renewal, rebinding, end: the server's values if they are in order, else 1/2 and 7/8 of the lease (RFC 2131 §4.4.5).
fn times(offer: &Offer, seconds: u32, now: Duration) -> (Duration, Duration, Duration) {
    let length = Duration::from_secs(u64::from(seconds)).max(SHORTEST_LEASE);
    let span = |seconds: Option<u32>| seconds.map(|seconds| Duration::from_secs(u64::from(seconds)));
    let rebinding = span(offer.rebinding).filter(|at| *at < length && *at >= FIRST).unwrap_or(length * 7 / 8);
    let renewal =
        span(offer.renewal).filter(|at| *at < rebinding && *at >= FIRST).unwrap_or(rebinding.min(length / 2));
    (now.saturating_add(renewal), now.saturating_add(rebinding), now.saturating_add(length))
}

#[cfg(test)]
#[path = "client/tests.rs"]
mod tests;
