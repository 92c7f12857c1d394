//! Connection strings: `keyword=value` as libpq reads them.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    Socket(PathBuf),
    Address(IpAddr),
    /// This machine, by whatever family it listens on.
    Local,
}

/// Server, user and database of the connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// `host`; a path is a directory with a socket. Names other than `localhost` are not looked up.
    pub host: Host,
    /// `port`, 5432.
    pub port: u16,
    /// `user`, `postgres`.
    pub user: String,
    /// `dbname`; that of the user.
    pub database: String,
    /// `application_name`, `vm-monitor`.
    pub application: String,
    /// `connect_timeout`, 2 s.
    pub connect_timeout: Duration,
    /// `password`.
    pub password: Option<String>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, user, database, .. } = self;
        write!(f, "Target({host:?}, port {port}, user {user:?}, database {database:?})")
    }
}

/// What is wrong with a connection string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("expected keyword=value, not {0:?}")]
    Syntax(String),
    #[error("keyword {0:?} is not supported")]
    Keyword(String),
    #[error("{keyword}: {value:?} {problem}")]
    Value { keyword: String, value: String, problem: &'static str },
}

impl Target {
    /// Reads a connection string.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let mut target = Self {
            host: Host::Local,
            port: 5432,
            user: "postgres".into(),
            database: String::new(),
            application: "vm-monitor".into(),
            connect_timeout: Duration::from_secs(2),
            password: None,
        };
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (keyword, after) = rest.split_once('=').ok_or_else(|| TargetError::Syntax(shown(rest)))?;
            let (value, after) =
                value(after.trim_start()).ok_or_else(|| TargetError::Syntax(shown(keyword)))?;
            target.set(keyword.trim(), value)?;
            rest = after.trim_start();
        }
        if target.database.is_empty() {
            target.database.clone_from(&target.user);
        }
        Ok(target)
    }

    fn set(&mut self, keyword: &str, value: String) -> Result<(), TargetError> {
        let wrong = |problem| TargetError::Value {
            keyword: keyword.to_owned(),
            value: if keyword == "password" { "…".to_owned() } else { value.clone() },
            problem,
        };
        if value.contains('\0') {
            return Err(wrong("has a NUL"));
        }
        match keyword {
            "host" | "hostaddr" => {
                self.host = match value.as_str() {
                    "" | "localhost" => Host::Local,
                    path if path.starts_with('/') => Host::Socket(path.into()),
                    address => Host::Address(
                        address.parse().map_err(|_| wrong("is no address, no path and not localhost"))?,
                    ),
                }
            }
            "port" => self.port = value.parse().map_err(|_| wrong("is no port"))?,
            "user" => self.user = value,
            "dbname" => self.database = value,
            "application_name" => self.application = value,
            "password" => self.password = Some(value),
            "connect_timeout" => {
                let seconds: u64 = value.parse().map_err(|_| wrong("is no number of seconds"))?;
                self.connect_timeout = Duration::from_secs(if seconds == 0 { 2 } else { seconds });
            }
            "sslmode" if matches!(value.as_str(), "disable" | "allow" | "prefer") => {}
            "sslmode" => return Err(wrong("needs TLS, which is not supported")),
            _ => return Err(TargetError::Keyword(keyword.to_owned())),
        }
        Ok(())
    }
}

/// A value and what follows it: up to white space, or in single quotes; a backslash makes the next character itself.
fn value(text: &str) -> Option<(String, &str)> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut characters = text.char_indices().skip(usize::from(quoted));
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => value.push(characters.next()?.1),
            '\'' if quoted => return Some((value, text.get(at + 1..)?)),
            character if character.is_whitespace() && !quoted => return Some((value, text.get(at..)?)),
            character => value.push(character),
        }
    }
    if quoted { None } else { Some((value, "")) }
}

fn shown(text: &str) -> String {
    text.chars().take(20).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn strings_are_read_as_libpq_reads_them() {
        let text = r"host=/run/postgresql port = 5433 user=cloud_admin dbname='my \'db' password=a\ b connect_timeout=1";
        let target = Target::parse(text).unwrap();
        assert_eq!(target.host, Host::Socket("/run/postgresql".into()));
        assert_eq!((target.port, target.user.as_str()), (5433, "cloud_admin"));
        assert_eq!((target.database.as_str(), target.password.as_deref()), ("my 'db", Some("a b")));
        assert!(!format!("{target:?}").contains("a b"));
        let target = Target::parse("host=localhost user=u sslmode=disable").unwrap();
        assert_eq!((target.host, target.database.as_str()), (Host::Local, "u"));
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for text in ["host", "host=example.com", "port=x", "sslmode=require", "service=x", "user='x", "a=b"] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z='\\\\ /.0-9]{0,40}") {
            let _ = Target::parse(&text);
        }
    }
}
