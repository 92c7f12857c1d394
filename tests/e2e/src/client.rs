//! A small blocking client of the Kubernetes API, so that tests need no `kubectl`.

mod drain;
mod exec;
mod resource;

use std::path::PathBuf;
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};

pub use self::drain::Drain;
pub use self::exec::Executed;
pub use self::resource::Resource;

/// Time for the answer to a request. A server that emulates guests beside it may be slow.
const ANSWER: Duration = Duration::from_secs(60);
/// Name under which fields are applied.
const MANAGER: &str = "neonvm-e2e";
/// Media type of documents to apply; JSON is YAML.
const APPLY: &str = "application/apply-patch+yaml";
const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused it.
    #[error("{message} ({code})")]
    Refused {
        /// The HTTP status code.
        code: u16,
        /// Why.
        message: String,
    },
    /// The kubeconfig cannot be used.
    #[error("no client")]
    Connect(#[from] neonvm_kit::client::Error),
    /// There was no answer, or an invalid one.
    #[error("no valid answer: {0}")]
    Request(#[source] kube::Error),
    /// There was no answer in time.
    #[error("no answer within {} s", ANSWER.as_secs())]
    Late,
    /// An object or document that cannot be sent.
    #[error("invalid document: {0}")]
    Document(String),
    /// The client itself.
    #[error("no runtime: {0}")]
    Runtime(#[from] std::io::Error),
}

impl Error {
    /// Whether the server refused with this HTTP status code.
    #[must_use]
    pub const fn is(&self, status: u16) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == status)
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused { code: status.code, message: status.message },
            other => Self::Request(other),
        }
    }
}

/// A client of one cluster. Each call has a connection of its own: a server that was killed and started again between two calls
/// is not noticed.
#[derive(Clone, Debug)]
pub struct KubeClient {
    kubeconfig: PathBuf,
    namespace: String,
}

impl KubeClient {
    /// A client for the namespace `default`. Nothing is read or sent yet.
    #[must_use]
    pub fn new(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig, namespace: "default".to_owned() }
    }

    /// The same for another namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self }
    }

    /// An object.
    ///
    /// # Errors
    /// If it is not there (404), or the request failed.
    pub fn get(&self, resource: Resource, name: &str) -> Result<Value, Error> {
        self.send(Method::GET, &resource.path(&self.namespace, name), None)
    }

    /// All objects.
    ///
    /// # Errors
    /// If the request failed.
    pub fn list(&self, resource: Resource) -> Result<Vec<Value>, Error> {
        self.select(resource, "")
    }

    /// Objects with a label, such as `app=web`.
    ///
    /// # Errors
    /// If the request failed.
    pub fn list_labelled(&self, resource: Resource, label: &str) -> Result<Vec<Value>, Error> {
        self.select(resource, &format!("?labelSelector={}", escape(label)))
    }

    /// Objects with a value in a field, such as `spec.nodeName=n1`.
    ///
    /// # Errors
    /// If the request failed.
    pub fn list_with_field(&self, resource: Resource, field: &str) -> Result<Vec<Value>, Error> {
        self.select(resource, &format!("?fieldSelector={}", escape(field)))
    }

    fn select(&self, resource: Resource, query: &str) -> Result<Vec<Value>, Error> {
        let path = format!("{}{query}", resource.collection(&self.namespace));
        let mut list = self.send(Method::GET, &path, None)?;
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            other => Err(Error::Document(format!("a list without items: {other:?}"))),
        }
    }

    /// Applies all documents of a text, YAML or JSON, server-side and strictly; returns the objects as they are then.
    ///
    /// # Errors
    /// If a document is invalid or refused; those before it are applied.
    pub fn apply(&self, text: &str) -> Result<Vec<Value>, Error> {
        documents(text)?.iter().map(|object| self.apply_object(object)).collect()
    }

    fn apply_object(&self, object: &Value) -> Result<Value, Error> {
        let (resource, name) = Resource::from_object(object)?;
        let query = format!("?fieldManager={MANAGER}&force=true&fieldValidation=Strict");
        let path = format!("{}{query}", resource.path(&self.namespace, name));
        self.send(Method::PATCH, &path, Some((APPLY, object)))
    }

    /// Creates the documents of a text, and lays each over the object that is there already: what `kubectl apply` does without
    /// `--server-side`, except that fields which left the text stay. The types of fields are not checked against the schema
    /// before the webhooks have normalised them.
    ///
    /// # Errors
    /// If a document is invalid or refused; those before it are applied.
    pub fn create_or_merge(&self, text: &str) -> Result<Vec<Value>, Error> {
        let put = |object: &Value| match self.create(object) {
            Err(error) if error.is(409) => {
                let (resource, name) = Resource::from_object(object)?;
                self.merge(resource, name, object)
            }
            other => other,
        };
        documents(text)?.iter().map(put).collect()
    }

    /// Creates an object.
    ///
    /// # Errors
    /// If there is one of this name (409), or the request failed.
    pub fn create(&self, object: &Value) -> Result<Value, Error> {
        let (resource, _) = Resource::from_object(object)?;
        let path = resource.collection(&self.namespace);
        self.send(Method::POST, &path, Some(("application/json", object)))
    }

    /// Lays a change over an object (RFC 7396).
    ///
    /// # Errors
    /// If it is refused, or the request failed.
    pub fn merge(&self, resource: Resource, name: &str, change: &Value) -> Result<Value, Error> {
        let path = resource.path(&self.namespace, name);
        self.send(Method::PATCH, &path, Some((MERGE_PATCH, change)))
    }

    /// Changes an object by operations (RFC 6902).
    ///
    /// # Errors
    /// If they are refused, or the request failed.
    pub fn json_patch(&self, resource: Resource, name: &str, operations: &Value) -> Result<Value, Error> {
        let path = resource.path(&self.namespace, name);
        self.send(Method::PATCH, &path, Some((JSON_PATCH, operations)))
    }

    /// Sets annotations.
    ///
    /// # Errors
    /// If the request failed.
    pub fn annotate(
        &self,
        resource: Resource,
        name: &str,
        annotations: &[(&str, &str)],
    ) -> Result<(), Error> {
        let map: serde_json::Map<String, Value> =
            annotations.iter().map(|&(key, value)| (key.to_owned(), value.into())).collect();
        self.merge(resource, name, &json!({ "metadata": { "annotations": map } })).map(drop)
    }

    /// Deletes an object, with its own grace period or with this one, in seconds. It does not wait until the object is gone.
    ///
    /// # Errors
    /// If it is not there (404), or the request failed.
    pub fn delete(&self, resource: Resource, name: &str, grace: Option<u32>) -> Result<(), Error> {
        let path = resource.path(&self.namespace, name);
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace });
        self.send(Method::DELETE, &path, Some(("application/json", &options))).map(drop)
    }

    /// Closes a node to new pods.
    ///
    /// # Errors
    /// If the request failed.
    pub fn cordon(&self, node: &str) -> Result<(), Error> {
        self.merge(Resource::NODE, node, &json!({ "spec": { "unschedulable": true } })).map(drop)
    }

    /// Opens a node again.
    ///
    /// # Errors
    /// If the request failed.
    pub fn uncordon(&self, node: &str) -> Result<(), Error> {
        self.merge(Resource::NODE, node, &json!({ "spec": { "unschedulable": null } })).map(drop)
    }

    /// What the only container of a pod has written.
    ///
    /// # Errors
    /// If the request failed.
    pub fn logs(&self, pod: &str) -> Result<String, Error> {
        let path = format!("{}/log", Resource::POD.path(&self.namespace, pod));
        self.run(async |client| Ok(client.request_text(request(Method::GET, &path, None)?).await?))
    }

    fn send(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> Result<Value, Error> {
        let request = request(method, path, body)?;
        self.run(async |client| Ok(client.request::<Value>(request).await?))
    }

    /// Runs an operation to its end on a runtime and a connection of its own.
    fn run<T>(&self, operation: impl AsyncFnOnce(Client) -> Result<T, Error>) -> Result<T, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = neonvm_kit::client::connect_without_retries(Some(&self.kubeconfig)).await?;
            tokio::time::timeout(ANSWER, operation(client)).await.map_err(|_| Error::Late)?
        })
    }
}

fn request(method: Method, path: &str, body: Option<(&str, &Value)>) -> Result<Request<Vec<u8>>, Error> {
    let builder = Request::builder().method(method).uri(path);
    let built = match body {
        Some((media, value)) => {
            builder.header(http::header::CONTENT_TYPE, media).body(value.to_string().into_bytes())
        }
        None => builder.body(Vec::new()),
    };
    built.map_err(|error| Error::Document(error.to_string()))
}

/// The documents of a text.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, Error> {
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(vec![value]);
    }
    let all: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| Error::Document(error.to_string()))?;
    Ok(all.into_iter().filter(|document| !document.is_null()).collect())
}

/// A value in a query.
fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn files_have_several_documents() {
        let text = "# a comment\n---\napiVersion: v1\nkind: A\n---\napiVersion: v1\nkind: B\n";
        let kinds: Vec<Value> = documents(text).unwrap().into_iter().map(|one| one["kind"].clone()).collect();
        assert_eq!(kinds, ["A", "B"]);
        assert_eq!(documents(r#"{"kind": "C"}"#).unwrap(), [json!({ "kind": "C" })]);
    }

    #[test]
    fn selectors_are_escaped() {
        assert_eq!(escape("vm.neon.tech/name=a b"), "vm.neon.tech/name%3Da%20b");
    }
}
