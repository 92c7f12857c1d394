//! The certificate of a guest: signed by the authority for VMs, or requested from cert-manager.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, DynamicObject, Patch, Preconditions};
use neonvm_api::VirtualMachine;
use neonvm_api::names::tls_secret_name;
use neonvm_api::virtual_machine::Tls;
use neonvm_core_vm_lifecycle::FailureReason::CertificateFailed;
use neonvm_core_vm_lifecycle::pod;
use neonvm_core_vm_lifecycle::tls::{
    TlsAction, TlsSecret, fingerprint, key_secret_name, lifetime, request_name,
};
use neonvm_types::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use super::Failed;
use super::secret::{NOT_AFTER, NOT_BEFORE, secret_of, validity};
use crate::cache::Key;
use crate::cert_manager::{ATTEMPT, FINGERPRINT, keep, requests, resource};
use crate::reconciler::Reconciler;
use crate::request::{is_conflict, is_missing, patching, posting, within};

/// Label of the secrets that are watched.
pub(crate) const TLS_LABEL: &str = "vm.neon.tech/tls";

#[derive(Debug, PartialEq, Eq)]
enum Owner {
    Missing,
    Own { uid: Option<String> },
    Foreign,
}

/// A secret with a name that we use belongs to another owner: it is neither read nor written.
fn foreign(name: &str) -> Failed {
    failed(format!(
        "secret {name} exists and does not belong to this VM; delete the secret, or give the VM another name"
    ))
}

fn failed(message: impl Into<String>) -> Failed {
    Failed::new(CertificateFailed, message)
}

/// Reads the annotations of a certificate's secret.
pub(crate) fn secret_view(meta: &ObjectMeta) -> TlsSecret {
    let text = |key| meta.annotations.as_ref().and_then(|all| all.get(key)).map_or("", String::as_str);
    // Another writer's secret has no annotations; the empty fingerprint makes the controller write it again.
    let time = |key| text(key).parse::<Timestamp>().ok();
    match (time(NOT_BEFORE), time(NOT_AFTER)) {
        (Some(not_before), Some(not_after)) => {
            TlsSecret { fingerprint: text(FINGERPRINT).to_owned(), not_before, not_after }
        }
        _ => {
            let now = crate::clock::now();
            TlsSecret { fingerprint: String::new(), not_before: now, not_after: now }
        }
    }
}

impl Reconciler {
    pub(super) async fn certificate(
        &self,
        key: &Key,
        vm: &VirtualMachine,
        action: &TlsAction,
    ) -> Result<(), Failed> {
        let Some(tls) = &vm.spec.tls else { return Ok(()) };
        match action {
            TlsAction::Sign => {
                let name = server_name(tls, key);
                let identity = self.authority.guest(&name, lifetime(tls));
                let identity = identity.map_err(|error| failed(error.to_string()))?;
                self.store(key, vm, tls, identity.key, identity.certificate).await
            }
            TlsAction::Request { attempt } => {
                self.discard(key, vm).await?;
                self.request(key, vm, tls, *attempt).await
            }
            TlsAction::Store => self.take(key, vm, tls).await,
            TlsAction::Discard => self.discard(key, vm).await,
        }
    }

    async fn store(
        &self,
        key: &Key,
        vm: &VirtualMachine,
        tls: &Tls,
        private: String,
        certificate: String,
    ) -> Result<(), Failed> {
        let (from, until) = validity(&certificate).ok_or_else(|| failed("the certificate cannot be read"))?;
        let name = tls_secret_name(&key.name);
        let data = [("tls.key", private), ("tls.crt", certificate)];
        let mut secret = secret_of(vm, &name, "kubernetes.io/tls", data)?;
        secret.metadata.labels.get_or_insert_default().insert(TLS_LABEL.to_owned(), "true".to_owned());
        secret.metadata.annotations = Some(
            [
                (FINGERPRINT.to_owned(), fingerprint(tls)),
                (NOT_BEFORE.to_owned(), from.to_string()),
                (NOT_AFTER.to_owned(), until.to_string()),
            ]
            .into(),
        );
        let api = self.requests.secrets(&key.namespace);
        let what = "the certificate cannot be kept";
        let kept = match self.requests.write(api.create(&posting(), &secret)).await {
            Ok(kept) => kept,
            Err(error) if is_conflict(&error) => {
                if self.own(key, vm, &name).await? == Owner::Foreign {
                    return Err(foreign(&name));
                }
                let meta = json!({"labels": secret.metadata.labels, "annotations": secret.metadata.annotations,
                    "ownerReferences": secret.metadata.owner_references});
                let change = json!({"metadata": meta, "data": secret.data});
                let written =
                    self.requests.write(api.patch(&name, &patching(), &Patch::Merge(&change))).await;
                written.map_err(|error| Failed::api(CertificateFailed, what, &error))?
            }
            Err(error) => return Err(Failed::api(CertificateFailed, what, &error)),
        };
        self.state.cache.set_tls(key, Some(secret_view(&kept.metadata)));
        Ok(())
    }

    /// Owner of the secret with this name.
    async fn own(&self, key: &Key, vm: &VirtualMachine, name: &str) -> Result<Owner, Failed> {
        let found = within(self.requests.secrets(&key.namespace).get_metadata_opt(name)).await;
        let found =
            found.map_err(|error| Failed::api(CertificateFailed, "a secret cannot be looked at", &error))?;
        let Some(found) = found else { return Ok(Owner::Missing) };
        let is_this = |uid: &String| Some(uid) == vm.metadata.uid.as_ref();
        let mut owners = found.metadata.owner_references.iter().flatten();
        if owners.any(|owner| owner.controller == Some(true) && is_this(&owner.uid)) {
            return Ok(Owner::Own { uid: found.metadata.uid });
        }
        Ok(Owner::Foreign)
    }

    /// A key in a separate secret, and a request signed with it.
    async fn request(&self, key: &Key, vm: &VirtualMachine, tls: &Tls, attempt: u32) -> Result<(), Failed> {
        let bad = |error: rcgen::Error| failed(error.to_string());
        let pair = KeyPair::generate().map_err(bad)?;
        let name = server_name(tls, key);
        let mut params = CertificateParams::new(vec![name.clone()]).map_err(bad)?;
        let mut subject = DistinguishedName::new();
        subject.push(DnType::CommonName, name);
        params.distinguished_name = subject;
        let request = params.serialize_request(&pair).and_then(|request| request.pem()).map_err(bad)?;
        let temporary = key_secret_name(&key.name);
        let mut secret = secret_of(vm, &temporary, "Opaque", [("tls.key", pair.serialize_pem())])?;
        secret.metadata.labels.get_or_insert_default().insert(TLS_LABEL.to_owned(), "true".to_owned());
        let made =
            self.requests.write(self.requests.secrets(&key.namespace).create(&posting(), &secret)).await;
        if made.as_ref().is_err_and(is_conflict) {
            return Err(foreign(&temporary));
        }
        let made = made.map_err(|error| Failed::api(CertificateFailed, "the key cannot be kept", &error))?;
        self.state.cache.set_key(key, made.metadata.uid.as_deref().unwrap_or_default());
        let owner = pod::owner(vm).map_err(|error| failed(error.to_string()))?;
        let mut object = DynamicObject::new(&request_name(&key.name), &resource());
        object.metadata.namespace = Some(key.namespace.clone());
        object.metadata.labels = secret.metadata.labels;
        object.metadata.owner_references = Some(vec![owner]);
        object.metadata.annotations = Some(
            [(FINGERPRINT.to_owned(), fingerprint(tls)), (ATTEMPT.to_owned(), attempt.to_string())].into(),
        );
        object.data = json!({"spec": {
            "request": STANDARD.encode(request),
            "duration": format!("{}s", lifetime(tls)),
            "isCA": false,
            "usages": ["digital signature", "key encipherment", "server auth"],
            "issuerRef": {"name": tls.certificate_issuer, "kind": "ClusterIssuer", "group": "cert-manager.io"},
        }});
        let made = self
            .requests
            .write(requests(&self.requests.client, &key.namespace).create(&posting(), &object))
            .await;
        let made = made
            .map_err(|error| Failed::api(CertificateFailed, "the certificate cannot be asked for", &error))?;
        keep(&self.state.cache, &made, true);
        Ok(())
    }

    /// Puts key and certificate together.
    async fn take(&self, key: &Key, vm: &VirtualMachine, tls: &Tls) -> Result<(), Failed> {
        let api_failed =
            |error: kube::Error| Failed::api(CertificateFailed, "the certificate cannot be fetched", &error);
        let request_name = request_name(&key.name);
        let request = within(requests(&self.requests.client, &key.namespace).get(&request_name))
            .await
            .map_err(api_failed)?;
        let key_name = key_secret_name(&key.name);
        if self.own(key, vm, &key_name).await? == Owner::Foreign {
            return Err(foreign(&key_name));
        }
        let secret: Secret =
            within(self.requests.secrets(&key.namespace).get(&key_name)).await.map_err(api_failed)?;
        let encoded = request.data.pointer("/status/certificate").and_then(Value::as_str).unwrap_or_default();
        let certificate = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let private = secret.data.as_ref().and_then(|data| data.get("tls.key"));
        let private = private.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        let (Some(certificate), Some(private)) = (certificate, private) else {
            return Err(failed("the issued certificate or its key cannot be read"));
        };
        self.store(key, vm, tls, private, certificate).await
    }

    async fn discard(&self, key: &Key, vm: &VirtualMachine) -> Result<(), Failed> {
        let what = "a used request cannot be removed";
        let how = DeleteParams::default();
        if self.cert_manager.is_present() {
            let api = requests(&self.requests.client, &key.namespace);
            match self.requests.write(api.delete(&request_name(&key.name), &how)).await {
                Ok(_) => {}
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(Failed::api(CertificateFailed, what, &error)),
            }
        }
        self.state.cache.drop_request(key, None);
        let name = key_secret_name(&key.name);
        // A secret of another VM or owner is not one that we used.
        if let Owner::Own { uid } = self.own(key, vm, &name).await? {
            let this = DeleteParams {
                preconditions: Some(Preconditions { uid, ..Preconditions::default() }),
                ..DeleteParams::default()
            };
            match self.requests.write(self.requests.secrets(&key.namespace).delete(&name, &this)).await {
                Ok(_) => {}
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(Failed::api(CertificateFailed, what, &error)),
            }
        }
        self.state.cache.drop_key(key, None);
        Ok(())
    }
}

fn server_name(tls: &Tls, key: &Key) -> String {
    if tls.server_name.is_empty() { key.name.clone() } else { tls.server_name.clone() }
}
