//! SSH keys: ed25519, the private one in OpenSSH's own format, unencrypted.

use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use ssh_key::private::{Ed25519Keypair, Ed25519PrivateKey};
use ssh_key::public::Ed25519PublicKey;
use ssh_key::{LineEnding, PrivateKey};

#[derive(Debug)]
pub(crate) struct Keys {
    /// A line for `authorized_keys`.
    pub(crate) public: String,
    /// PEM.
    pub(crate) private: String,
}

/// Makes a pair. `None` if there is no randomness.
pub(crate) fn generate(comment: &str) -> Option<Keys> {
    let mut seed = [0_u8; 32];
    SystemRandom::new().fill(&mut seed).ok()?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
    let public = Ed25519PublicKey::try_from(pair.public_key().as_ref()).ok()?;
    let pair = Ed25519Keypair { public, private: Ed25519PrivateKey::from_bytes(&seed) };
    let key = PrivateKey::new(pair.into(), comment).ok()?;
    let public = key.public_key().to_openssh().ok()? + "\n";
    Some(Keys { public, private: key.to_openssh(LineEnding::LF).ok()?.to_string() })
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
