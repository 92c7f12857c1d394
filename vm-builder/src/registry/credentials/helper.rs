//! Credential helpers: programs `docker-credential-<name>` that keep logins.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use neonvm_types::objects;
use serde::Deserialize;
use tokio::io::AsyncWriteExt as _;

use super::Credentials;
use crate::source::{Error, Login};

/// How long a helper may take; it may prompt the user for a password.
const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperOutput {
    #[serde(default)]
    username: String,
    #[serde(default)]
    secret: String,
}

/// Requests the login of a registry from a helper. None if it has none.
pub(super) async fn ask(name: &str, registry: &str) -> Result<Option<Credentials>, Error> {
    let program = format!("docker-credential-{name}");
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || !name.bytes().all(valid) {
        return Err(Error::Helper { program, reason: "its name is not that of a helper".into() });
    }
    ask_program(Path::new(&program), registry).await
}

/// Requests it from a program, found by `PATH` if it is a name.
pub(in crate::registry) async fn ask_program(
    path: &Path,
    registry: &str,
) -> Result<Option<Credentials>, Error> {
    let program = path.display().to_string();
    let failed = |reason: String| Error::Helper { program: program.clone(), reason };
    let mut child = tokio::process::Command::new(path)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let talk = async {
        if let Some(mut input) = child.stdin.take() {
            // A helper may answer without reading; its answer counts.
            let _ = input.write_all(registry.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = match tokio::time::timeout(DEADLINE, talk).await {
        Ok(output) => output.map_err(|error| failed(error.to_string()))?,
        Err(_) => return Err(failed(format!("no answer within {} s", DEADLINE.as_secs()))),
    };
    if !output.status.success() {
        // Helpers report this on their standard output.
        let text = String::from_utf8_lossy(&output.stdout).to_lowercase();
        if text.contains("credentials not found") || text.contains("no credentials") {
            return Ok(None);
        }
        return Err(failed(format!("it ended with {}", output.status)));
    }
    let answer: HelperOutput = objects::from_slice(&output.stdout)
        .map_err(|_| failed("its answer is not the JSON document expected".into()))?;
    if answer.secret.is_empty() {
        return Ok(None);
    }
    Ok(Some(if answer.username == "<token>" {
        Credentials::IdentityToken(answer.secret)
    } else {
        Credentials::Password(Login { username: answer.username, password: answer.secret })
    }))
}
