//! One registration of the agent with the informant of a guest (protocol v1.0 to v2.0): which requests of the informant are
//! valid, which of the agent may be sent, and when the registration ends.
//!
//! The informant decides which agent is the current one: each registration begins suspended, until the informant resumes it.
//! A suspended agent changes nothing. A registration that has ended is not used again; the next one has another identity.

use neonvm_types::informant_protocol::{
    AgentDesc, AgentId, AgentIdentification, AgentIdentificationMessage, AgentMessage, AgentResourceMessage,
    InformantDesc, RawResources, ResourceMessage, SUPPORTED,
};
use neonvm_types::version::InformantProtoVersion;
use neonvm_types::{MoreResources, Resources};
use serde::Serialize;

/// Whether the agent may act for the VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// `/register` has not been answered.
    #[default]
    Unconfirmed,
    /// Registered, but another agent is the current one, or none yet.
    Suspended,
    Running,
}

/// A request of the informant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `/id`.
    Id,
    /// `/resume`, of the agent with this identity.
    Resume(AgentId),
    /// `/suspend`, of the agent with this identity.
    Suspend(AgentId),
    /// `/try-upscale`, from the agent with this identity.
    TryUpscale(AgentId, MoreResources),
}

/// A request that is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status: 400 or 404.
    pub status: u16,
    /// Why, in words.
    pub reason: String,
}

/// What a request of the informant changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Alive,
    /// This agent is the current one from now on.
    Resumed,
    /// It is not any more. The request is answered once nothing that was begun before is under way.
    Suspended,
    /// The guest requests a larger size.
    Wants(MoreResources),
}

/// How long to wait before the next registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Not at all, but for the least time between two registrations: the informant was restarted.
    AtOnce,
    /// The usual time after a failure.
    Normal,
    /// The time after a `/register` that was not answered.
    Register,
}

/// Why a registration ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// In words.
    pub reason: String,
    /// Before the next one.
    pub pause: Pause,
}

/// Why a request of the agent failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The informant answered with another status than 200.
    #[error("the informant answers {0}: {1}")]
    Status(u16, String),
    /// It answered with 200 and an invalid document.
    #[error("invalid answer: {0}")]
    Invalid(String),
    /// No answer, or a broken one.
    #[error("{0}")]
    Transport(String),
}

/// What `/register` agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    pub version: InformantProtoVersion,
    /// TCP port of the guest's metrics.
    pub metrics_port: u16,
    /// Whether the informant has resumed this agent already.
    pub running: bool,
    /// What the guest requested meanwhile, if anything.
    pub wants: Option<MoreResources>,
}

/// Body of `/upscale` and `/downscale`, in the shape of the version agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Change {
    /// Before v2.0.
    Raw(RawResources),
    /// With identity and sequence number.
    Signed(AgentResourceMessage),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    id: AgentId,
    mode: Mode,
    version: Option<InformantProtoVersion>,
    sequence: u64,
    /// Whether the informant has verified the identity.
    identified: bool,
    /// What the informant set before the answer to `/register` was received: it may overtake that answer.
    early: Option<Mode>,
    early_wants: Option<MoreResources>,
    end: Option<End>,
}

/// What `/resume`, `/suspend` and `/try-upscale` are called in messages.
const fn name(call: &Call) -> &'static str {
    match call {
        Call::Id => "/id",
        Call::Resume(_) => "/resume",
        Call::Suspend(_) => "/suspend",
        Call::TryUpscale(..) => "/try-upscale",
    }
}

fn refusal(status: u16, reason: impl Into<String>) -> Refusal {
    Refusal { status, reason: reason.into() }
}

impl Registration {
    /// A registration under this identity, which must be new.
    #[must_use]
    pub const fn new(id: AgentId) -> Self {
        Self {
            id,
            mode: Mode::Unconfirmed,
            version: None,
            sequence: 0,
            identified: false,
            early: None,
            early_wants: None,
            end: None,
        }
    }

    /// The body of `/register` and `/unregister`; `address` is where the agent serves this registration.
    #[must_use]
    pub fn describe(&self, address: &str) -> AgentDesc {
        AgentDesc {
            agent_id: self.id,
            agent_serve_addr: address.to_owned(),
            min_proto_version: SUPPORTED.min,
            max_proto_version: SUPPORTED.max,
        }
    }

    /// Whether the agent may act.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Why it ended, if it did.
    #[must_use]
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Takes a request of the informant. What it asks for and what state the registration is in decide the answer; an
    /// invalid one ends the registration, except for one that names another agent.
    pub fn call(&mut self, call: &Call) -> Result<(AgentIdentificationMessage, Option<Effect>), Refusal> {
        if let Call::Resume(expected) | Call::Suspend(expected) | Call::TryUpscale(expected, _) = call
            && *expected != self.id
        {
            return Err(refusal(404, format!("there is no agent {expected}")));
        }
        if self.end.is_some() {
            return Err(refusal(404, "this registration has ended"));
        }
        let effect = match call {
            Call::Id => {
                self.identified = true;
                (self.mode == Mode::Running).then_some(Effect::Alive)
            }
            Call::Resume(_) => self.switch(call, Mode::Suspended, Mode::Running, Effect::Resumed)?,
            Call::Suspend(_) => self.switch(call, Mode::Running, Mode::Suspended, Effect::Suspended)?,
            Call::TryUpscale(_, more) => self.try_upscale(call, *more)?,
        };
        Ok((self.message(), effect))
    }

    /// `/resume` and `/suspend`: valid in one mode only.
    fn switch(
        &mut self,
        call: &Call,
        from: Mode,
        to: Mode,
        effect: Effect,
    ) -> Result<Option<Effect>, Refusal> {
        if self.mode == from {
            self.mode = to;
            return Ok(Some(effect));
        }
        // The informant makes the new agent the current one before it answers /register.
        let before = self.early.unwrap_or(Mode::Suspended);
        if self.mode == Mode::Unconfirmed && self.identified && before == from {
            self.early = Some(to);
            return Ok(None);
        }
        Err(self.violated(call))
    }

    fn try_upscale(&mut self, call: &Call, more: MoreResources) -> Result<Option<Effect>, Refusal> {
        let wants = (more.cpu || more.memory).then_some(more);
        match self.mode {
            Mode::Running => {
                let version = self.version.unwrap_or(SUPPORTED.min);
                if !version.has_try_upscale() {
                    return Err(refusal(400, format!("protocol {version} has no /try-upscale")));
                }
                Ok(wants.map(Effect::Wants))
            }
            Mode::Unconfirmed if self.early == Some(Mode::Running) => {
                self.early_wants = wants;
                Ok(None)
            }
            Mode::Unconfirmed | Mode::Suspended => Err(self.violated(call)),
        }
    }

    /// A request that is invalid in this mode: registering again clears the disagreement.
    fn violated(&mut self, call: &Call) -> Refusal {
        let mode = match self.mode {
            Mode::Unconfirmed => "not registered yet",
            Mode::Suspended => "suspended",
            Mode::Running => "running already",
        };
        let reason = format!("{} is invalid: the agent is {mode}", name(call));
        self.finish(format!("the informant violates the protocol: {reason}"), Pause::AtOnce);
        refusal(400, reason)
    }

    /// The answer to `/register`.
    ///
    /// # Errors
    /// Why the registration has ended.
    pub fn registered(&mut self, answer: Result<InformantDesc, Failure>) -> Result<Confirmed, End> {
        let confirmed = match answer {
            Err(error @ Failure::Transport(_)) => Err((error.to_string(), Pause::Register)),
            Err(error) => Err((error.to_string(), Pause::Normal)),
            Ok(informant) => self.accept(informant).map_err(|reason| (reason, Pause::Normal)),
        };
        match (confirmed, &self.end) {
            // An invalid request of the informant ended it meanwhile.
            (_, Some(end)) => Err(end.clone()),
            (Ok(confirmed), None) => Ok(confirmed),
            (Err((reason, pause)), None) => Err(self.finish(format!("/register: {reason}"), pause)),
        }
    }

    fn accept(&mut self, informant: InformantDesc) -> Result<Confirmed, String> {
        let version = informant.proto_version;
        if !(SUPPORTED.min..=SUPPORTED.max).contains(&version) {
            return Err(format!("protoVersion {version} was not offered; offered: {SUPPORTED}"));
        }
        let port = informant.metrics_method.prometheus.map(|prometheus| prometheus.port);
        let metrics_port =
            port.filter(|port| *port != 0).ok_or("metricsMethod.prometheus.port is missing")?;
        if !self.identified {
            return Err("the informant did not request /id".to_owned());
        }
        self.version = Some(version);
        self.mode = self.early.unwrap_or(Mode::Suspended);
        let running = self.mode == Mode::Running;
        let wants = self.early_wants.filter(|_| running && version.has_try_upscale());
        Ok(Confirmed { version, metrics_port, running, wants })
    }

    /// The body of `/upscale` or `/downscale` to this size.
    ///
    /// # Errors
    /// Why none may be sent now.
    pub fn change(&mut self, to: Resources) -> Result<Change, String> {
        match (self.mode, self.version) {
            _ if self.end.is_some() => Err("the registration has ended".into()),
            (Mode::Suspended, _) => Err("the informant has suspended this agent".into()),
            (Mode::Running, Some(version)) if version.signs_resource_updates() => {
                let RawResources { cpu, memory } = to.into();
                let data = ResourceMessage { cpu, memory, id: self.identification() };
                self.sequence = self.sequence.saturating_add(1);
                Ok(Change::Signed(AgentMessage { data, sequence_number: self.sequence }))
            }
            (Mode::Running, Some(_)) => Ok(Change::Raw(to.into())),
            _ => Err("the informant has not answered /register".into()),
        }
    }

    /// The body of `/health-check`, if one may be sent.
    #[must_use]
    pub fn health_check(&self) -> Option<AgentIdentification> {
        let known = self.version.is_some_and(InformantProtoVersion::allows_health_check);
        (known && self.mode == Mode::Running && self.end.is_none()).then(|| self.identification())
    }

    /// A request of the agent failed. An answer with an error ends the registration; one that did not arrive does not.
    pub fn failed(&mut self, path: &str, failure: &Failure) {
        if let Failure::Status(status, _) = failure {
            let pause = if *status == 404 { Pause::AtOnce } else { Pause::Normal };
            self.finish(format!("{path}: {failure}"), pause);
        }
    }

    /// Ends it, for a reason that the caller found: silence, or too many requests.
    pub fn finish(&mut self, reason: impl Into<String>, pause: Pause) -> End {
        self.end.get_or_insert_with(|| End { reason: reason.into(), pause }).clone()
    }

    const fn identification(&self) -> AgentIdentification {
        AgentIdentification { agent_id: self.id }
    }

    fn message(&mut self) -> AgentIdentificationMessage {
        self.sequence = self.sequence.saturating_add(1);
        AgentMessage { data: self.identification(), sequence_number: self.sequence }
    }
}
