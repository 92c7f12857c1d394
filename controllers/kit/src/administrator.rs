//! The kubeconfig of a local cluster's administrator: its certificate is renewed before it ends.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::ca::{Authority, Error, Identity};
use crate::certificate::Validity;
use crate::private;

/// The common name of the administrator's certificate, as on clusters of kubeadm.
const NAME: &str = "kubernetes-admin";
/// The group that may do everything.
const GROUP: &str = "system:masters";
/// Where the kubeconfig of `neond apiserver` has certificate and key, which are PEM in Base64.
const CERTIFICATE: &str = "/users/0/user/client-certificate-data";
const KEY: &str = "/users/0/user/client-key-data";

/// A new certificate for the administrator.
///
/// # Errors
/// If it cannot be signed.
pub fn certificate(authority: &Authority) -> Result<Identity, Error> {
    authority.client(NAME, &[GROUP])
}

/// Gives the kubeconfig in the directory of a local cluster a new certificate, if two thirds of the life of the one in it are over. Returns
/// whether it did. A kubeconfig that is not there, or has another form, is left alone.
///
/// # Errors
/// If the authority of the directory cannot be used, or the file cannot be written.
pub fn renew(directory: &Path) -> Result<bool, Error> {
    let path = directory.join("kubeconfig");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let mut config: Value = serde_json::from_str(&text).unwrap_or_default();
    let Some(old) = config.pointer(CERTIFICATE).and_then(Value::as_str).and_then(decoded) else {
        return Ok(false);
    };
    let validity = Validity::from_identity(&Identity { certificate: old, key: String::new() });
    if !directory.join("ca.key").exists() || validity.is_none_or(|old| Validity::now() < old.renewal()) {
        return Ok(false);
    }
    let new = certificate(&Authority::open(directory)?)?;
    for (place, pem) in [(CERTIFICATE, &new.certificate), (KEY, &new.key)] {
        if let Some(value) = config.pointer_mut(place) {
            *value = json!(STANDARD.encode(pem));
        }
    }
    let text = format!("{config:#}");
    private::replace(&path, text.as_bytes())
        .map_err(|source| Error::File { path: path.display().to_string(), source })?;
    Ok(true)
}

fn decoded(text: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(text).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(directory: &Path, identity: &Identity) -> Value {
        let user = json!({ "client-certificate-data": STANDARD.encode(&identity.certificate),
            "client-key-data": STANDARD.encode(&identity.key) });
        let config = json!({ "current-context": "x", "users": [{ "name": "x-admin", "user": user }] });
        private::replace(&directory.join("kubeconfig"), config.to_string().as_bytes()).unwrap();
        config
    }

    fn read(directory: &Path) -> Value {
        serde_json::from_str(&std::fs::read_to_string(directory.join("kubeconfig")).unwrap()).unwrap()
    }

    #[test]
    fn only_a_certificate_that_ends_soon_is_renewed() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        assert!(!renew(directory).unwrap(), "there is none");
        let authority = Authority::open(directory).unwrap();
        let young = written(directory, &certificate(&authority).unwrap());
        assert!(!renew(directory).unwrap());
        assert_eq!(read(directory), young);
        let now = Validity::now();
        let (ending, key) = Authority::generate_between(NAME, now - 600, now + 60).unwrap();
        let ending = Identity { certificate: ending.certificate().to_owned(), key };
        for (old, what) in
            [(authority.client_for(NAME, &[GROUP], -60).unwrap(), "ended"), (ending, "ends soon")]
        {
            let old = written(directory, &old);
            assert!(renew(directory).unwrap(), "{what}");
            let new = read(directory);
            assert_eq!((&new["current-context"], &new["users"][0]["name"]), (&json!("x"), &json!("x-admin")));
            assert!(
                new.pointer(CERTIFICATE) != old.pointer(CERTIFICATE) && new.pointer(KEY) != old.pointer(KEY)
            );
            assert!(!renew(directory).unwrap(), "it is young again");
        }
        std::fs::write(directory.join("kubeconfig"), "apiVersion: v1\n").unwrap();
        assert!(!renew(directory).unwrap());
    }
}
