//! Reaching a cluster. Nothing here is set up before a command needs it.

pub(crate) mod kubeconfig;

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use neonvm_kit::certificate::Validity;
use serde_json::Value;

use crate::error::{Code, Error, Result};
use crate::settings::{Settings, Verbosity};
use crate::trace;

/// A client and what to call its cluster.
#[derive(Clone)]
pub(crate) struct Connection {
    client: Client,
    config: Config,
    /// `https://…`
    pub(crate) server: String,
    limit: Duration,
    /// How to look at this very cluster again.
    again: String,
    namespace: String,
    /// Name of the cluster in the kubeconfig; none within a pod.
    cluster: Option<String>,
    /// What is shown of each request.
    verbosity: Verbosity,
}

pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Error::new(Code::Failed, "cannot start").cause(error.to_string()))?;
    let ended = runtime.block_on(future);
    // A thread that waits for standard input must not keep the process.
    runtime.shutdown_background();
    ended
}

impl Connection {
    pub(crate) async fn open(settings: &Settings) -> Result<Self> {
        let place = settings.place();
        let limit = settings.duration("request-timeout", place.request_timeout.as_deref())?;
        let context = settings.value("context", place.context.as_deref())?;
        let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
        let look = kubeconfig::Look::new(settings)?;
        let refused = |error: &KubeconfigError| look.refused(error);
        let config = match &look.file {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path).map_err(|error| refused(&error))?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| refused(&error))?
            }
            None => match from_default(&options).await {
                Ok(config) => config,
                Err(error) if context.is_some() || !kubeconfig::is_missing(&error) => {
                    return Err(refused(&error));
                }
                // No flag names a cluster, and there is none to be found.
                Err(error) => {
                    Config::incluster().map_err(|_| Error { code: Code::Unreachable, ..refused(&error) })?
                }
            },
        };
        let mut config = config;
        config.auth_info.impersonate.clone_from(&place.as_user);
        match (place.as_group.is_empty(), &place.as_user) {
            (true, _) => {}
            (false, Some(_)) => config.auth_info.impersonate_groups = Some(place.as_group.clone()),
            (false, None) => {
                return Err(Error::new(Code::Usage, "--as-group needs the name of a user")
                    .hint("name the user with --as"));
            }
        }
        let cluster = cluster_name(look.file.as_deref(), context.as_deref());
        let again = context.map(|context| format!(" --context {context}")).unwrap_or_default();
        Ok(Self { cluster, ..Self::with(config, limit, again, settings.verbosity())? })
    }

    pub(crate) async fn local(settings: &Settings, kubeconfig: &Path, limit: Duration) -> Result<Self> {
        let bad = |error: &dyn std::error::Error| {
            chain(Error::new(Code::Failed, format!("cannot use {}", kubeconfig.display())), error)
        };
        let read = Kubeconfig::read_from(kubeconfig).map_err(|error| bad(&error))?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
        Self::with(config.map_err(|error| bad(&error))?, limit, String::new(), settings.verbosity())
    }

    fn with(mut config: Config, limit: Duration, again: String, verbosity: Verbosity) -> Result<Self> {
        config.connect_timeout = Some(limit);
        // Requests have a limit of their own; watches and streams have none.
        config.read_timeout = None;
        let namespace = config.default_namespace.clone();
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = neonvm_kit::client::from_config(config.clone()).map_err(|error| unusable(&error))?;
        let client = trace::traced(client, verbosity);
        Ok(Self { client, config, server, limit, again, namespace, cluster: None, verbosity })
    }

    /// The client, for what is asked and watched.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client for what carries the input of a program.
    pub(crate) fn streams(&self) -> Result<Client> {
        let client =
            neonvm_kit::client::for_streams(self.config.clone()).map_err(|error| unusable(&error))?;
        Ok(trace::traced(client, self.verbosity))
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The result of a request within the time for one; errors begin with what was attempted.
    pub(crate) async fn within<T>(
        &self,
        attempt: &str,
        request: impl Future<Output = std::result::Result<T, kube::Error>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.limit, request).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(kube::Error::Api(status))) => Err(of_status(
                Error::new(code_of(status.code), attempt).cause(status.message.clone()),
                status.code,
            )),
            Ok(Err(error)) => Err(chain(self.failed(attempt), &error)),
            Err(_) => Err(self.failed(attempt).cause(format!("no response within {:?}", self.limit))),
        }
    }

    fn failed(&self, attempt: &str) -> Error {
        let unreachable = self.unreachable();
        Error { message: attempt.to_owned(), causes: vec![unreachable.message.clone()], ..unreachable }
    }

    pub(crate) async fn text(&self, path: &str) -> Result<String> {
        let request = http::Request::get(path).body(Vec::new());
        self.send(path, request).await
    }

    pub(crate) async fn json(&self, path: &str) -> Result<Value> {
        parse(path, &self.text(path).await?)
    }

    pub(crate) fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// The response to a request with a body, which is JSON, or to one without.
    pub(crate) async fn request(
        &self,
        method: http::Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let kind =
            if method == http::Method::PATCH { "application/apply-patch+yaml" } else { "application/json" };
        let text = body.map(Value::to_string).unwrap_or_default();
        let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
        parse(path, &self.send(path, request.body(text.into_bytes())).await?)
    }

    async fn send(&self, path: &str, request: http::Result<http::Request<Vec<u8>>>) -> Result<String> {
        let request =
            request.map_err(|error| Error::new(Code::Failed, "bad request").cause(error.to_string()))?;
        match tokio::time::timeout(self.limit, self.client.request_text(request)).await {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(kube::Error::Api(status))) => {
                let code = code_of(status.code);
                let error = Error::new(code, format!("{} rejected {path}", self.server));
                Err(of_status(error.cause(status.message.clone()), status.code))
            }
            Ok(Err(error)) => Err(chain(self.unreachable(), &error)),
            Err(_) => Err(self.unreachable().cause(format!("no response within {:?}", self.limit))),
        }
    }

    fn unreachable(&self) -> Error {
        if self.has_expired() {
            let text = format!("the client certificate of the kubeconfig for {} has expired", self.server);
            let name = self.cluster().unwrap_or("NAME");
            return Error::new(Code::Denied, text)
                .hint(format!("renew that of a local cluster: neonctl local up --name {name}"));
        }
        Error::new(Code::Unreachable, format!("cannot reach {}", self.server))
            .hint(format!("is the cluster running?  neonctl local list, neonctl status{}", self.again))
    }
}

impl Connection {
    /// Whether the client certificate has ended, by the clock of this host.
    fn has_expired(&self) -> bool {
        let data = self.config.auth_info.client_certificate_data.as_ref();
        let pem = data.and_then(|data| String::from_utf8(STANDARD.decode(data).ok()?).ok());
        pem.and_then(|pem| Validity::last(&pem)).is_some_and(|validity| validity.until < Validity::now())
    }
}

fn cluster_name(file: Option<&str>, context: Option<&str>) -> Option<String> {
    let config = kubeconfig::read(file).ok()?;
    let name = context.map(str::to_owned).or(config.current_context)?;
    let found = config.contexts.into_iter().find(|context| context.name == name)?;
    Some(found.context?.cluster)
}

/// The configuration that `KUBECONFIG` or the default path has.
async fn from_default(options: &KubeConfigOptions) -> std::result::Result<Config, KubeconfigError> {
    Config::from_custom_kubeconfig(kubeconfig::read(None)?, options).await
}

fn unusable(error: &kube::Error) -> Error {
    chain(Error::new(Code::Usage, "cannot use the kubeconfig"), error)
}

pub(crate) fn code_of(status: u16) -> Code {
    match status {
        401 | 403 => Code::Denied,
        404 => Code::NotFound,
        409 => Code::Conflict,
        400 | 422 => Code::Usage,
        _ => Code::Failed,
    }
}

fn of_status(error: Error, status: u16) -> Error {
    match status {
        401 => error.hint("the server does not accept the credentials of the kubeconfig: renew them, or choose another --context"),
        // The text of the API server about a webhook that does not answer.
        500.. if error.causes.iter().any(|cause| cause.contains("failed calling webhook")) => {
            error.hint("until the service behind this webhook answers, such objects cannot be created or changed: neonctl status")
        }
        _ => error,
    }
}

fn parse(path: &str, text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| {
        Error::new(Code::Failed, format!("the response to {path} is not JSON")).cause(error.to_string())
    })
}

/// Adds the innermost causes of a library's error, each once, without the numbers of libraries.
pub(crate) fn chain(mut error: Error, source: &dyn std::error::Error) -> Error {
    let mut next = Some(source);
    let mut texts: Vec<String> = Vec::new();
    while let Some(current) = next {
        let text = current.to_string();
        // Parsers show the text on further lines.
        let first = text.lines().next().unwrap_or_default();
        let text = match first.split(" (os error").next().unwrap_or_default() {
            // The TLS library prints this as debug output, for the client's certificate and for the server's.
            old if old.contains("UnsupportedCertVersion") => {
                "a certificate of the kubeconfig or of the server is not of X.509 version 3".to_owned()
            }
            text => text.to_lowercase(),
        };
        // Outer texts of libraries repeat the inner ones.
        texts.retain(|known| !known.contains(&text));
        texts.push(text);
        next = current.source();
    }
    error.causes.extend(texts.into_iter().rev().take(2).collect::<Vec<_>>().into_iter().rev());
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unknown_users_are_sent_for_credentials() {
        let hint = |status| of_status(Error::new(code_of(status), "x"), status).hint;
        assert!(hint(401).unwrap().contains("credentials"));
        assert_eq!((hint(403), hint(404), hint(500)), (None, None, None));
        let cause = "Internal error occurred: failed calling webhook \"mvirtualmachine.kb.io\": no endpoints available";
        let error = of_status(Error::new(Code::Failed, "cannot create VM").cause(cause), 500);
        assert!(error.hint.unwrap().contains("neonctl status"));
    }

    #[test]
    fn an_old_certificate_is_named_without_debug_output() {
        let source =
            std::io::Error::other("invalid peer certificate: Other(OtherError(UnsupportedCertVersion))");
        let error = chain(Error::new(Code::Usage, "cannot use the kubeconfig"), &source);
        assert_eq!(
            error.causes,
            ["a certificate of the kubeconfig or of the server is not of X.509 version 3"]
        );
    }
}
