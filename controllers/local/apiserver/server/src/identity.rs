//! The identity of a client: a client certificate, a bearer token, or anonymous.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use neonvm_apiserver_engine::access::Attributes;
use neonvm_apiserver_engine::context::User;
use neonvm_apiserver_engine::status::{ApiError, Subject};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::state::State;
use crate::token::Tokens;

#[derive(Debug)]
pub(crate) enum Refused {
    Unauthorized,
    /// Another user's name was used without the right to.
    Impersonation(ApiError),
}

/// The user of a client certificate that TLS has verified: common name, organisations as groups.
pub(crate) fn of_certificate(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<String> =
        subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
    groups.push("system:authenticated".into());
    Some(User { name, groups, ..User::default() })
}

/// The user of a request. A token counts before a certificate; a wrong one is refused even where a certificate is
/// there, as on a real server.
pub(crate) fn of_request(
    state: &State,
    tokens: &Tokens,
    certificate: Option<&Arc<User>>,
    headers: &HeaderMap,
) -> Result<Arc<User>, Refused> {
    let user = match headers.get(AUTHORIZATION) {
        Some(value) => {
            let text = value.to_str().map_err(|_| Refused::Unauthorized)?;
            let token = text.strip_prefix("Bearer ").map(str::trim);
            match token {
                Some(token) if !token.is_empty() => {
                    let now = jiff::Timestamp::now();
                    let checked = state.with(|engine| tokens.check(engine, token, &[], now));
                    Arc::new(checked.map_err(|_| Refused::Unauthorized)?.user)
                }
                _ => fallback(certificate),
            }
        }
        None => fallback(certificate),
    };
    impersonated(state, user, headers)
}

fn fallback(certificate: Option<&Arc<User>>) -> Arc<User> {
    certificate.map_or_else(|| Arc::new(User::anonymous()), Arc::clone)
}

/// `kubectl --as`: allowed to users that may `impersonate` that user and those groups.
fn impersonated(state: &State, user: Arc<User>, headers: &HeaderMap) -> Result<Arc<User>, Refused> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("").to_owned();
    let name = text("impersonate-user");
    if name.is_empty() {
        return Ok(user);
    }
    let groups: Vec<String> = headers
        .get_all("impersonate-group")
        .iter()
        .filter_map(|v| v.to_str().ok())
        .map(str::to_owned)
        .collect();
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    match account {
        Some((namespace, account)) => may_be(state, &user, "serviceaccounts", account, namespace)?,
        None => may_be(state, &user, "users", &name, "")?,
    }
    for group in &groups {
        may_be(state, &user, "groups", group, "")?;
    }
    let mut groups = groups;
    if let Some((namespace, _)) = account {
        groups.push("system:serviceaccounts".into());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups.push("system:authenticated".into());
    Ok(Arc::new(User { name, groups, ..User::default() }))
}

fn may_be(state: &State, user: &User, resource: &str, name: &str, namespace: &str) -> Result<(), Refused> {
    let wanted = Attributes { verb: "impersonate", resource, name, namespace, ..Attributes::from_user(user) };
    if state.with(|engine| engine.may(&wanted)) {
        return Ok(());
    }
    let subject = Subject { group: "", resource, name };
    Err(Refused::Impersonation(ApiError::forbidden(subject, &wanted.refusal())))
}
