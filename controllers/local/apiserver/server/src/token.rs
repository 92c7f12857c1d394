//! Service account tokens: JSON Web Tokens, signed with ECDSA P-256 (ES256, RFC 7518 §3.4).

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use neonvm_apiserver_engine::access::service_account;
use neonvm_apiserver_engine::context::User;
use neonvm_apiserver_engine::engine::Engine;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde_json::{Value, json};

/// Issuer and default audience.
const ISSUER: &str = "https://kubernetes.default.svc";

/// The error for anything that is no token of ours.
const INVALID: &str = "invalid bearer token";

/// Issuer, where no audience is requested: the audience, too.
pub(crate) fn default_audiences() -> Value {
    json!([ISSUER])
}

#[derive(Debug)]
pub(crate) struct Tokens {
    key: EcdsaKeyPair,
    public: Vec<u8>,
    key_id: String,
    random: SystemRandom,
}

/// A checked token.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) user: User,
    pub(crate) audiences: Vec<String>,
}

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

impl Tokens {
    /// Opens the signing key `sa.key` in `directory`, or makes one.
    pub(crate) fn open(directory: &Path) -> std::io::Result<Self> {
        let path = directory.join("sa.key");
        let random = SystemRandom::new();
        let bad = |what: &str| std::io::Error::other(format!("{}: {what}", path.display()));
        let document = if path.exists() {
            URL_SAFE_NO_PAD
                .decode(std::fs::read_to_string(&path)?.trim())
                .map_err(|_| bad("is not a signing key"))?
        } else {
            let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
                .map_err(|_| bad("cannot make a signing key"))?;
            let text = URL_SAFE_NO_PAD.encode(made.as_ref());
            neonvm_kit::ca::write_private(&path, &text).map_err(|error| bad(&error.to_string()))?;
            made.as_ref().to_vec()
        };
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &document, &random)
            .map_err(|_| bad("is not a signing key"))?;
        let public = key.public_key().as_ref().to_vec();
        let key_id = URL_SAFE_NO_PAD.encode(digest(&SHA256, &public).as_ref());
        Ok(Self { key, public, key_id, random })
    }

    /// Signs a token for a service account; the `status` of its `TokenRequest`.
    pub(crate) fn sign(
        &self,
        account: &Value,
        body: &Value,
        now: Timestamp,
        id: &str,
    ) -> Result<Value, String> {
        let seconds = body.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(3600);
        let mut audiences = body.pointer("/spec/audiences").cloned().unwrap_or_else(|| json!([ISSUER]));
        if audiences.as_array().is_none_or(Vec::is_empty) {
            audiences = json!([ISSUER]);
        }
        let (namespace, name) = (text(account, "/metadata/namespace"), text(account, "/metadata/name"));
        let issued = now.as_second();
        let expires = issued.saturating_add(seconds);
        let mut private = json!({ "namespace": namespace,
            "serviceaccount": { "name": name, "uid": text(account, "/metadata/uid") } });
        let bound = |key: &str| text(body, &format!("/spec/boundObjectRef/{key}"));
        if !bound("kind").is_empty() {
            let reference = json!({ "name": bound("name"), "uid": bound("uid") });
            if let Some(map) = private.as_object_mut() {
                map.insert(bound("kind").to_lowercase(), reference);
            }
        }
        let claims = json!({ "iss": ISSUER, "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "aud": audiences, "iat": issued, "nbf": issued, "exp": expires, "jti": id, "kubernetes.io": private });
        let header = json!({ "alg": "ES256", "kid": self.key_id, "typ": "JWT" });
        let signed = format!("{}.{}", encoded(&header), encoded(&claims));
        let signature =
            self.key.sign(&self.random, signed.as_bytes()).map_err(|_| "cannot sign".to_owned())?;
        let expiry = Timestamp::from_second(expires).map_err(|error| error.to_string())?;
        Ok(json!({ "token": format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())),
            "expirationTimestamp": expiry.to_string() }))
    }

    /// Checks a token: signature, times, audience, and that its account (and bound object) still exist.
    ///
    /// # Errors
    /// Why it is no good.
    pub(crate) fn check(
        &self,
        engine: &Engine,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Checked, &'static str> {
        let (signed, signature) = token.rsplit_once('.').ok_or(INVALID)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| INVALID)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.public)
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| INVALID)?;
        let (_, claims) = signed.split_once('.').ok_or("the token is not a JSON Web Token")?;
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| "the token's claims are malformed")?;
        let claims: Value =
            serde_json::from_slice(&claims).map_err(|_| "the token's claims are malformed")?;
        let number = |key: &str| claims.get(key).and_then(Value::as_i64).unwrap_or(0);
        if now.as_second() >= number("exp") {
            return Err("the token has expired");
        }
        let own: Vec<String> =
            claims.get("aud").and_then(|aud| serde_json::from_value(aud.clone()).ok()).unwrap_or_default();
        let wanted = if audiences.is_empty() { vec![ISSUER.to_owned()] } else { audiences.to_vec() };
        let matching: Vec<String> = own.into_iter().filter(|aud| wanted.contains(aud)).collect();
        if matching.is_empty() {
            return Err("the token is not for this audience");
        }
        let user =
            user_of(engine, claims.get("kubernetes.io").unwrap_or(&Value::Null), text(&claims, "/jti"))?;
        Ok(Checked { user, audiences: matching })
    }
}

fn user_of(engine: &Engine, private: &Value, id: &str) -> Result<User, &'static str> {
    let namespace = text(private, "/namespace");
    let (name, uid) = (text(private, "/serviceaccount/name"), text(private, "/serviceaccount/uid"));
    let account =
        engine.object("", "serviceaccounts", namespace, name).ok_or("the service account is gone")?;
    if text(&account, "/metadata/uid") != uid {
        return Err("the service account has been made again since");
    }
    let mut extra =
        vec![("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("JTI={id}")])];
    for (kind, plural) in [("pod", "pods"), ("node", "nodes"), ("secret", "secrets")] {
        let Some(bound) = private.get(kind) else { continue };
        let bound_name = text(bound, "/name");
        let place = if kind == "node" { "" } else { namespace };
        let found = engine.object("", plural, place, bound_name).ok_or("the bound object is gone")?;
        if !text(bound, "/uid").is_empty() && text(&found, "/metadata/uid") != text(bound, "/uid") {
            return Err("the bound object has been made again since");
        }
        if kind == "pod" {
            extra.push(("authentication.kubernetes.io/pod-name".into(), vec![bound_name.to_owned()]));
            extra.push(("authentication.kubernetes.io/pod-uid".into(), vec![text(bound, "/uid").to_owned()]));
        }
        let node = if kind == "pod" { text(&found, "/spec/nodeName") } else { bound_name };
        if kind != "secret" && !node.is_empty() {
            extra.push(("authentication.kubernetes.io/node-name".into(), vec![node.to_owned()]));
        }
    }
    Ok(User { extra, ..service_account(namespace, name, uid) })
}
