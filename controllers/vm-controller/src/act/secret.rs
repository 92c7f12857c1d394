//! Secrets of a VM: SSH keys, made once; the configuration of a runner, made for each pod.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Patch;
use neonvm_api::VirtualMachine;
use neonvm_api::names::label;
use neonvm_api::runner_pod::{CONFIG_FILE, Receive, RunnerConfig};
use neonvm_core_vm_lifecycle::FailureReason::SecretFailed;
use neonvm_core_vm_lifecycle::pod;
use neonvm_kit::ca::Identity;
use neonvm_types::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::Failed;
use crate::cache::Key;
use crate::reconciler::Reconciler;
use crate::request::{is_conflict, patching, posting};
use crate::ssh;

/// Label of the secrets with the configuration of a runner.
pub(crate) const CONFIG_LABEL: &str = "vm.neon.tech/runner-config";

/// Key of such a secret: the authorities that the runner trusts.
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
        let api = self.requests.secrets(&key.namespace);
        let found = crate::request::within(api.get_metadata_opt(name)).await;
        let found =
            found.map_err(|error| Failed::api(SecretFailed, "the SSH keys cannot be read", &error))?;
        // Deleted meanwhile: the next reconcile makes it.
        let Some(found) = found else { return Err(Failed::Conflict) };
        let foreign = found
            .metadata
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true) && Some(&owner.uid) != vm.metadata.uid.as_ref());
        match foreign {
            None => Ok(()),
            Some(owner) if owner.kind == "VirtualMachine" && owner.name == key.name => Err(Failed::new(
                SecretFailed,
                format!("waits until secret {name} of an earlier machine of this name is gone"),
            )),
            Some(owner) => Err(Failed::new(
                SecretFailed,
                format!("secret {name} exists and belongs to {} {}", owner.kind, owner.name),
            )),
        }
    }

    /// Queues that each disk of the VM has in the pod of this name, see [`RunnerConfig::disk_queues`]. `None` as well if the
    /// configuration is gone: then the pod is going, too.
    pub(crate) async fn disk_queues(&self, key: &Key, pod: &str) -> Result<Option<u32>, Failed> {
        let found = crate::request::within(self.requests.secrets(&key.namespace).get_opt(pod)).await;
        let found = found.map_err(|error| {
            Failed::api(SecretFailed, "the configuration of the source runner cannot be read", &error)
        })?;
        let data = found.and_then(|secret| secret.data).unwrap_or_default();
        let config = data.get(CONFIG_FILE).and_then(|json| serde_json::from_slice(&json.0).ok());
        Ok(config.and_then(|config: RunnerConfig| config.disk_queues()))
    }

    /// The runner's configuration, with its certificate. A pod runs only if it exists: it is removed before another pod
    /// gets the VM.
    pub(crate) async fn write_config(
        &self,
        key: &Key,
        vm: &VirtualMachine,
        name: &str,
        receive: Option<&Receive>,
    ) -> Result<(), Failed> {
        let failed = |error: &dyn std::fmt::Display| Failed::new(SecretFailed, error.to_string());
        let mut config =
            pod::config(vm, name, &self.state.settings(&key.namespace)).map_err(|error| failed(&error))?;
        config.receive = receive.cloned();
        let identity = self.authority.runner(&config.uid).map_err(|error| failed(&error))?;
        let json = serde_json::to_string(&config).map_err(|error| failed(&error))?;
        let data = [(CONFIG_FILE, json), (AUTHORITIES, self.authority.bundle())];
        let mut secret = secret_of(vm, name, "Opaque", data)?;
        let (annotations, own) = identity_data(&identity).map_err(|error| failed(&error))?;
        secret.data.get_or_insert_default().extend(own);
        secret.metadata.labels.get_or_insert_default().insert(CONFIG_LABEL.to_owned(), "true".to_owned());
        secret.metadata.annotations = Some(annotations);
        let api = self.requests.secrets(&key.namespace);
        let what = "the runner's configuration cannot be kept";
        match self.requests.write(api.create(&posting(), &secret)).await {
            Ok(_) => Ok(()),
            Err(error) if is_conflict(&error) => {
                let meta = serde_json::json!({"labels": secret.metadata.labels,
                    "annotations": secret.metadata.annotations});
                let change = serde_json::json!({"metadata": meta, "data": secret.data});
                let written = self.requests.write(api.patch(name, &patching(), &Patch::Merge(&change))).await;
                written.map(drop).map_err(|error| Failed::api(SecretFailed, what, &error))
            }
            Err(error) => Err(Failed::api(SecretFailed, what, &error)),
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
