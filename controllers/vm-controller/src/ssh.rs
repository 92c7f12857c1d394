//! SSH keys: ed25519, the private one in OpenSSH's own format (PROTOCOL.key of OpenSSH), unencrypted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

const KIND: &[u8] = b"ssh-ed25519";
const MAGIC: &[u8] = b"openssh-key-v1\0";
/// Length of a line of PEM in OpenSSH's files.
const LINE: usize = 70;

/// A pair of keys.
#[derive(Debug)]
pub(crate) struct Keys {
    /// A line for `authorized_keys`.
    pub(crate) public: String,
    /// PEM.
    pub(crate) private: String,
}

/// Makes a pair. `None` if there is no randomness.
pub(crate) fn generate(comment: &str) -> Option<Keys> {
    let random = SystemRandom::new();
    let mut seed = [0_u8; 32];
    let mut check = [0_u8; 4];
    random.fill(&mut seed).ok()?;
    random.fill(&mut check).ok()?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
    let public = pair.public_key().as_ref();
    let mut blob = Vec::new();
    put(&mut blob, KIND);
    put(&mut blob, public);
    let mut secret = Vec::new();
    // The same number twice lets a reader verify the decryption.
    secret.extend_from_slice(&check);
    secret.extend_from_slice(&check);
    put(&mut secret, KIND);
    put(&mut secret, public);
    put(&mut secret, &[seed.as_slice(), public].concat());
    put(&mut secret, comment.as_bytes());
    let mut pad = 1_u8;
    while !secret.len().is_multiple_of(8) {
        secret.push(pad);
        pad += 1;
    }
    let mut file = MAGIC.to_vec();
    put(&mut file, b"none");
    put(&mut file, b"none");
    put(&mut file, b"");
    file.extend_from_slice(&1_u32.to_be_bytes());
    put(&mut file, &blob);
    put(&mut file, &secret);
    let text = STANDARD.encode(&file);
    let mut private = String::from("-----BEGIN OPENSSH PRIVATE KEY-----\n");
    let mut rest = text.as_str();
    while let Some((line, after)) =
        rest.split_at_checked(LINE.min(rest.len())).filter(|(line, _)| !line.is_empty())
    {
        private.push_str(line);
        private.push('\n');
        rest = after;
    }
    private.push_str("-----END OPENSSH PRIVATE KEY-----\n");
    Some(Keys { public: format!("ssh-ed25519 {} {comment}\n", STANDARD.encode(&blob)), private })
}

/// A length and the bytes.
fn put(to: &mut Vec<u8>, bytes: &[u8]) {
    // The parts are of fixed, small size; only the comment is not, and it is a name.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    to.extend_from_slice(&length.to_be_bytes());
    to.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use neonvm_test_support::{need, needs};

    use std::process::Command;

    use super::*;

    #[test]
    fn openssh_reads_the_keys() {
        let keys = generate("ns/vm").unwrap();
        assert!(keys.public.starts_with("ssh-ed25519 AAAA") && keys.public.ends_with(" ns/vm\n"));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        neonvm_kit::ca::write_private(&file, &keys.private).unwrap();
        let program = need!(needs::program("ssh-keygen"));
        let output = Command::new(program).arg("-y").arg("-f").arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), keys.public.trim_end());
    }
}
