//! Who calls the webhooks. An API server shows a client certificate where its admission configuration names one, and the one of a
//! local cluster always does. Where a flag says which, nobody else gets an answer. Where none does, nobody is proved: then a
//! webhook has no effect but its answer, and a request for an eviction is verified against the API before anything is done.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, StatusCode};
use neonvm_kit::http::{Admitted, MAX_BODY, Peer, SMALL_BODY, refuse};

use super::{PATHS, eviction};
use crate::config::WebhookClient;

/// Names of the certificates that prove a caller; none: callers are not proved.
#[derive(Clone, Debug)]
pub(super) struct Proof(Option<Arc<[String]>>);

impl Proof {
    pub(super) fn new(client: Option<&WebhookClient>) -> Self {
        Self(client.map(|client| client.names.as_slice().into()))
    }

    /// Whether a peer, whose certificate TLS has verified, is the API server.
    pub(super) fn is_proved(&self, peer: &Peer) -> bool {
        self.0.as_ref().is_some_and(|names| names.contains(&peer.common_name))
    }

    /// Who may send a review, and how long it may be.
    pub(super) fn admit(&self, head: &Parts) -> Admitted {
        let refused = |status, why: &'static str| refuse(status, "text/plain", why);
        if self.0.is_some() && !Peer::of(&head.extensions).known {
            let why = "show the API server's client certificate (--webhook-client-ca-file, --webhook-client-name)\n";
            return refused(StatusCode::FORBIDDEN, why);
        }
        let path = head.uri.path();
        let most = if path == eviction::PATH {
            SMALL_BODY
        } else if PATHS.iter().any(|(known, ..)| *known == path) {
            MAX_BODY
        } else {
            return refused(StatusCode::NOT_FOUND, "not found\n");
        };
        if head.method != Method::POST {
            return refused(StatusCode::METHOD_NOT_ALLOWED, "only POST\n");
        }
        Ok(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(method: &str, path: &str, known: bool) -> Parts {
        let peer = Peer { tls: true, known, ..Peer::default() };
        http::Request::builder().method(method).uri(path).extension(peer).body(()).unwrap().into_parts().0
    }

    /// H1, H5: who is not the API server is refused from the head, where that can be known.
    #[test]
    fn only_the_api_server_is_read_where_it_shows_who_it_is() {
        let client = WebhookClient { authority: "ca.crt".into(), names: vec!["apiserver".into()] };
        let (strict, open) = (Proof::new(Some(&client)), Proof::new(None));
        let named = |name: &str| Peer { common_name: name.to_owned(), ..Peer::default() };
        assert!(strict.is_proved(&named("apiserver")));
        assert!(!strict.is_proved(&named("someone")) && !strict.is_proved(&named("")));
        assert!(!open.is_proved(&named("apiserver")) && !open.is_proved(&named("")));
        let status =
            |proof: &Proof, head: &Parts| proof.admit(head).map_err(|answer| answer.status().as_u16());
        let reviews = PATHS[0].0;
        for path in [reviews, eviction::PATH, "/other"] {
            assert_eq!(status(&strict, &head("POST", path, false)), Err(403), "{path}");
        }
        for (proof, known) in [(&strict, true), (&open, false)] {
            assert_eq!(status(proof, &head("POST", reviews, known)), Ok(MAX_BODY));
            assert_eq!(status(proof, &head("POST", eviction::PATH, known)), Ok(SMALL_BODY));
            assert_eq!(status(proof, &head("GET", eviction::PATH, known)), Err(405));
            assert_eq!(status(proof, &head("POST", "/other", known)), Err(404));
        }
    }
}
