//! The agent that lends a VM's key to ssh: the key is never in a file, and is gone with this process, however that ends. As
//! `ssh-agent(1)`, by draft-ietf-sshm-ssh-agent, for one key of one kind.

use std::io;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

const KIND: &[u8] = b"ssh-ed25519";
const MAGIC: &[u8] = b"openssh-key-v1\0";
const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
/// Longest request, in bytes; that of OpenSSH's agent.
const LONGEST: u32 = 256 << 10;

/// Numbers of messages.
const FAILURE: u8 = 5;
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;

#[derive(Debug)]
pub(super) struct Key {
    pair: Ed25519KeyPair,
    /// The public key as it is sent.
    blob: Vec<u8>,
}

impl Key {
    /// Reads an unencrypted ed25519 key in OpenSSH's own format (PROTOCOL.key of OpenSSH); none if it is anything else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let body = text.trim().strip_prefix(BEGIN)?.strip_suffix(END)?;
        let packed: String = body.split_whitespace().collect();
        let bytes = STANDARD.decode(packed).ok()?;
        let mut file = Fields(bytes.strip_prefix(MAGIC)?);
        let is_plain = file.string()? == b"none" && file.string()? == b"none" && file.string()?.is_empty();
        if !is_plain || file.number()? != 1 {
            return None;
        }
        let (_, mut secret) = (file.string()?, Fields(file.string()?));
        if secret.number()? != secret.number()? || secret.string()? != KIND {
            return None;
        }
        let public = secret.string()?;
        let seed = secret.string()?.first_chunk::<32>()?;
        let pair = Ed25519KeyPair::from_seed_and_public_key(seed, public).ok()?;
        let mut blob = Vec::new();
        put(&mut blob, KIND);
        put(&mut blob, pair.public_key().as_ref());
        Some(Self { pair, blob })
    }

    fn respond(&self, request: &[u8]) -> Vec<u8> {
        let Some((kind, rest)) = request.split_first() else { return vec![FAILURE] };
        match *kind {
            REQUEST_IDENTITIES => {
                let mut response = vec![IDENTITIES_ANSWER, 0, 0, 0, 1];
                put(&mut response, &self.blob);
                put(&mut response, b"neonvm");
                response
            }
            SIGN_REQUEST => self.sign(Fields(rest)).unwrap_or_else(|| vec![FAILURE]),
            _ => vec![FAILURE],
        }
    }

    fn sign(&self, mut request: Fields<'_>) -> Option<Vec<u8>> {
        if request.string()? != self.blob {
            return None;
        }
        let mut signature = Vec::new();
        put(&mut signature, KIND);
        put(&mut signature, self.pair.sign(request.string()?).as_ref());
        let mut response = vec![SIGN_RESPONSE];
        put(&mut response, &signature);
        Some(response)
    }
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

/// A length and the bytes.
fn put(to: &mut Vec<u8>, bytes: &[u8]) {
    // All of them are short.
    to.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    to.extend_from_slice(bytes);
}

/// An agent that listens in a directory that only this user can enter.
#[derive(Debug)]
pub(super) struct Agent {
    key: Key,
    listener: UnixListener,
    directory: tempfile::TempDir,
}

impl Agent {
    /// # Errors
    /// When there is no room for temporary files, or their directory has too long a name for a socket.
    pub(super) fn start(key: Key) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("neonctl-agent-").tempdir()?;
        let listener = UnixListener::bind(directory.path().join("socket"))?;
        Ok(Self { key, listener, directory })
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Serves ssh for as long as this is waited for.
    pub(super) async fn serve(&self) -> std::convert::Infallible {
        loop {
            if let Ok((client, _)) = self.listener.accept().await {
                // A client that ends or speaks another protocol; ssh reports what it lacks.
                let _ = self.converse(client).await;
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn converse(&self, mut client: UnixStream) -> io::Result<()> {
        loop {
            let length = client.read_u32().await?;
            if length > LONGEST {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut request = vec![0; usize::try_from(length).unwrap_or_default()];
            client.read_exact(&mut request).await?;
            let mut response = Vec::new();
            put(&mut response, &self.key.respond(&request));
            client.write_all(&response).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Output;

    use neonvm_test_support::{need, needs};
    use tokio::process::Command;

    use super::*;

    /// Runs a program of OpenSSH with an agent; returns its output.
    async fn with(agent: &Agent, command: &mut Command) -> Output {
        command.env("SSH_AUTH_SOCK", agent.socket()).stdin(std::process::Stdio::null());
        tokio::select! {
            output = command.output() => output.unwrap(),
            never = agent.serve() => match never {},
        }
    }

    #[tokio::test]
    async fn openssh_lists_the_key_and_gets_signatures_that_it_accepts() {
        need!(needs::program("ssh-keygen"));
        let home = tempfile::tempdir().unwrap();
        let (private, public) = (home.path().join("key"), home.path().join("key.pub"));
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&private)
            .status()
            .await;
        assert!(made.unwrap().success());
        let key = Key::parse(&std::fs::read_to_string(&private).unwrap()).unwrap();
        // From here on only the agent has it.
        std::fs::remove_file(&private).unwrap();
        let agent = Agent::start(key).unwrap();
        let listed = with(&agent, Command::new("ssh-add").arg("-L")).await;
        let words = |text: &str| text.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
        let known = std::fs::read_to_string(&public).unwrap();
        assert_eq!(words(&String::from_utf8(listed.stdout).unwrap()), words(&known));
        let text = home.path().join("text");
        std::fs::write(&text, "to be signed").unwrap();
        let mut sign = Command::new("ssh-keygen");
        sign.args(["-Y", "sign", "-n", "file", "-f"]).arg(&public).arg(&text);
        let signed = with(&agent, &mut sign).await;
        assert!(signed.status.success(), "{}", String::from_utf8_lossy(&signed.stderr));
        let mut verify = Command::new("ssh-keygen");
        verify.args(["-Y", "check-novalidate", "-n", "file", "-s"]).arg(home.path().join("text.sig"));
        let verified = verify.stdin(std::fs::File::open(&text).unwrap()).output().await.unwrap();
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
        let socket = agent.socket();
        drop(agent);
        assert!(!socket.exists() && !socket.parent().unwrap().exists());
    }

    #[test]
    fn what_is_no_key_and_no_request_is_refused() {
        for text in ["", "key", &format!("{BEGIN}\n{END}"), &format!("{BEGIN}\nb3BlbnNzaC1rZXktdjEA\n{END}")]
        {
            assert!(Key::parse(text).is_none(), "{text}");
        }
        let seed = [7; 32];
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
        let mut blob = Vec::new();
        put(&mut blob, KIND);
        put(&mut blob, pair.public_key().as_ref());
        let key = Key { pair, blob };
        for request in [&[][..], &[SIGN_REQUEST], &[SIGN_REQUEST, 255, 255, 255, 255], &[27, 1, 2], &[17]] {
            assert_eq!(key.respond(request), [FAILURE]);
        }
    }
}
