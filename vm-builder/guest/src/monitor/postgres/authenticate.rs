//! Logging in: without a password, with one in clear or as MD5, or by SCRAM-SHA-256. Digests, proofs and messages are those of
//! `postgres-protocol`, which also bounds the rounds of hashing that a server may request.

use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::{Error, Target};

/// The client's side of a login.
pub(super) struct Login<'a> {
    target: &'a Target,
    /// From the server's offer until it has shown that it knows the password.
    scram: Option<ScramSha256>,
    done: bool,
}

impl<'a> Login<'a> {
    pub(super) const fn new(target: &'a Target) -> Self {
        Self { target, scram: None, done: false }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.done
    }

    /// Answers an authentication message into `answer`, if it needs one.
    pub(super) fn answer(&mut self, message: &Message, answer: &mut BytesMut) -> Result<(), Error> {
        let password = self.target.password.as_deref().map(str::as_bytes);
        let password = password.ok_or(Error::Password("the server wants one"));
        match message {
            Message::AuthenticationOk if self.scram.is_some() => {
                return Err(Error::Protocol("the server did not show that it knows the password"));
            }
            Message::AuthenticationOk => self.done = true,
            Message::AuthenticationCleartextPassword => frontend::password_message(password?, answer)?,
            Message::AuthenticationMd5Password(body) => {
                let hash = md5_hash(self.target.user.as_bytes(), password?, body.salt());
                frontend::password_message(hash.as_bytes(), answer)?;
            }
            Message::AuthenticationSasl(body) => {
                if !body.mechanisms().any(|name| Ok(name == SCRAM_SHA_256)).unwrap_or(false) {
                    return Err(Error::Password("no common SASL mechanism"));
                }
                let scram = self.scram.insert(ScramSha256::new(password?, ChannelBinding::unsupported()));
                frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), answer)?;
            }
            Message::AuthenticationSaslContinue(body) => {
                let scram = self.scram.as_mut().ok_or(Error::Protocol("SASL out of turn"))?;
                scram.update(body.data()).map_err(|_| Error::Protocol("a SASL challenge that is none"))?;
                frontend::sasl_response(scram.message(), answer)?;
            }
            Message::AuthenticationSaslFinal(body) => {
                let mut scram = self.scram.take().ok_or(Error::Protocol("SASL out of turn"))?;
                let result = scram.finish(body.data());
                result.map_err(|_| Error::Protocol("the server does not know the password"))?;
            }
            _ => return Err(Error::Password("the server wants a kind of login that is not supported")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use ring::{digest, hmac, pbkdf2};

    use super::super::connection::tests::message;
    use super::*;

    const ROUNDS: u32 = 4096;
    const SALT: &[u8] = b"salt of the user";

    fn authentication(kind: u32, rest: &[u8]) -> Message {
        message(b'R', &[&kind.to_be_bytes()[..], rest].concat())
    }

    fn answered(login: &mut Login<'_>, kind: u32, rest: &[u8]) -> Result<Vec<u8>, Error> {
        let mut answer = BytesMut::new();
        login.answer(&authentication(kind, rest), &mut answer).map(|()| answer.to_vec())
    }

    fn sign(key: &[u8], text: &[u8]) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
    }

    /// A login as far as the client's proof, and the signature by which a server with this password answers it. The client's
    /// proof is compared with RFC 5802, section 3, computed separately.
    fn proven<'a>(target: &'a Target, password: &str) -> (Login<'a>, bool, String) {
        let mut login = Login::new(target);
        let first = answered(&mut login, 10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0").unwrap();
        let first = String::from_utf8(first).unwrap();
        let (_, bare) = first.split_once("n,,").unwrap();
        let nonce = format!("{}server", bare.strip_prefix("n=,r=").unwrap());
        let challenge = format!("r={nonce},s={},i={ROUNDS}", BASE64.encode(SALT));
        let last = answered(&mut login, 11, challenge.as_bytes()).unwrap();
        let last = String::from_utf8(last[5..].to_vec()).unwrap();
        let (without_proof, proof) = last.split_once(",p=").unwrap();
        assert_eq!(without_proof, format!("c=biws,r={nonce}"));
        let mut salted = [0; digest::SHA256_OUTPUT_LEN];
        let rounds = NonZeroU32::new(ROUNDS).unwrap();
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, SALT, password.as_bytes(), &mut salted);
        let all = format!("{bare},{challenge},{without_proof}");
        let client_key = sign(&salted, b"Client Key");
        let signature = sign(digest::digest(&digest::SHA256, &client_key).as_ref(), all.as_bytes());
        let expected: Vec<u8> = client_key.iter().zip(signature).map(|(key, signed)| key ^ signed).collect();
        let shown = format!("v={}", BASE64.encode(sign(&sign(&salted, b"Server Key"), all.as_bytes())));
        (login, BASE64.encode(expected) == proof, shown)
    }

    #[test]
    fn client_and_server_show_that_they_know_the_password() {
        let target = Target::parse("user=u password=pencil").unwrap();
        let (mut login, is_right, shown) = proven(&target, "pencil");
        assert!(is_right && answered(&mut login, 0, &[]).is_err() && !login.is_done());
        assert!(answered(&mut login, 12, shown.as_bytes()).unwrap().is_empty());
        assert!(answered(&mut login, 0, &[]).is_ok() && login.is_done());
        assert!(answered(&mut login, 12, shown.as_bytes()).is_err());
        let (mut login, is_right, shown) = proven(&target, "crayon");
        assert!(!is_right && answered(&mut login, 12, shown.as_bytes()).is_err());
    }

    #[test]
    fn challenges_of_hostile_servers_are_refused() {
        let target = Target::parse("user=u password=p").unwrap();
        for fields in
            ["r=other,s=AAAA,i=1", "r={},s=!,i=1", "r={},s=AAAA,i=4294967295", "r={},s=AAAA", "", "\u{fc}"]
        {
            let mut login = Login::new(&target);
            let first = answered(&mut login, 10, b"SCRAM-SHA-256\0\0").unwrap();
            let first = String::from_utf8(first).unwrap();
            let challenge = fields.replace("{}", &format!("{}x", first.split_once("r=").unwrap().1));
            assert!(answered(&mut login, 11, challenge.as_bytes()).is_err(), "{challenge}");
            // The exchange is over: it neither continues nor succeeds.
            assert!(answered(&mut login, 11, challenge.as_bytes()).is_err());
            assert!(answered(&mut login, 0, &[]).is_err() && !login.is_done());
        }
        for offer in [&b"\0"[..], b"", b"SCRAM-SHA-256", b"OTHER\0\0"] {
            assert!(answered(&mut Login::new(&target), 10, offer).is_err());
        }
    }

    #[test]
    fn a_password_as_md5_is_salted() {
        let target = Target::parse("user=u password=p").unwrap();
        let answer = |salt| answered(&mut Login::new(&target), 5, salt).unwrap();
        // Two digests as PostgreSQL documents them: md5(md5(password + user) + salt).
        assert!(answer(&[1, 2, 3, 4])[5..].starts_with(b"md5") && answer(&[1, 2, 3, 4]).len() == 5 + 36);
        assert_ne!(answer(&[1, 2, 3, 4]), answer(&[1, 2, 3, 5]));
    }

    #[test]
    fn nothing_is_sent_to_a_server_out_of_turn() {
        let target = Target::parse("user=u").unwrap();
        let mut login = Login::new(&target);
        for kind in [3, 11, 12] {
            assert!(answered(&mut login, kind, &[]).is_err());
        }
        assert!(!login.is_done());
        assert!(answered(&mut login, 0, &[]).unwrap().is_empty() && login.is_done());
    }
}
