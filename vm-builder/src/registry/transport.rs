//! The HTTP client: TLS by rustls with ring, deadlines, redirections.

use reqwest::{Certificate, redirect};

use crate::cache::read_limited;
use crate::source::{Error, Network};

/// Most redirections of a request.
const REDIRECTIONS: usize = 10;

/// A client. `near`: the registry is on this machine, where no proxy is of use. `uploads`: an answer comes only after
/// all was sent, which may take long, so that the sender itself must watch for a stall.
pub(super) fn client(network: &Network, near: bool, uploads: bool) -> Result<reqwest::Client, Error> {
    // Fails only if there is one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let setting = |setting, value: String, problem: String| Error::Setting { setting, value, problem };
    let certificates = match &network.ca_file {
        None => Vec::new(),
        Some(path) => {
            let wrong = |problem| setting("CA file", path.display().to_string(), problem);
            let pem = read_limited(path, 16 << 20).map_err(|error| Error::io("read", path, error))?;
            let found = Certificate::from_pem_bundle(&pem).map_err(|error| wrong(error.to_string()))?;
            if found.is_empty() {
                return Err(wrong("it holds no certificate in PEM form".into()));
            }
            found
        }
    };
    let builder = || {
        let builder = reqwest::Client::builder()
            .user_agent(concat!("neonvm/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(network.connect)
            .redirect(redirect::Policy::custom(follow));
        let builder = if uploads { builder } else { builder.read_timeout(network.stall) };
        if near { builder.no_proxy() } else { builder }
    };
    // On a machine without any certificate, those of the system cannot be loaded; registries without TLS, or with
    // the given one, still can be used.
    builder()
        .tls_certs_merge(certificates.clone())
        .build()
        .or_else(|_| builder().tls_certs_only(certificates).build())
        .map_err(|error| setting("TLS", String::new(), error.to_string()))
}

/// Registries send us to where the layers are. Never from TLS to a line without it.
fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let was_secure = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
    if was_secure && attempt.url().scheme() != "https" {
        return attempt.error("it redirects from TLS to plain HTTP");
    }
    if attempt.previous().len() > REDIRECTIONS {
        return attempt.error("it redirects too often");
    }
    attempt.follow()
}
