use neonvm_types::informant_protocol::{AgentDesc, AgentIdentification, AgentMessage};
use neonvm_types::version::InformantProtoVersion as V;
use neonvm_types::{Bytes, MilliCpu};
use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn id(number: u128) -> AgentId {
    AgentId::new(number)
}

fn desc(number: u128) -> AgentDesc {
    AgentDesc {
        agent_id: id(number),
        agent_serve_addr: format!("10.0.0.{number}:1/x"),
        min_proto_version: V::V1_0,
        max_proto_version: V::V2_0,
    }
}

fn message(number: u128) -> AgentIdentificationMessage {
    AgentMessage { data: AgentIdentification { agent_id: id(number) }, sequence_number: 1 }
}

fn signed(number: u128, sequence: u64) -> Request {
    let body = format!(
        "{{\"data\":{{\"cpu\":\"500m\",\"memory\":\"2Gi\",\"id\":{{\"agentID\":\"{}\"}}}},\"sequenceNumber\":{sequence}}}",
        id(number)
    );
    Request::Change { down: true, body: body.into_bytes() }
}

/// The requests under way, by agent.
struct Guest {
    agents: Agents,
    now: Duration,
    tokens: u64,
    calls: Vec<(u64, u128, What)>,
    answers: Vec<(u64, u16, String)>,
    current: Option<V>,
    resized: Vec<(u64, bool, Resources)>,
}

impl Default for Guest {
    fn default() -> Self {
        Self {
            agents: Agents::new(9100),
            now: Duration::ZERO,
            tokens: 0,
            calls: Vec::new(),
            answers: Vec::new(),
            current: None,
            resized: Vec::new(),
        }
    }
}

impl Guest {
    fn take(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Answer { token, status, body } => self.answers.push((token, status, body)),
                Action::Call { call, agent, address, what } => {
                    assert!(!self.calls.iter().any(|(_, own, _)| *own == agent.bits()), "two at a time");
                    assert_eq!(address, format!("10.0.0.{}:1/x", agent.bits()));
                    self.calls.push((call, agent.bits(), what));
                }
                Action::Current(current) => self.current = current,
                Action::Resize { token, down, size } => self.resized.push((token, down, size)),
            }
        }
    }

    fn request(&mut self, request: &Request) -> u64 {
        self.tokens += 1;
        let actions = self.agents.request(self.now, self.tokens, request);
        self.take(actions);
        self.tokens
    }

    /// The request under way is answered.
    fn answer(&mut self, number: u128, what: What, answer: Result<AgentIdentificationMessage, String>) {
        let place = self.calls.iter().position(|call| (call.1, call.2) == (number, what));
        let (call, ..) = self.calls.remove(place.unwrap_or_else(|| panic!("{what:?}: {:?}", self.calls)));
        let actions = self.agents.called(self.now, call, answer);
        self.take(actions);
    }

    fn well(&mut self, number: u128, what: What) {
        self.answer(number, what, Ok(message(number)));
    }

    /// Registers and is resumed; another one is suspended before.
    fn join(&mut self, number: u128, old: Option<u128>) {
        let token = self.request(&Request::Register(desc(number)));
        self.well(number, What::Id);
        assert_eq!(self.status(token), Some(200));
        if let Some(old) = old {
            self.well(old, What::Suspend);
        }
        self.well(number, What::Resume);
        assert_eq!(self.agents.current(), Some(id(number)));
    }

    fn status(&self, token: u64) -> Option<u16> {
        self.answers.iter().find(|(own, ..)| *own == token).map(|(_, status, _)| *status)
    }

    fn after(&mut self, time: Duration) {
        self.now += time;
        let actions = self.agents.tick(self.now);
        self.take(actions);
    }
}

#[test]
fn an_agent_is_verified_answered_and_resumed() {
    let mut guest = Guest::default();
    let token = guest.request(&Request::Register(desc(1)));
    assert_eq!((guest.status(token), guest.current), (None, None));
    guest.well(1, What::Id);
    let answer = r#"{"protoVersion":4,"metricsMethod":{"prometheus":{"port":9100}}}"#;
    assert_eq!(guest.answers, [(token, 200, answer.to_owned())]);
    guest.well(1, What::Resume);
    assert_eq!(guest.current, Some(V::V2_0));
    guest.after(CHECK_INTERVAL);
    guest.well(1, What::Id);
    assert!(guest.calls.is_empty());
}

#[test]
fn what_cannot_register_is_refused() {
    let mut guest = Guest::default();
    guest.join(1, None);
    let again = guest.request(&Request::Register(desc(1)));
    let newer = AgentDesc { min_proto_version: V(9), max_proto_version: V(9), ..desc(2) };
    let newer = guest.request(&Request::Register(newer));
    assert_eq!((guest.status(again), guest.status(newer)), (Some(409), Some(400)));
    for answer in
        [Err("no answer".to_owned()), Ok(message(7)), Ok(AgentMessage { sequence_number: 0, ..message(3) })]
    {
        let token = guest.request(&Request::Register(desc(3)));
        guest.answer(3, What::Id, answer);
        assert_eq!(guest.status(token), Some(400), "{:?}", guest.answers);
    }
    assert_eq!(guest.agents.current(), Some(id(1)), "the current agent stays");
}

/// The new agent is resumed only when the old one has been suspended.
#[test]
fn the_newest_agent_replaces_the_current_one() {
    let mut guest = Guest::default();
    guest.join(1, None);
    let token = guest.request(&Request::Register(desc(2)));
    guest.well(2, What::Id);
    assert_eq!(guest.status(token), Some(200), "the answer does not wait for the switch");
    assert_eq!(guest.agents.current(), Some(id(1)));
    guest.well(1, What::Suspend);
    assert_eq!((guest.agents.current(), guest.current), (None, None));
    let refused = guest.request(&signed(1, 5));
    guest.well(2, What::Resume);
    let accepted = guest.request(&signed(2, 1));
    assert_eq!(guest.status(refused), Some(400));
    assert_eq!(guest.resized, [(accepted, true, Resources::new(MilliCpu::new(500), Bytes::gib(2)))]);
    // The new one leaves: the old one is resumed.
    let left = guest.request(&Request::Unregister(desc(2)));
    assert!(guest.answers.contains(&(left, 200, r#"{"wasActive":true}"#.to_owned())));
    guest.well(1, What::Resume);
    assert_eq!(guest.agents.current(), Some(id(1)));
}

#[test]
fn an_agent_that_does_not_answer_is_removed() {
    let mut guest = Guest::default();
    guest.join(1, None);
    guest.request(&Request::Register(desc(2)));
    guest.well(2, What::Id);
    guest.answer(1, What::Suspend, Err("no answer".into()));
    guest.answer(2, What::Resume, Err("no answer".into()));
    assert_eq!(guest.agents.current(), None);
    let gone = [1, 2]
        .map(|number| guest.request(&Request::HealthCheck(AgentIdentification { agent_id: id(number) })));
    assert!(gone.iter().all(|token| guest.status(*token) == Some(404)));
    // One late answer to /id is no reason to remove an agent.
    guest.join(3, None);
    for (failures, current) in [(1, Some(id(3))), (MOST_FAILURES, None)] {
        guest.after(CHECK_INTERVAL);
        guest.answer(3, What::Id, Err("no answer".into()));
        assert_eq!(guest.agents.current(), current, "{failures}");
    }
}

#[test]
fn requests_are_checked() {
    let mut guest = Guest::default();
    let too_early = guest.request(&signed(1, 1));
    guest.join(1, None);
    let good = guest.request(&signed(1, 3));
    let health = guest.request(&Request::HealthCheck(AgentIdentification { agent_id: id(1) }));
    let body = |text: &str| Request::Change { down: false, body: text.as_bytes().to_vec() };
    let null = signed(1, 9);
    let Request::Change { body: bytes, .. } = &null else { panic!() };
    let null = String::from_utf8(bytes.clone()).unwrap().replace("\"2Gi\"", "null");
    let refused = [
        too_early,
        guest.request(&signed(1, 3)),
        guest.request(&signed(1, 2)),
        guest.request(&signed(2, 4)),
        guest.request(&signed(1, 0)),
        guest.request(&body("{\"cpu\":\"1\",\"memory\":\"1Gi\"}")),
        guest.request(&body("")),
        guest.request(&body(&null)),
        guest.request(&Request::Unregister(AgentDesc { agent_serve_addr: "10.0.0.9:1".into(), ..desc(1) })),
    ];
    assert_eq!(guest.status(health), Some(200));
    assert_eq!(guest.resized.len(), 1);
    assert_eq!(guest.resized[0].0, good);
    for token in refused {
        assert_eq!(guest.status(token), Some(400), "{:?}", guest.answers);
    }
    let shown = format!("{:?}", guest.answers);
    for part in ["does not follow 3", "is not the current one", "memory is missing or null", "agentServeAddr"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(guest.agents.current(), Some(id(1)));
}

/// One flag: remembered until the VM has grown, and for the next agent.
#[test]
fn memory_is_requested_of_the_current_and_of_the_next_agent() {
    let mut guest = Guest::default();
    let want = |guest: &mut Guest| {
        let actions = guest.agents.want_memory(guest.now);
        guest.take(actions);
    };
    want(&mut guest);
    assert!(guest.calls.is_empty(), "there is no agent");
    guest.join(1, None);
    guest.well(1, What::TryUpscale);
    want(&mut guest);
    assert!(guest.calls.is_empty(), "it was requested already");
    guest.after(REQUEST_AGAIN);
    want(&mut guest);
    guest.well(1, What::TryUpscale);
    guest.join(2, Some(1));
    guest.answer(2, What::TryUpscale, Err("no answer".into()));
    assert_eq!(
        guest.agents.current(),
        Some(id(2)),
        "one request that failed is no reason to remove an agent"
    );
    let Request::Change { body, .. } = signed(2, 1) else { panic!() };
    guest.request(&Request::Change { down: false, body });
    guest.join(3, Some(2));
    assert!(guest.calls.is_empty(), "the VM has grown");
}

#[test]
fn older_agents_are_served_by_their_version() {
    let mut guest = Guest::default();
    let old = AgentDesc { max_proto_version: V::V1_0, ..desc(1) };
    guest.request(&Request::Register(old));
    guest.well(1, What::Id);
    guest.well(1, What::Resume);
    assert_eq!(guest.current, Some(V::V1_0));
    let actions = guest.agents.want_memory(guest.now);
    assert!(actions.is_empty(), "v1.0 has no /try-upscale: {actions:?}");
    let health = guest.request(&Request::HealthCheck(AgentIdentification { agent_id: id(1) }));
    assert_eq!(guest.status(health), Some(400));
    let body = br#"{"cpu":"500m","memory":"2Gi"}"#.to_vec();
    guest.request(&Request::Change { down: false, body });
    assert_eq!(guest.resized.len(), 1);
}

#[test]
fn an_agent_with_the_monitors_protocol_is_the_only_one() {
    let mut guest = Guest::default();
    guest.join(1, None);
    let pending = guest.request(&Request::Register(desc(2)));
    let actions = guest.agents.displace();
    guest.take(actions);
    assert_eq!((guest.current, guest.status(pending)), (None, Some(400)));
    assert_eq!(guest.agents, Agents { calls: guest.agents.calls, ..Agents::new(9100) });
    guest.answer(2, What::Id, Ok(message(2)));
    assert!(guest.calls.is_empty(), "a late answer changes nothing");
}

#[test]
fn the_number_of_agents_is_bounded() {
    let mut guest = Guest::default();
    for number in 1..=20 {
        guest.join(number, (number > 1).then(|| number - 1));
        guest.now += SECOND;
    }
    assert_eq!(guest.agents.agents.len(), MOST_AGENTS);
    // All that register at once.
    let mut crowd = Guest::default();
    let tokens: Vec<u64> = (1..=20).map(|number| crowd.request(&Request::Register(desc(number)))).collect();
    let refused = tokens.iter().filter(|token| crowd.status(**token) == Some(503)).count();
    assert_eq!(refused, 20 - MOST_AGENTS);
}

#[derive(Clone, Debug)]
enum Step {
    Request(Request),
    Answer(usize, bool),
    Want,
    After(u64),
    Displace,
}

fn steps() -> impl Strategy<Value = Step> {
    let number = 1..5_u128;
    let identity = |number| AgentIdentification { agent_id: id(number) };
    prop_oneof![
        4 => number.clone().prop_map(|number| Step::Request(Request::Register(desc(number)))),
        2 => number.clone().prop_map(|number| Step::Request(Request::Unregister(desc(number)))),
        1 => number.clone().prop_map(move |number| Step::Request(Request::HealthCheck(identity(number)))),
        2 => (number, 0..6_u64).prop_map(|(number, sequence)| Step::Request(signed(number, sequence))),
        1 => any::<(bool, Vec<u8>)>().prop_map(|(down, body)| Step::Request(Request::Change { down, body })),
        8 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(place, well)| Step::Answer(place, well)),
        1 => Just(Step::Want),
        2 => (0..12_000_u64).prop_map(Step::After),
        1 => Just(Step::Displace),
    ]
}

proptest! {
    /// In any order: at most one agent has been resumed and not suspended, each request is answered once, and what answers well
    /// converges with the newest agent as the current one.
    #[test]
    fn any_order_is_handled(steps in prop::collection::vec(steps(), 0..60)) {
        let mut guest = Guest::default();
        for step in steps {
            match step {
                Step::Request(request) => drop(guest.request(&request)),
                Step::Answer(place, well) if !guest.calls.is_empty() => {
                    let (_, number, what) = guest.calls[place % guest.calls.len()];
                    let answer = if well { Ok(message(number)) } else { Err("no answer".to_owned()) };
                    guest.answer(number, what, answer);
                }
                Step::Answer(..) => {}
                Step::Want => {
                    let actions = guest.agents.want_memory(guest.now);
                    guest.take(actions);
                }
                Step::After(millis) => guest.after(Duration::from_millis(millis)),
                Step::Displace => {
                    let actions = guest.agents.displace();
                    guest.take(actions);
                    // Requests to agents that are gone end without effect.
                    for (call, ..) in std::mem::take(&mut guest.calls) {
                        let actions = guest.agents.called(guest.now, call, Err("gone".into()));
                        guest.take(actions);
                    }
                }
            }
            // A request to an agent that was removed stays under way; it is no longer counted.
            let known: Vec<u128> = guest.agents.agents.iter().map(|agent| agent.id.bits()).collect();
            guest.calls.retain(|(call, number, _)| {
                known.contains(number)
                    && guest.agents.agents.iter().any(|agent| agent.call.is_some_and(|(own, _)| own == *call))
            });
            prop_assert_eq!(guest.current.is_some(), guest.agents.current().is_some());
            let mut tokens: Vec<u64> = guest.answers.iter().map(|(token, ..)| *token).collect();
            tokens.extend(guest.resized.iter().map(|(token, ..)| *token));
            let count = tokens.len();
            tokens.sort_unstable();
            tokens.dedup();
            prop_assert_eq!(tokens.len(), count, "a request was answered twice");
            prop_assert!(guest.agents.agents.len() <= MOST_AGENTS);
        }
        for _ in 0..50 {
            let Some((_, number, what)) = guest.calls.first().copied() else { break };
            guest.answer(number, what, Ok(message(number)));
        }
        prop_assert!(guest.calls.is_empty(), "it does not converge: {:?}", guest.calls);
        let newest = guest.agents.agents.last().map(|agent| agent.id);
        prop_assert_eq!(guest.agents.current(), newest);
        let waiting = guest.agents.agents.iter().any(|agent| agent.registering.is_some());
        prop_assert!(!waiting, "every request is answered");
    }
}
