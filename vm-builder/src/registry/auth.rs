//! Logging in: answers to challenges, and tokens from token services.

use http::header::AUTHORIZATION;
use http::{HeaderValue, Method};
use neonvm_types::objects;
use reqwest::Url;
use serde::Deserialize;

use super::challenge::Challenge;
use super::client::{Client, Scope, read_body};
use super::credentials::Credentials;
use super::failure::Report;
use crate::reference::is_loopback;
use crate::source::Error;

/// Largest answer of a token service, in bytes.
const TOKEN_LIMIT: u64 = 1 << 20;

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

impl Client<'_> {
    /// What to send as `Authorization` after a challenge.
    pub(super) async fn authorization(
        &self,
        scope: Scope,
        challenge: Option<Challenge>,
    ) -> Result<HeaderValue, Error> {
        match challenge {
            None => Err(self.refused("it asks for a login in no way that is supported".into())),
            Some(Challenge::Basic) => match &self.found.credentials {
                Credentials::Password(login) => Ok(basic(&login.username, &login.password)),
                Credentials::Anonymous => Err(self.refused(self.found.origin.clone())),
                Credentials::IdentityToken(_) => {
                    Err(self.refused(format!("{} is a token, but it wants a password", self.found.origin)))
                }
            },
            Some(Challenge::Bearer { realm, service, scope: asked }) => {
                let scope = asked.filter(|text| !text.is_empty()).unwrap_or_else(|| self.scope_text(scope));
                let token = self.token(&realm, service.as_deref(), &scope).await?;
                let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                    .map_err(|_| self.protocol("its token service gives a token of invalid characters"))?;
                value.set_sensitive(true);
                Ok(value)
            }
        }
    }

    fn scope_text(&self, scope: Scope) -> String {
        let actions = match scope {
            Scope::Pull => "pull",
            Scope::Push => "pull,push",
        };
        format!("repository:{}:{actions}", self.repository)
    }

    async fn token(&self, realm: &str, service: Option<&str>, scope: &str) -> Result<String, Error> {
        let mut url =
            Url::parse(realm).map_err(|_| self.protocol("the address of its token service is invalid"))?;
        // A password must not go over a line that the registry itself does not use.
        let near = url.host_str().is_some_and(is_loopback);
        if url.scheme() != "https" && !(url.scheme() == "http" && (self.is_plain() || near)) {
            return Err(self.protocol("its token service has no TLS"));
        }
        let request = match &self.found.credentials {
            Credentials::IdentityToken(refresh) => {
                let mut form = Url::parse("form:").map_err(|error| self.protocol(&error.to_string()))?;
                form.query_pairs_mut()
                    .append_pair("grant_type", "refresh_token")
                    .append_pair("service", service.unwrap_or_default())
                    .append_pair("client_id", "neonvm")
                    .append_pair("scope", scope)
                    .append_pair("refresh_token", refresh);
                let body = form.query().unwrap_or_default().to_owned();
                self.http
                    .request(Method::POST, url)
                    .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(body)
            }
            other => {
                let mut query = url.query_pairs_mut();
                if let Some(service) = service {
                    query.append_pair("service", service);
                }
                for part in scope.split(' ') {
                    query.append_pair("scope", part);
                }
                if let Credentials::Password(login) = other {
                    query.append_pair("account", &login.username);
                }
                drop(query);
                let request = self.http.request(Method::GET, url);
                match other {
                    Credentials::Password(login) => {
                        request.header(AUTHORIZATION, basic(&login.username, &login.password))
                    }
                    _ => request,
                }
            }
        };
        let response = self.attempt("token", || {
            request.try_clone().ok_or_else(|| self.protocol("request cannot be repeated"))
        });
        let response = response.await?;
        let status = response.status();
        let body = read_body(response, TOKEN_LIMIT, self.network.stall).await;
        let body = body.map_err(|error| self.broken("token", 1, &error))?;
        if matches!(status.as_u16(), 400 | 401 | 403 | 404) {
            let detail = Report::parse(&body).message().map(|text| format!(" ({text})")).unwrap_or_default();
            return Err(self.refused(match self.found.credentials {
                Credentials::Anonymous => format!("{}{detail}", self.found.origin),
                _ => format!("its token service does not accept {}{detail}", self.found.origin),
            }));
        }
        if !status.is_success() {
            return Err(self.answered(status, "the request for a token", &body, None));
        }
        let token: Token = objects::from_slice(&body)
            .map_err(|_| self.protocol("its token service does not answer with a token"))?;
        let token = if token.token.is_empty() { token.access_token } else { token.token };
        if token.is_empty() {
            return Err(self.protocol("its token service answers without a token"));
        }
        Ok(token)
    }

    /// The error for credentials that are missing or refused.
    pub(super) fn refused(&self, reason: String) -> Error {
        Error::Unauthorized { registry: self.registry.clone(), repository: self.repository.clone(), reason }
    }
}

fn basic(username: &str, password: &str) -> HeaderValue {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
    // Base64 is always valid in a header.
    let mut value =
        HeaderValue::from_str(&format!("Basic {text}")).unwrap_or(HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}
