//! The certificate of a guest: from cert-manager if the cluster has it and the VM names an issuer, otherwise from the
//! authority for VMs. It is renewed in time; a refused certificate is requested again with growing pauses.

use neonvm_api::virtual_machine::Tls;
use neonvm_types::Timestamp;

use crate::settings::Settings;

/// Default lifetime of a certificate, in seconds: 90 days.
const LIFETIME: i64 = 90 * 86_400;
/// Shortest lifetime that can be requested, in seconds; cert-manager refuses less than an hour, our authority does not
/// check.
const SHORTEST: i64 = 60;
/// Longest pause is the first times this.
const PAUSE_FACTOR: i64 = 64;

/// What is seen of the certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsObserved {
    /// Whether cert-manager's API is served.
    pub api: bool,
    /// The secret with the certificate.
    pub secret: Option<TlsSecret>,
    /// The request to cert-manager.
    pub request: Option<Request>,
    /// Whether the key of an open request is there.
    pub key: bool,
}

/// The secret with the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSecret {
    /// What it was made for; see [`fingerprint`].
    pub fingerprint: String,
    /// When the certificate becomes valid.
    pub not_before: Timestamp,
    /// When it ends.
    pub not_after: Timestamp,
}

/// A request to cert-manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it was made for; see [`fingerprint`].
    pub fingerprint: String,
    /// How often one was refused before.
    pub attempt: u32,
    /// How far it is.
    pub state: RequestState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// Neither issued nor refused.
    Waiting {
        /// What cert-manager reports about it; empty: nothing yet.
        message: String,
    },
    /// The certificate is there.
    Issued,
    /// Denied, invalid or failed.
    Refused {
        /// When the request was refused.
        at: Timestamp,
        /// Reason of the refusal.
        message: String,
    },
}

/// What to do about the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsAction {
    /// Make key and certificate with the authority for VMs and write the secret.
    Sign,
    /// Make a key, keep it in a secret, and request a certificate from cert-manager; the remains of an earlier request
    /// are removed first.
    Request {
        /// How often one was refused before.
        attempt: u32,
    },
    /// Write the issued certificate with its key into the secret.
    Store,
    /// Remove the request and its key.
    Discard,
}

/// What is to be done, and whether the guest can have the secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOutcome {
    /// What to do now.
    pub action: Option<TlsAction>,
    /// Whether the secret exists.
    pub usable: bool,
    /// When to look again.
    pub wake_at: Option<Timestamp>,
    /// What is wrong.
    pub problem: Option<String>,
    /// What cert-manager reports about a request that waits.
    pub waits_for: Option<String>,
}

/// Name of the request: our own prefix, so that it cannot be a user's.
#[must_use]
pub fn request_name(vm: &str) -> String {
    format!("tls-neonvm-{vm}")
}

/// Name of the secret that holds the key of an open request.
#[must_use]
pub fn key_secret_name(vm: &str) -> String {
    format!("tls-neonvm-{vm}-tmp")
}

/// What a certificate is made for: when this changes, a new one is made.
#[must_use]
pub fn fingerprint(tls: &Tls) -> String {
    format!("{}|{}|{}", tls.certificate_issuer, tls.server_name, tls.expire_after)
}

/// Lifetime to request, in seconds.
#[must_use]
pub fn lifetime(tls: &Tls) -> i64 {
    match tls.expire_after.nanos() / 1_000_000_000 {
        0 => LIFETIME,
        seconds => seconds.max(SHORTEST),
    }
}

/// Decides what to do about a certificate.
#[must_use]
pub fn step(now: Timestamp, tls: &Tls, observed: &TlsObserved, settings: &Settings) -> TlsOutcome {
    let wanted = fingerprint(tls);
    let usable = observed.secret.is_some();
    let good = observed.secret.as_ref().filter(|secret| secret.fingerprint == wanted);
    if let Some(at) = good.and_then(|secret| renewal(tls, secret))
        && now < at
    {
        let leftover = observed.request.is_some() || observed.key;
        let action = leftover.then_some(TlsAction::Discard);
        return TlsOutcome { action, usable, wake_at: Some(at), ..TlsOutcome::default() };
    }
    let act = |action| TlsOutcome { action: Some(action), usable, ..TlsOutcome::default() };
    if tls.certificate_issuer.is_empty() || !observed.api {
        return act(TlsAction::Sign);
    }
    let Some(request) = observed.request.as_ref().filter(|request| request.fingerprint == wanted) else {
        return act(TlsAction::Request { attempt: 0 });
    };
    match &request.state {
        RequestState::Waiting { message } if observed.key => {
            let waits_for = (!message.is_empty()).then(|| message.clone());
            TlsOutcome { usable, waits_for, ..TlsOutcome::default() }
        }
        RequestState::Issued if observed.key => act(TlsAction::Store),
        // Without its key the certificate is worth nothing.
        RequestState::Waiting { .. } | RequestState::Issued => {
            act(TlsAction::Request { attempt: request.attempt })
        }
        RequestState::Refused { at, message } => {
            let attempt = request.attempt.saturating_add(1);
            let factor = 1_i64.checked_shl(request.attempt.min(6)).unwrap_or(PAUSE_FACTOR).min(PAUSE_FACTOR);
            let pause = settings.certificate_pause.saturating_mul(factor);
            let again = Timestamp::from_unix(at.unix().saturating_add(pause));
            let problem = Some(format!("the certificate request was refused: {message}"));
            if again.is_some_and(|again| now < again) {
                return TlsOutcome { usable, wake_at: again, problem, ..TlsOutcome::default() };
            }
            TlsOutcome { problem, ..act(TlsAction::Request { attempt }) }
        }
    }
}

/// When a certificate is to be renewed: the configured time before its end, never in the first third of its life.
fn renewal(tls: &Tls, secret: &TlsSecret) -> Option<Timestamp> {
    let (from, until) = (secret.not_before.unix(), secret.not_after.unix());
    let life = until.saturating_sub(from).max(0);
    let before = match tls.renew_before.nanos() / 1_000_000_000 {
        0 => life / 3,
        seconds => seconds.max(0),
    };
    Timestamp::from_unix(until.saturating_sub(before).max(from.saturating_add(life / 3)))
}

#[cfg(test)]
mod tests {
    use neonvm_api::GoDuration;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix(seconds).unwrap()
    }

    fn spec(issuer: &str) -> Tls {
        Tls {
            certificate_issuer: issuer.to_owned(),
            expire_after: GoDuration::from_secs(86_400),
            renew_before: GoDuration::from_secs(3_600),
            server_name: "db".to_owned(),
            mount_path: "/var/tls".to_owned(),
        }
    }

    fn run(now: i64, tls: &Tls, observed: &TlsObserved) -> TlsOutcome {
        step(at(now), tls, observed, &Settings::default())
    }

    fn request(tls: &Tls, attempt: u32, state: RequestState) -> Option<Request> {
        Some(Request { fingerprint: fingerprint(tls), attempt, state })
    }

    fn secret(tls: &Tls) -> Option<TlsSecret> {
        Some(TlsSecret { fingerprint: fingerprint(tls), not_before: at(0), not_after: at(86_400) })
    }

    #[test]
    fn without_issuer_or_cert_manager_the_own_authority_signs() {
        for (issuer, api) in [("", true), ("", false), ("ca", false)] {
            let outcome = run(0, &spec(issuer), &TlsObserved { api, ..TlsObserved::default() });
            assert_eq!(outcome.action, Some(TlsAction::Sign));
            assert!(!outcome.usable);
        }
    }

    #[test]
    fn a_request_goes_from_asked_to_stored_to_removed() {
        let tls = spec("ca");
        let mut seen = TlsObserved { api: true, ..TlsObserved::default() };
        assert_eq!(run(0, &tls, &seen).action, Some(TlsAction::Request { attempt: 0 }));
        let waiting = |message: &str| RequestState::Waiting { message: message.to_owned() };
        (seen.request, seen.key) = (request(&tls, 0, waiting("")), true);
        assert_eq!(run(0, &tls, &seen), TlsOutcome::default());
        seen.request = request(&tls, 0, waiting("no such issuer"));
        assert_eq!(run(0, &tls, &seen).waits_for.as_deref(), Some("no such issuer"));
        seen.request = request(&tls, 0, RequestState::Issued);
        assert_eq!(run(0, &tls, &seen).action, Some(TlsAction::Store));
        seen.secret = secret(&tls);
        let outcome = run(1, &tls, &seen);
        assert_eq!((outcome.action, outcome.usable), (Some(TlsAction::Discard), true));
        (seen.request, seen.key) = (None, false);
        let outcome = run(1, &tls, &seen);
        assert_eq!((outcome.action, outcome.wake_at), (None, Some(at(82_800))));
        assert_eq!(run(82_800, &tls, &seen).action, Some(TlsAction::Request { attempt: 0 }));
    }

    #[test]
    fn a_refused_request_is_repeated_later_and_later() {
        let tls = spec("ca");
        let refused = |attempt| TlsObserved {
            api: true,
            request: request(&tls, attempt, RequestState::Refused { at: at(100), message: "no".into() }),
            key: true,
            secret: None,
        };
        for (attempt, pause) in [(0, 10), (1, 20), (5, 320), (6, 640), (60, 640)] {
            let early = run(100 + pause - 1, &tls, &refused(attempt));
            assert_eq!((early.action, early.wake_at), (None, Some(at(100 + pause))));
            assert!(early.problem.unwrap().contains("no"));
            let due = run(100 + pause, &tls, &refused(attempt));
            assert_eq!(due.action, Some(TlsAction::Request { attempt: attempt + 1 }));
        }
    }

    #[test]
    fn another_name_makes_another_certificate() {
        let (old, mut new) = (spec(""), spec(""));
        new.server_name = "other".to_owned();
        let seen = TlsObserved { secret: secret(&old), ..TlsObserved::default() };
        let outcome = run(1, &new, &seen);
        assert_eq!((outcome.action, outcome.usable), (Some(TlsAction::Sign), true));
    }

    #[test]
    fn an_issuer_that_gives_short_lives_does_not_cause_a_loop() {
        let mut tls = spec("");
        tls.renew_before = GoDuration::from_secs(1 << 40);
        let seen = TlsObserved { secret: secret(&tls), ..TlsObserved::default() };
        assert_eq!(run(1, &tls, &seen).action, None);
    }

    #[test]
    fn a_request_without_its_key_is_made_again() {
        let tls = spec("ca");
        let state = RequestState::Issued;
        let seen = TlsObserved { api: true, request: request(&tls, 2, state), key: false, secret: None };
        assert_eq!(run(1, &tls, &seen).action, Some(TlsAction::Request { attempt: 2 }));
    }
}
