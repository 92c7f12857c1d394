//! The kubectl steps: which binary, and what can be asked of it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt as _;

/// The minor version whose words were recorded.
const RECORDED: u64 = 36;
const CALL: Duration = Duration::from_secs(120);

#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    /// Minor version; 0 if it is unknown.
    minor: u64,
}

impl Kubectl {
    /// Asks a binary for its version; `None` if there is none that answers.
    pub fn find(program: &Path) -> Option<Self> {
        let answer = std::process::Command::new(program)
            .args(["version", "--client", "-o", "json"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()
            .filter(|answer| answer.status.success())?;
        let version: Value = serde_json::from_slice(&answer.stdout).ok()?;
        let minor = version.pointer("/clientVersion/minor").and_then(Value::as_str).unwrap_or_default();
        let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
        Some(Self { program: program.to_path_buf(), minor: digits.parse().unwrap_or(0) })
    }

    /// Why a step cannot be asked of this client: an older one words it differently.
    pub(crate) fn words_differ(&self, scenario: &str, step: &str) -> Option<String> {
        let listed = WORDING.lines().filter_map(|line| line.split_once(": "));
        let differs = self.minor < RECORDED && listed.clone().any(|known| known == (scenario, step));
        differs.then(|| format!("kubectl 1.{} words it differently from 1.{RECORDED}", self.minor))
    }

    /// Runs one call in `folder`, with the step's files in it.
    pub(crate) async fn call(
        &self,
        step: &Map<String, Value>,
        kubeconfig: &Path,
        folder: &Path,
    ) -> anyhow::Result<Value> {
        for (name, content) in step.get("files").and_then(Value::as_object).into_iter().flatten() {
            let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
            // A file that begins with a brace is a stream of JSON to older clients, which then stumble over `---`.
            let mark = if name.ends_with(".yaml") && text.starts_with('{') { "---\n" } else { "" };
            tokio::fs::write(folder.join(name), format!("{mark}{text}")).await?;
        }
        let arguments = step.get("kubectl").and_then(Value::as_array).context("kubectl takes a list")?;
        let mut command = tokio::process::Command::new(&self.program);
        command.arg("--kubeconfig").arg(kubeconfig).args(arguments.iter().filter_map(Value::as_str));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", folder).env("TERM", "dumb").env("TZ", "UTC");
        let extra = step.get("env").and_then(Value::as_object).into_iter().flatten();
        command.envs(extra.filter_map(|(name, value)| Some((name, value.as_str()?))));
        command.current_dir(folder).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot run kubectl")?;
        let mut input = child.stdin.take();
        if let (Some(input), Some(text)) = (&mut input, step.get("stdin").and_then(Value::as_str)) {
            input.write_all(text.as_bytes()).await?;
        }
        drop(input);
        let done =
            tokio::time::timeout(CALL, child.wait_with_output()).await.context("kubectl did not end")??;
        let stdout = String::from_utf8_lossy(&done.stdout);
        let mut got = json!({ "exit": done.status.code().unwrap_or(-1), "stdout": stdout,
            "stderr": String::from_utf8_lossy(&done.stderr) });
        if let (Ok(body), Some(got)) = (serde_json::from_str::<Value>(&stdout), got.as_object_mut()) {
            got.insert("body".into(), body);
        }
        Ok(got)
    }
}

/// Steps whose output differs in older clients only by its wording or order (they print the data of a config map in
/// the random order of a Go map): `scenario: step` a line.
const WORDING: &str = include_str!("../wording.txt");
