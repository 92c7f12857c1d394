//! Logging in: without a password, with one in clear or as MD5, or by SCRAM-SHA-256 (RFC 5802, RFC 7677).

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hmac, pbkdf2};

use super::{Error, Target};

const MECHANISM: &str = "SCRAM-SHA-256";
/// Most rounds of hashing a server may request; 4,096 is what PostgreSQL has.
const MOST_ROUNDS: u32 = 200_000;
/// GS2 header: no channel binding; `biws` in base64.
const HEADER: &str = "n,,";

/// The client's side of a login.
#[derive(Debug)]
pub(super) struct Login<'a> {
    target: &'a Target,
    scram: Option<Scram>,
    done: bool,
}

#[derive(Debug)]
struct Scram {
    first_bare: String,
    nonce: String,
    /// What the server must show at the end.
    server_signature: Option<Vec<u8>>,
}

impl<'a> Login<'a> {
    pub(super) const fn new(target: &'a Target) -> Self {
        Self { target, scram: None, done: false }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.done
    }

    /// Answers an authentication message (`R`), if it needs one.
    pub(super) fn answer(&mut self, body: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let (kind, rest) = body.split_first_chunk::<4>().ok_or(Error::Protocol("no kind of login"))?;
        let password = || self.target.password.as_deref().ok_or(Error::Password("the server wants one"));
        match u32::from_be_bytes(*kind) {
            0 => {
                if self.scram.as_ref().is_some_and(|scram| scram.server_signature.is_some()) {
                    return Err(Error::Protocol("the server did not show that it knows the password"));
                }
                self.done = true;
                Ok(None)
            }
            3 => Ok(Some([password()?.as_bytes(), &[0]].concat())),
            5 => Ok(Some(md5_answer(&self.target.user, password()?, rest))),
            10 => {
                if !rest.split(|byte| *byte == 0).any(|name| name == MECHANISM.as_bytes()) {
                    return Err(Error::Password("no common SASL mechanism"));
                }
                password()?;
                let (scram, answer) = Scram::first(&nonce()?)?;
                self.scram = Some(scram);
                Ok(Some(answer))
            }
            11 => {
                let password = password()?.to_owned();
                let scram = self.scram.as_mut().ok_or(Error::Protocol("SASL out of turn"))?;
                scram.last(&password, rest).map(Some)
            }
            12 => {
                let scram = self.scram.as_mut().ok_or(Error::Protocol("SASL out of turn"))?;
                scram.verify(rest)?;
                Ok(None)
            }
            _ => Err(Error::Password("the server wants a kind of login that is not supported")),
        }
    }
}

fn md5_answer(user: &str, password: &str, salt: &[u8]) -> Vec<u8> {
    let inner = format!("{:x}", md5::compute([password.as_bytes(), user.as_bytes()].concat()));
    format!("md5{:x}\0", md5::compute([inner.as_bytes(), salt].concat())).into_bytes()
}

fn nonce() -> Result<String, Error> {
    let mut bytes = [0; 18];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Protocol("no random numbers"))?;
    Ok(BASE64.encode(bytes))
}

impl Scram {
    fn first(nonce: &str) -> Result<(Self, Vec<u8>), Error> {
        // PostgreSQL takes the user from the start-up packet.
        let first_bare = format!("n=,r={nonce}");
        let message = format!("{HEADER}{first_bare}");
        let length = u32::try_from(message.len()).map_err(|_| Error::Protocol("too long"))?;
        let answer = [MECHANISM.as_bytes(), &[0], &length.to_be_bytes(), message.as_bytes()].concat();
        Ok((Self { first_bare, nonce: nonce.to_owned(), server_signature: None }, answer))
    }

    fn last(&mut self, password: &str, challenge: &[u8]) -> Result<Vec<u8>, Error> {
        const WRONG: Error = Error::Protocol("a SASL challenge that is none");
        let challenge = std::str::from_utf8(challenge).map_err(|_| WRONG)?;
        let field = |name: &str| challenge.split(',').find_map(|field| field.strip_prefix(name)).ok_or(WRONG);
        let nonce = field("r=")?;
        let salt = BASE64.decode(field("s=")?).map_err(|_| WRONG)?;
        let rounds: u32 = field("i=")?.parse().map_err(|_| WRONG)?;
        let rounds = NonZeroU32::new(rounds).filter(|rounds| rounds.get() <= MOST_ROUNDS).ok_or(WRONG)?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(WRONG);
        }
        let mut salted = [0; digest::SHA256_OUTPUT_LEN];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password.as_bytes(), &mut salted);
        let client_key = sign(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
        let without_proof = format!("c={},r={nonce}", BASE64.encode(HEADER));
        let all = format!("{},{challenge},{without_proof}", self.first_bare);
        let signature = sign(stored_key.as_ref(), all.as_bytes());
        let proof: Vec<u8> =
            client_key.as_ref().iter().zip(signature.as_ref()).map(|(key, signed)| key ^ signed).collect();
        let server_key = sign(&salted, b"Server Key");
        self.server_signature = Some(sign(server_key.as_ref(), all.as_bytes()).as_ref().to_vec());
        Ok(format!("{without_proof},p={}", BASE64.encode(proof)).into_bytes())
    }

    fn verify(&mut self, last: &[u8]) -> Result<(), Error> {
        let shown = last.strip_prefix(b"v=").and_then(|text| BASE64.decode(text).ok());
        if shown.is_some() && shown == self.server_signature.take() {
            Ok(())
        } else {
            Err(Error::Protocol("the server does not know the password"))
        }
    }
}

fn sign(key: &[u8], text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3, but for the name of the user, which PostgreSQL leaves empty.
    #[test]
    fn the_exchange_of_the_rfc_is_reproduced() {
        let (mut scram, _) = Scram::first("rOprNGfwEbeRWgbNEkqO").unwrap();
        scram.first_bare = "n=user,r=rOprNGfwEbeRWgbNEkqO".into();
        let challenge =
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let last = scram.last("pencil", challenge.as_bytes()).unwrap();
        let last = String::from_utf8(last).unwrap();
        assert!(last.ends_with(",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="), "{last}");
        assert!(scram.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").is_ok());
        assert!(scram.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").is_err());
    }

    #[test]
    fn a_password_as_md5_is_salted() {
        // Two digests as PostgreSQL documents them: md5(md5(password + user) + salt).
        let answer = md5_answer("u", "p", &[1, 2, 3, 4]);
        assert!(answer.starts_with(b"md5") && answer.len() == 36);
        assert_ne!(answer, md5_answer("u", "p", &[1, 2, 3, 5]));
    }

    #[test]
    fn nothing_is_sent_to_a_server_out_of_turn() {
        let target = Target::parse("user=u").unwrap();
        let mut login = Login::new(&target);
        assert!(login.answer(&[0, 0, 0, 3]).is_err());
        assert!(login.answer(&[0, 0, 0, 11]).is_err());
        assert!(login.answer(&[0, 0]).is_err());
        assert!(!login.is_done());
        assert!(login.answer(&[0, 0, 0, 0]).unwrap().is_none() && login.is_done());
    }
}
