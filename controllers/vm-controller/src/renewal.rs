//! Certificates of runners: each lives as long as one of a service, and gets a successor in the secret of its pod as long as the pod is there.
//!
//! An annotation of the secret holds the end of the certificate. The names in the certificate come from the VM object, and its runner
//! admits only authorities that its pod is sealed with or that these certify, because authors of VMs may be able to write to the secret.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch};
use kube::core::PartialObjectMeta;
use neonvm_api::lifetimes::Lifetimes;
use neonvm_api::runner_pod::identity_secret;
use neonvm_kit::certificate::Validity;
use neonvm_types::Timestamp;
use serde_json::json;

use crate::act::{AUTHORITIES, CONFIG_LABEL, NOT_AFTER, NOT_BEFORE, identity_data};
use crate::authority::Authority;
use crate::cache::{Cache, KeptPod, Key, key_of, owner};
use crate::clock::now;
use crate::request::{is_missing, patching, within};
use crate::requests::Requests;

/// The VM, the name of the secret with the certificate of a pod of it, and the UID of that secret.
type Due = (Key, String, Option<String>);

/// Renews certificates in time; never returns.
pub(crate) async fn keep(requests: Requests, cache: Arc<Cache>, authority: Arc<Authority>) {
    loop {
        match due(&requests, &cache, authority.lifetimes()).await {
            Ok(due) => {
                for (key, secret, uid) in due {
                    if let Err(error) = renew(&requests, &cache, &authority, (&key, &secret, uid)).await {
                        tracing::warn!(vm = %key, secret, error, "the runner's certificate could not be renewed");
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "certificates of runners cannot be listed"),
        }
        tokio::time::sleep(authority.lifetimes().look()).await;
    }
}

/// What has to be renewed now.
async fn due(requests: &Requests, cache: &Cache, lives: &Lifetimes) -> Result<Vec<Due>, kube::Error> {
    let api: Api<Secret> = Api::all(requests.client.clone());
    let list = within(api.list_metadata(&ListParams::default().labels(CONFIG_LABEL))).await?;
    let secrets: BTreeMap<Key, &PartialObjectMeta<Secret>> =
        list.items.iter().map(|secret| (key_of(&secret.metadata), secret)).collect();
    let now = now().unix();
    let mut due = Vec::new();
    for vm in cache.all_vms() {
        let key = key_of(&vm.metadata);
        let pods = cache.pods(&key);
        let own = |pod: &&Arc<KeptPod>| Some(&pod.owner) == vm.metadata.uid.as_ref();
        for pod in pods.iter().filter(own).filter(|pod| pod.view.ended.is_none()) {
            let of = |name: &str| {
                let name = Arc::new(neonvm_types::NamespacedName::new(&key.namespace, name));
                secrets.get(&name).copied().filter(|secret| {
                    owner(&secret.metadata).is_some_and(|(_, uid)| Some(&uid) == vm.metadata.uid.as_ref())
                })
            };
            // Earlier versions had one secret for the certificate and the configuration.
            let found = of(&identity_secret(&pod.view.name)).or_else(|| of(&pod.view.name));
            if let Some(secret) = found.filter(|secret| is_due(now, lives, secret)) {
                due.push((Arc::clone(&key), secret.name_any(), secret.uid()));
            }
        }
    }
    Ok(due)
}

/// Whether two thirds of its life are over before the next look. Without annotations it is renewed: too often does no harm.
fn is_due(now: i64, lives: &Lifetimes, secret: &PartialObjectMeta<Secret>) -> bool {
    let time = |key| secret.annotations().get(key).and_then(|text| text.parse::<Timestamp>().ok());
    let look = i64::try_from(lives.look().as_secs()).unwrap_or(0);
    match (time(NOT_BEFORE), time(NOT_AFTER)) {
        (Some(from), Some(until)) => {
            let validity = Validity { from: from.unix(), until: until.unix(), spread: 0 };
            // An annotation with a later end does not prevent the renewal.
            now.saturating_add(look) >= validity.renewal()
                || until.unix() > now.saturating_add(lives.certificate())
        }
        _ => true,
    }
}

async fn renew(
    requests: &Requests,
    cache: &Cache,
    authority: &Authority,
    (key, name, secret_uid): (&Key, &str, Option<String>),
) -> Result<(), String> {
    let Some(vm) = cache.vm(key) else { return Ok(()) };
    let uid = vm.metadata.uid.as_deref().unwrap_or_default();
    let identity = authority.runner(uid).map_err(|error| error.to_string())?;
    let (annotations, mut data) = identity_data(&identity)?;
    data.insert(AUTHORITIES.to_owned(), ByteString(authority.bundle().into_bytes()));
    // This very secret: another one of its name is not ours.
    let change = json!({"metadata": {"uid": secret_uid, "annotations": annotations}, "data": data});
    let api = requests.secrets(&key.namespace);
    match requests.write(api.patch(name, &patching(), &Patch::Merge(&change))).await {
        Ok(_) => Ok(()),
        // The pod is gone with it.
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_due_after_two_thirds_of_its_life() {
        let is_due = |now, secret: &_| is_due(now, &Lifetimes::DEFAULT, secret);
        let secret = |annotations: &[(&str, i64)]| {
            let mut secret = PartialObjectMeta::<Secret>::default();
            for (key, at) in annotations {
                let at = Timestamp::from_unix(*at).unwrap().to_string();
                secret.annotations_mut().insert((*key).to_owned(), at);
            }
            secret
        };
        let good = secret(&[(NOT_BEFORE, 0), (NOT_AFTER, 9000)]);
        assert!(!is_due(5399, &good));
        // A third is left at the look after this one.
        assert!(is_due(5400, &good) && is_due(100_000, &good));
        assert!(is_due(0, &secret(&[])) && is_due(0, &secret(&[(NOT_BEFORE, 0)])));
        assert!(is_due(100, &secret(&[(NOT_BEFORE, 0), (NOT_AFTER, 1 << 36)])));
    }
}
