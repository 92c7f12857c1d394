//! An authority grows old and is handed over to another one, without a moment in which a certificate is refused: the
//! next one is trusted for days before it signs, and the one before is trusted, without its key, until it ends. All of
//! that is in the secret, so any replica that reads it next continues the handover.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Error as ApiError};
use serde_json::{Value, json};

use super::{AuthoritySecret, Error, NEXT, PREVIOUS, SIGNS, text};
use crate::ca::{Authority, Identity};
use crate::certificate::Validity;

/// Key of the secret: the private key of the authority that signs next.
const NEXT_KEY: &str = "next.key";
/// Seconds for which the next authority is trusted before it signs: a service receives it with the renewal of its
/// certificate, which is valid for a day.
const SPREAD: i64 = 2 * 86_400;

/// What a secret holds, by validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    signs: Validity,
    next: Option<Validity>,
    previous: Option<Validity>,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing.
    Keep,
    /// Make the next authority and publish it.
    Prepare,
    /// The next one signs from now on.
    Promote,
    /// The one before is not trusted any more.
    Drop,
}

/// The step at `now`, in seconds since 1970. An authority ceases to sign while a third of its life is left, which is far longer than
/// the life of what it has signed last.
fn step(now: i64, held: &Held) -> Step {
    let life = held.signs.until.saturating_sub(held.signs.from).max(0);
    let spread = SPREAD.min(life / 10);
    // A little before two thirds: the authority is checked periodically.
    let ceases = held.signs.from.saturating_add(life / 20 * 13);
    match (held.next, held.previous) {
        (_, Some(previous)) if now > previous.until => Step::Drop,
        (Some(next), _) => {
            let known = next.made().saturating_add(spread);
            if now >= known || now >= held.signs.until { Step::Promote } else { Step::Keep }
        }
        (None, _) if now >= ceases.saturating_sub(spread) => Step::Prepare,
        (None, _) => Step::Keep,
    }
}

/// Continues the hand-over of an authority as far as it is due at `now`, in seconds since 1970, and reads the authority again.
/// Any replica may call it at any time; `manager` is its field manager.
///
/// # Errors
/// If there is none, the API server refuses, or the secret holds something else.
pub async fn advance(
    client: &Client,
    namespace: &str,
    kept: AuthoritySecret,
    (now, manager): (i64, &str),
) -> Result<Authority, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    loop {
        let secret = api.get_opt(kept.secret).await.map_err(kept.failed())?;
        let secret = secret.ok_or_else(|| Error::Missing(kept.secret, namespace.to_owned()))?;
        let held = Held::read(kept, &secret)?;
        let step = step(now, &held);
        let Some(data) = change(kept, &secret, step)? else { return kept.parse(&secret) };
        // Of several replicas one does it.
        let change = json!({"metadata": {"resourceVersion": secret.metadata.resource_version}, "data": data});
        let how = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
        match api.patch(kept.secret, &how, &Patch::Merge(change)).await {
            Ok(_) => tracing::info!(secret = kept.secret, ?step, "an authority is handed over"),
            Err(ApiError::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(kept.failed()(error)),
        }
    }
}

impl Held {
    fn read(kept: AuthoritySecret, secret: &Secret) -> Result<Self, Error> {
        let validity = |key| {
            let certificate = text(secret, key)?;
            Validity::from_identity(&Identity { certificate, key: String::new() })
        };
        let signs = validity(SIGNS.0).ok_or(Error::Key(kept.secret, SIGNS.0))?;
        // One without its key, or that cannot be read, is made again.
        let next = validity(NEXT).filter(|_| text(secret, NEXT_KEY).is_some());
        Ok(Self { signs, next, previous: validity(PREVIOUS) })
    }
}

/// The data of the secret that a step changes; none if there is nothing to do.
fn change(
    kept: AuthoritySecret,
    secret: &Secret,
    step: Step,
) -> Result<Option<BTreeMap<&'static str, Value>>, Error> {
    let bytes = |text: String| json!(ByteString(text.into_bytes()));
    let own = |key: &'static str| text(secret, key).map(bytes).ok_or(Error::Key(kept.secret, key));
    Ok(Some(match step {
        Step::Keep => return Ok(None),
        Step::Prepare => {
            let (next, key) = Authority::generate_for(kept.common, kept.life)?;
            // Runners trust what an authority that they know certifies.
            let certified = kept.parse(secret)?.certify(&key, kept.life)?;
            let text = format!("{}\n{certified}", next.certificate().trim_end());
            [(NEXT, bytes(text)), (NEXT_KEY, bytes(key))].into()
        }
        Step::Promote => [
            (SIGNS.0, own(NEXT)?),
            (SIGNS.1, own(NEXT_KEY)?),
            (PREVIOUS, own(SIGNS.0)?),
            (NEXT, Value::Null),
            (NEXT_KEY, Value::Null),
        ]
        .into(),
        Step::Drop => [(PREVIOUS, Value::Null)].into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::ca::clock_skew;

    const DAY: i64 = 86_400;

    /// Checks an authority every so often, for a time; when each step was due, and the largest number of authorities
    /// trusted.
    fn lives(life: i64, look: i64, years: i64) -> Vec<(i64, Step)> {
        let made = |now: i64| Validity { from: now - clock_skew(life), until: now + life, spread: 0 };
        let mut held = Held { signs: made(0), next: None, previous: None };
        let mut steps = Vec::new();
        let mut now = 0;
        while now < years * 365 * DAY {
            let due = step(now, &held);
            match due {
                Step::Keep => {
                    now += look;
                    continue;
                }
                Step::Prepare => held.next = Some(made(now)),
                Step::Promote => {
                    let left = held.signs.until - now;
                    assert!(left >= life / 3, "{left} of {life} are left at {now}");
                    held = Held { signs: held.next.unwrap(), next: None, previous: Some(held.signs) };
                }
                Step::Drop => held.previous = None,
            }
            assert!(held.signs.until > now, "nothing valid signs");
            steps.push((now, due));
        }
        steps
    }

    #[test]
    fn an_authority_is_known_for_days_before_it_signs_and_signs_no_more_in_its_last_third() {
        let life = 3650 * DAY;
        let steps = lives(life, 600, 25);
        let kinds: Vec<Step> = steps.iter().map(|(_, step)| *step).collect();
        assert!(kinds.starts_with(&[Step::Prepare, Step::Promote, Step::Drop, Step::Prepare]), "{kinds:?}");
        for (one, next) in steps.iter().zip(steps.iter().skip(1)) {
            if one.1 == Step::Prepare {
                assert!(next.1 == Step::Promote && next.0 - one.0 >= SPREAD, "{steps:?}");
            }
        }
        assert_eq!(steps.iter().find(|(_, step)| *step == Step::Drop).map(|(at, _)| *at / DAY), Some(3650));
        // A short one, as made by hand, and the shortest that can be configured.
        assert!(lives(30 * DAY, 600, 1).len() > 20);
        let shortest = lives(600, 1, 1);
        let known = shortest.iter().zip(shortest.iter().skip(1)).filter(|(one, _)| one.1 == Step::Prepare);
        assert!(known.clone().count() > 1000 && known.clone().all(|(one, next)| next.0 - one.0 >= 60));
    }

    /// A cluster that was off for years: the next one signs as soon as it is there, since nothing else is valid.
    #[test]
    fn one_that_has_ended_is_followed_at_once() {
        let ended = Validity { from: 0, until: 100 * DAY, spread: 0 };
        let held = Held { signs: ended, next: None, previous: None };
        assert_eq!(step(200 * DAY, &held), Step::Prepare);
        let next = Validity { from: 200 * DAY, until: 900 * DAY, spread: 0 };
        assert_eq!(step(200 * DAY, &Held { next: Some(next), ..held }), Step::Promote);
        let after = Held { signs: next, next: None, previous: Some(ended) };
        assert_eq!(step(200 * DAY, &after), Step::Drop);
    }
}
