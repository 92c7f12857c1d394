//! What the shell hands in with every request: the time, entropy, and the user.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Time and entropy of one request. Running a request twice with the same context gives the same names and uids.
#[derive(Clone, Debug)]
pub struct Context {
    pub now: Timestamp,
    /// 128 random bits that uids and generated names of this request are derived from.
    pub seed: u128,
}

impl Context {
    /// `2024-05-01T10:00:00Z`.
    pub fn time(&self) -> String {
        time_text(self.now)
    }

    /// A source of derived numbers; each call starts the same sequence.
    pub fn entropy(&self) -> Entropy {
        Entropy { state: self.seed | 1 }
    }
}

/// `now` in whole seconds as Kubernetes' `Time`.
pub fn time_text(now: Timestamp) -> String {
    let whole = Timestamp::from_second(now.as_second()).unwrap_or(now);
    whole.to_string()
}

/// A small deterministic generator (a 128-bit multiplicative congruential one, high bits used).
#[derive(Clone, Debug)]
pub struct Entropy {
    state: u128,
}

impl Entropy {
    fn next(&mut self) -> u64 {
        self.state = self
            .state
            .wrapping_mul(0xda94_2042_e4dd_58b5_0000_0000_0000_0001 ^ 0x4c95_7f2d)
            .wrapping_add(0x9e37_79b9_7f4a_7c15);
        u64::try_from((self.state >> 64) ^ (self.state >> 96)).unwrap_or_else(|_| self.fold())
    }

    fn fold(&self) -> u64 {
        let bytes = self.state.to_be_bytes();
        bytes.iter().take(8).fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
    }

    pub fn uuid(&mut self) -> String {
        let high = (self.next() & 0xffff_ffff_ffff_0fff) | 0x4000;
        let low = (self.next() & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
        let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xffff);
        format!("{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
    }

    /// Five characters of the alphabet that generated names use (no vowels, nothing easily mistaken).
    pub fn suffix(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut bits = self.next();
        let mut text = String::with_capacity(5);
        for _ in 0..5 {
            let size = ALPHABET.len() as u64;
            let at = usize::try_from(bits % size).unwrap_or(0);
            text.push(ALPHABET.get(at).map_or('x', |byte| char::from(*byte)));
            bits /= size;
        }
        text
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, Vec<String>)>,
}

impl User {
    /// `username`, `uid`, `groups` and `extra`, as webhooks and certificate requests have them.
    pub(crate) fn info(&self) -> Map<String, Value> {
        let mut info = Map::from_iter([("username".to_owned(), json!(self.name))]);
        if !self.uid.is_empty() {
            info.insert("uid".to_owned(), json!(self.uid));
        }
        if !self.groups.is_empty() {
            info.insert("groups".to_owned(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            let extra = self.extra.iter().map(|(key, values)| (key.clone(), json!(values)));
            info.insert("extra".to_owned(), Value::Object(extra.collect()));
        }
        info
    }

    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".into(),
            groups: vec!["system:unauthenticated".into()],
            ..Self::default()
        }
    }
}
