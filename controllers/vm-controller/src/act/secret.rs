//! Secrets of a VM: SSH keys, made once; the configuration of a runner, made for each pod.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, Preconditions};
use neonvm_api::VirtualMachine;
use neonvm_api::names::label;
use neonvm_api::runner_pod::{CONFIG_FILE, Receive, RunnerClaim, RunnerConfig, Seal, identity_secret};
use neonvm_core_vm_lifecycle::FailureReason::SecretFailed;
use neonvm_core_vm_lifecycle::pod;
use neonvm_kit::anchors::{fingerprints, sha256};
use neonvm_kit::ca::Identity;
use neonvm_types::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::Failed;
use crate::cache::{Key, owner};
use crate::reconciler::Reconciler;
use crate::request::{is_conflict, is_missing, patching, posting};
use crate::ssh;

pub(crate) const CONFIG_LABEL: &str = "vm.neon.tech/runner-config";

/// Key of such a secret: the authorities that the runner trusts, as far as its pod's seal admits them.
pub(crate) const AUTHORITIES: &str = "ca.crt";

/// A secret that belongs to the VM.
pub(super) fn secret_of(
    vm: &VirtualMachine,
    name: &str,
    kind: &str,
    data: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<Secret, Failed> {
    let owner = pod::owner(vm).map_err(|error| Failed::new(SecretFailed, error.to_string()))?;
    let labels: BTreeMap<String, String> = [(label::VM_NAME.to_owned(), owner.name.clone())].into();
    let data = data.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())));
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: vm.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some(kind.to_owned()),
        data: Some(data.collect()),
        ..Secret::default()
    })
}

type Annotations = BTreeMap<String, String>;
type Data = BTreeMap<String, ByteString>;

/// A runner's certificate and key in the secret of its pod, and when it begins and ends.
pub(crate) fn identity_data(identity: &Identity) -> Result<(Annotations, Data), String> {
    let (from, until) = validity(&identity.certificate).ok_or("the certificate cannot be read")?;
    let annotations = [(NOT_BEFORE, from), (NOT_AFTER, until)];
    let data = [("tls.crt", &identity.certificate), ("tls.key", &identity.key)];
    Ok((
        annotations.map(|(key, time)| (key.to_owned(), time.to_string())).into(),
        data.map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes()))).into(),
    ))
}

impl Reconciler {
    /// Keys for SSH, unless the VM has some: they stay over restarts and migrations.
    pub(super) async fn ensure_ssh(&self, key: &Key, vm: &VirtualMachine) -> Result<(), Failed> {
        let name = pod::ssh_secret(vm).map_err(|error| Failed::new(SecretFailed, error.to_string()))?;
        let keys = ssh::generate(&format!("neonvm@{}", key.name))
            .ok_or_else(|| Failed::new(SecretFailed, "there is no randomness for SSH keys"))?;
        let data = [("ssh-publickey", keys.public), ("ssh-privatekey", keys.private)];
        let mut secret = secret_of(vm, &name, "kubernetes.io/ssh-auth", data)?;
        secret.immutable = Some(true);
        let api = self.requests.secrets(&key.namespace);
        match self.requests.write(api.create(&posting(), &secret)).await {
            Ok(_) => Ok(()),
            Err(error) if is_conflict(&error) => self.check_ssh(key, vm, &name).await,
            Err(error) => Err(Failed::api(SecretFailed, "the SSH keys cannot be kept", &error)),
        }
    }

    /// The secret exists: checks whether it is of this VM, of a deleted VM of the same name, or of another owner.
    async fn check_ssh(&self, key: &Key, vm: &VirtualMachine, name: &str) -> Result<(), Failed> {
        // Deleted meanwhile: the next reconcile makes it.
        let found = self.secret_meta(key, name).await?.ok_or(Failed::Conflict)?;
        // One without an owner was made by hand, with keys of the user.
        if found.owner_references.iter().flatten().any(|owner| owner.controller == Some(true)) {
            is_own(key, vm, name, &found)?;
        }
        Ok(())
    }

    async fn secret_meta(&self, key: &Key, name: &str) -> Result<Option<ObjectMeta>, Failed> {
        let found =
            crate::request::within(self.requests.secrets(&key.namespace).get_metadata_opt(name)).await;
        found
            .map(|found| found.map(|found| found.metadata))
            .map_err(|error| Failed::api(SecretFailed, &format!("secret {name} cannot be read"), &error))
    }

    /// Makes a secret of the VM, or writes all that it is used for: what stands in one that exists is not to be trusted.
    async fn write_own(&self, key: &Key, vm: &VirtualMachine, secret: Secret) -> Result<(), Failed> {
        let what = "the runner's configuration cannot be kept";
        let api = self.requests.secrets(&key.namespace);
        match self.requests.write(api.create(&posting(), &secret)).await {
            Ok(_) => return Ok(()),
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(Failed::api(SecretFailed, what, &error)),
        }
        let name = secret.metadata.name.unwrap_or_default();
        let found = self.secret_meta(key, &name).await?.ok_or(Failed::Conflict)?;
        is_own(key, vm, &name, &found)?;
        let meta = json!({"uid": found.uid, "resourceVersion": found.resource_version,
            "labels": secret.metadata.labels, "annotations": secret.metadata.annotations});
        let change = Patch::Merge(json!({"metadata": meta, "data": secret.data}));
        let written = self.requests.write(api.patch(&name, &patching(), &change)).await;
        written.map(drop).map_err(|error| Failed::api(SecretFailed, what, &error))
    }

    /// Removes the secrets of a pod of the VM; others of these names stay.
    pub(super) async fn remove_config(
        &self,
        key: &Key,
        vm: &VirtualMachine,
        pod: &str,
    ) -> Result<(), Failed> {
        for name in [pod.to_owned(), identity_secret(pod)] {
            let Some(found) = self.secret_meta(key, &name).await? else { continue };
            if is_own(key, vm, &name, &found).is_err() {
                continue;
            }
            let only = Preconditions { uid: found.uid, resource_version: None };
            let how = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
            match self.requests.write(self.requests.secrets(&key.namespace).delete(&name, &how)).await {
                Err(error) if !is_missing(&error) && !is_conflict(&error) => {
                    return Err(Failed::api(SecretFailed, "the runner's secret cannot be deleted", &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Queues that each disk of the VM has in the pod of this name, see [`RunnerConfig::disk_queues`], from the configuration with
    /// which the pod was made. `None` as well if that is gone: then the pod is going, too.
    pub(crate) async fn disk_queues(&self, key: &Key, pod: &str) -> Result<Option<u32>, Failed> {
        let failed = |error: kube::Error| {
            Failed::api(SecretFailed, "the configuration of the source runner cannot be read", &error)
        };
        let secret = crate::request::within(self.requests.secrets(&key.namespace).get_opt(pod)).await;
        let data = secret.map_err(failed)?.and_then(|secret| secret.data).unwrap_or_default();
        let Some(json) = data.get(CONFIG_FILE) else { return Ok(None) };
        let found = crate::request::within(self.requests.pods(&key.namespace).get_opt(pod)).await;
        let found = found.map_err(failed)?;
        let (is, digest) = (sha256(&json.0), found.as_ref().and_then(pod::sealed));
        if let Some(digest) = digest.filter(|digest| *digest != is) {
            let text = format!(
                "the configuration in secret {pod} was changed: its SHA-256 is {is}, and pod {pod} was made with {digest}; \
                 restart the VM"
            );
            return Err(Failed::new(SecretFailed, text));
        }
        let config: Option<RunnerConfig> = serde_json::from_slice(&json.0).ok();
        Ok(config.and_then(|config| config.disk_queues()))
    }

    /// The runner's configuration and its certificate; returns what the pod is sealed with. A pod runs only if they exist: they are
    /// removed before another pod gets the VM.
    pub(crate) async fn write_config(
        &self,
        key: &Key,
        vm: &VirtualMachine,
        name: &str,
        (receive, claims): (Option<&Receive>, BTreeMap<String, RunnerClaim>),
    ) -> Result<Seal, Failed> {
        let failed = |error: &dyn std::fmt::Display| Failed::new(SecretFailed, error.to_string());
        let mut config =
            pod::config(vm, name, &self.state.settings(&key.namespace)).map_err(|error| failed(&error))?;
        config.receive = receive.cloned();
        config.claims = claims;
        let json = serde_json::to_string(&config).map_err(|error| failed(&error))?;
        let bundle = self.authority.bundle();
        let seal = Seal {
            config: sha256(json.as_bytes()),
            authorities: fingerprints(&bundle).map_err(|error| failed(&error))?,
        };
        self.write_own(key, vm, secret_of(vm, name, "Opaque", [(CONFIG_FILE, json)])?).await?;
        let identity = self.authority.runner(&config.uid).map_err(|error| failed(&error))?;
        let mut secret = secret_of(vm, &identity_secret(name), "Opaque", [(AUTHORITIES, bundle)])?;
        let (annotations, own) = identity_data(&identity).map_err(|error| failed(&error))?;
        secret.data.get_or_insert_default().extend(own);
        secret.metadata.labels.get_or_insert_default().insert(CONFIG_LABEL.to_owned(), "true".to_owned());
        secret.metadata.annotations = Some(annotations);
        self.write_own(key, vm, secret).await?;
        Ok(seal)
    }
}

/// Whether a secret is of this VM; what to do about another one.
fn is_own(key: &Key, vm: &VirtualMachine, name: &str, found: &ObjectMeta) -> Result<(), Failed> {
    match owner(found) {
        Some((_, uid)) if Some(&uid) == vm.metadata.uid.as_ref() => Ok(()),
        Some((named, _)) if named == *key => Err(Failed::new(
            SecretFailed,
            format!("waits until secret {name} of an earlier machine of this name is gone"),
        )),
        _ => {
            let of = found.owner_references.iter().flatten().next();
            let whose = of.map_or_else(
                || "is not this machine's".to_owned(),
                |owner| format!("belongs to {} {}", owner.kind, owner.name),
            );
            let text = format!(
                "secret {name} exists and {whose}; if nothing needs it, delete it: kubectl delete secret {name}"
            );
            Err(Failed::new(SecretFailed, text))
        }
    }
}

pub(crate) const NOT_AFTER: &str = "vm.neon.tech/tls-not-after";

pub(crate) const NOT_BEFORE: &str = "vm.neon.tech/tls-not-before";

/// From when until when the first certificate of a PEM text is valid.
pub(super) fn validity(pem: &str) -> Option<(Timestamp, Timestamp)> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    let validity = certificate.validity();
    Some((
        Timestamp::from_unix(validity.not_before.timestamp())?,
        Timestamp::from_unix(validity.not_after.timestamp())?,
    ))
}
