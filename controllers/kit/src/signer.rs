//! The signer `vm.neon.tech/internal`: answers certificate requests with the internal authority, by [`rules`].
//!
//! Only the leader runs it. Decided requests are left to the API server, which removes them after an hour.

pub mod rules;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestStatus,
};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Client, Error as ApiError, ResourceExt as _};
use neonvm_api::lifetimes::Lifetimes;
use serde_json::json;

use crate::authority::Current;
use crate::ca::Request;
use crate::queue::{Outcome, Queue};
use crate::signer::rules::{Asked, Denial, Grant, INSPECT, OPERATOR_SIGNER, SIGNER, Verdict, judge};
use crate::watch::{Listed, each};

/// Requests that are answered at the same time.
const AT_ONCE: usize = 4;
const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

/// Answers requests.
#[derive(Clone)]
pub struct Signer {
    client: Client,
    namespace: String,
    manager: &'static str,
    authority: Current,
    /// Longest life of what is signed, in seconds.
    longest: i64,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Signer {
    /// A signer for the services of a namespace; `manager` is its field manager. No certificate lives longer than one of `lifetimes`.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: &str,
        (authority, lifetimes): (Current, &Lifetimes),
        manager: &'static str,
    ) -> Self {
        let longest = lifetimes.certificate();
        Self { client, namespace: namespace.to_owned(), manager, authority, longest }
    }

    /// Watches requests and answers them; never returns.
    pub async fn serve(self) {
        let queue: Queue<String> = Queue::new();
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let config = watcher::Config::default().fields(&format!("spec.signerName={SIGNER}"));
        let listed = Listed::new(0);
        let watching = each("certificate requests", api, config, (&listed, false), |event| match event {
            watcher::Event::InitApply(request) | watcher::Event::Apply(request) if is_open(&request) => {
                queue.add(&request.name_any());
            }
            _ => {}
        });
        let answering = queue.serve(AT_ONCE, |name| {
            let signer = self.clone();
            async move {
                match signer.answer(&name).await {
                    Ok(()) => Outcome::Gone,
                    Err(error) => {
                        tracing::warn!(%error, request = name, "a certificate request cannot be answered");
                        Outcome::Failed
                    }
                }
            }
        });
        tokio::select! {
            () = watching => {}
            () = answering => {}
        }
    }

    async fn answer(&self, name: &str) -> Result<(), ApiError> {
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let Some(request) = api.get_opt(name).await?.filter(is_open) else { return Ok(()) };
        let (asked, key) = match read(&request) {
            Ok(read) => read,
            Err(why) => return self.refuse(&request, &Denial { rule: "requests", why }).await,
        };
        let verdict = match judge(&self.namespace, &asked) {
            Verdict::IfOperator(_) if !self.is_operator(&request).await? => {
                Verdict::Deny(rules::not_an_operator(&asked.username))
            }
            verdict => verdict,
        };
        match verdict {
            Verdict::Grant(grant) | Verdict::IfOperator(grant) => self.sign(&request, &key, &grant).await,
            Verdict::Deny(denial) => self.refuse(&request, &denial).await,
        }
    }

    /// Whether the requester has the right of operators.
    async fn is_operator(&self, request: &CertificateSigningRequest) -> Result<bool, ApiError> {
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let spec = &request.spec;
        let attributes = ResourceAttributes {
            group: Some("certificates.k8s.io".to_owned()),
            resource: Some("signers".to_owned()),
            name: Some(OPERATOR_SIGNER.to_owned()),
            verb: Some(INSPECT.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: spec.username.clone(),
            uid: spec.uid.clone(),
            groups: spec.groups.clone(),
            extra: spec.extra.clone(),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answered = api.create(&PostParams::default(), &review).await?;
        Ok(answered.status.is_some_and(|status| status.allowed))
    }

    async fn sign(
        &self,
        request: &CertificateSigningRequest,
        key: &Request,
        grant: &Grant,
    ) -> Result<(), ApiError> {
        let seconds = grant.seconds.min(self.longest);
        let certificate = match self.authority.get().sign_request(key, &grant.subject, seconds) {
            Ok(certificate) => certificate,
            Err(error) => {
                let why = format!("the key cannot be signed: {error}");
                return self.refuse(request, &Denial { rule: "keys", why }).await;
            }
        };
        let subject = &grant.subject.common_name;
        let mut version = request.resource_version();
        if !has(request, APPROVED) {
            let message = format!("{subject}, for {seconds} s");
            let conditions = with(request, APPROVED, "Rule", &message);
            version = self.write(request, version, "approval", json!({ "conditions": conditions })).await?;
        }
        let certificate = ByteString(certificate.into_bytes());
        self.write(request, version, "status", json!({ "certificate": certificate })).await?;
        tracing::info!(request = request.name_any(), subject, "a certificate was signed");
        Ok(())
    }

    /// Denies a request; one that another client has approved fails instead.
    async fn refuse(&self, request: &CertificateSigningRequest, denial: &Denial) -> Result<(), ApiError> {
        tracing::warn!(request = request.name_any(), %denial, "a certificate request is denied");
        let (kind, subresource) =
            if has(request, APPROVED) { (FAILED, "status") } else { (DENIED, "approval") };
        let conditions = with(request, kind, "Rule", &denial.to_string());
        let status = json!({ "conditions": conditions });
        self.write(request, request.resource_version(), subresource, status).await.map(drop)
    }

    /// Writes a part of the status, unless another client has changed the request; its new version.
    async fn write(
        &self,
        request: &CertificateSigningRequest,
        version: Option<String>,
        subresource: &str,
        status: serde_json::Value,
    ) -> Result<Option<String>, ApiError> {
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let change = Patch::Merge(json!({ "metadata": { "resourceVersion": version }, "status": status }));
        let how = PatchParams { field_manager: Some(self.manager.to_owned()), ..PatchParams::default() };
        let written = api.patch_subresource(subresource, &request.name_any(), &how, &change).await?;
        Ok(written.resource_version())
    }
}

fn conditions(request: &CertificateSigningRequest) -> &[CertificateSigningRequestCondition] {
    request.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

fn has(request: &CertificateSigningRequest, kind: &str) -> bool {
    conditions(request).iter().any(|condition| condition.type_ == kind)
}

/// Whether there is something to do.
fn is_open(request: &CertificateSigningRequest) -> bool {
    let signed = |status: &CertificateSigningRequestStatus| status.certificate.is_some();
    request.spec.signer_name == SIGNER
        && !has(request, DENIED)
        && !has(request, FAILED)
        && !request.status.as_ref().is_some_and(signed)
}

/// The conditions, and one more.
fn with(
    request: &CertificateSigningRequest,
    kind: &str,
    reason: &str,
    message: &str,
) -> Vec<CertificateSigningRequestCondition> {
    let mut all = conditions(request).to_vec();
    all.push(CertificateSigningRequestCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..CertificateSigningRequestCondition::default()
    });
    all
}

/// The requester, what it requests, and the key that is to be signed.
fn read(request: &CertificateSigningRequest) -> Result<(Asked, Request), String> {
    let spec = &request.spec;
    let pem = std::str::from_utf8(&spec.request.0).map_err(|error| error.to_string())?;
    let key = Request::parse(pem).map_err(|error| error.to_string())?;
    let extra: BTreeMap<String, Vec<String>> = spec.extra.clone().unwrap_or_default();
    let asked = Asked {
        username: spec.username.clone().unwrap_or_default(),
        groups: spec.groups.clone().unwrap_or_default(),
        extra,
        usages: spec.usages.clone().unwrap_or_default(),
        common_name: key.common_name(),
        seconds: spec.expiration_seconds.map(i64::from),
    };
    Ok((asked, key))
}
