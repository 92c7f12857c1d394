//! Commands in containers.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{Api, AttachParams};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::{Error, KubeClient};

/// What a command in a container printed, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Its exit code; `None` if the container ended first, or the command could not be started.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Why it did not succeed, if it did not.
    pub message: String,
}

impl KubeClient {
    /// Runs a command in the only container of a pod.
    ///
    /// # Errors
    /// If the connection cannot be made. How the command ended is not an error.
    pub fn exec(&self, pod: &str, command: &[&str]) -> Result<Executed, Error> {
        self.run(async |client| {
            let pods: Api<Pod> = Api::namespaced(client, &self.namespace);
            let mut process = pods.exec(pod, command.iter().copied(), &AttachParams::default()).await?;
            let status = process.take_status();
            let (stdout, stderr) = (process.stdout(), process.stderr());
            let (stdout, stderr) = tokio::join!(read(stdout), read(stderr));
            let status = match status {
                Some(status) => status.await,
                None => None,
            };
            let code = status.as_ref().and_then(exit_code);
            let message = status.map_or_else(|| Some("no status".to_owned()), |status| status.message);
            Ok(Executed { code, stdout, stderr, message: message.unwrap_or_default() })
        })
    }
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // What was read before the connection broke is kept; the missing status shows that it broke.
        let _ = stream.read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The exit code in the status that ends an exec.
fn exit_code(status: &Status) -> Option<i32> {
    if status.status.as_deref() == Some("Success") {
        return Some(0);
    }
    let causes = status.details.as_ref()?.causes.as_ref()?;
    let cause = causes.iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"))?;
    cause.message.as_ref()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn exit_codes_are_read_from_the_status() {
        let code = |value| exit_code(&serde_json::from_value(value).unwrap());
        assert_eq!(code(json!({ "metadata": {}, "status": "Success" })), Some(0));
        let ended = json!({ "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "details": { "causes": [{ "reason": "ExitCode", "message": "3" }] } });
        assert_eq!(code(ended), Some(3));
        assert_eq!(code(json!({ "status": "Failure", "reason": "InternalError", "code": 500 })), None);
    }
}
