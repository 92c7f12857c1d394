//! Protocol 3.0 of PostgreSQL: start-up and simple queries.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::authenticate::Login;
use super::{Error, Host, Target};

/// Version 3.0 in the start-up packet.
const VERSION: u32 = 196_608;
/// Longest message that is read, in bytes: answers are one number, errors a few lines.
const LONGEST: usize = 64 * 1024;
/// Most messages of one answer.
const MOST_MESSAGES: usize = 200;

trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// A connection that is ready for queries.
pub struct Connection {
    stream: Box<dyn Stream>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// When the server cannot be reached within the target's timeout, or refuses.
    pub async fn open(target: &Target) -> Result<Self, Error> {
        let opening = async {
            let mut connection = Self { stream: connect(target).await? };
            connection.start(target).await?;
            Ok(connection)
        };
        timeout(target.connect_timeout, opening)
            .await
            .unwrap_or_else(|_| Err(Error::Io(io::ErrorKind::TimedOut.into())))
    }

    async fn start(&mut self, target: &Target) -> Result<(), Error> {
        let mut body = VERSION.to_be_bytes().to_vec();
        for (name, value) in [
            ("user", &target.user),
            ("database", &target.database),
            ("application_name", &target.application),
        ] {
            body.extend([name.as_bytes(), &[0], value.as_bytes(), &[0]].concat());
        }
        body.push(0);
        self.stream.write_all(&framed(None, &body)?).await?;
        let mut login = Login::new(target);
        for _ in 0..MOST_MESSAGES {
            let (kind, body) = self.message().await?;
            match kind {
                b'R' => {
                    if let Some(answer) = login.answer(&body)? {
                        self.stream.write_all(&framed(Some(b'p'), &answer)?).await?;
                    }
                }
                b'E' => return Err(Error::Server(complaint(&body))),
                b'Z' => return if login.is_done() { Ok(()) } else { Err(Error::Protocol("ready too soon")) },
                b'S' | b'K' | b'N' | b'v' => {}
                _ => return Err(Error::Protocol("an unknown message at the start")),
            }
        }
        Err(Error::Protocol("no end of messages"))
    }

    /// Runs one statement. Returns the first column of its first row, if there is one.
    ///
    /// # Errors
    /// The server's error; the connection can be used further unless the error is one of the connection.
    pub async fn value(&mut self, statement: &str) -> Result<Option<String>, Error> {
        let body = [statement.as_bytes(), &[0]].concat();
        self.stream.write_all(&framed(Some(b'Q'), &body)?).await?;
        let (mut value, mut failed) = (None, None);
        for _ in 0..MOST_MESSAGES {
            let (kind, body) = self.message().await?;
            match kind {
                b'D' => value = value.or(first_column(&body)),
                b'E' => failed = Some(complaint(&body)),
                b'Z' => return failed.map_or(Ok(value), |failed| Err(Error::Server(failed))),
                b'T' | b'C' | b'N' | b'S' | b'I' | b'A' => {}
                _ => return Err(Error::Protocol("an unknown message in an answer")),
            }
        }
        Err(Error::Protocol("no end of messages"))
    }

    /// Ends the session in the protocol's way, then closes it.
    pub async fn close(mut self) {
        let _ = self.stream.write_all(&[b'X', 0, 0, 0, 4]).await;
        let _ = self.stream.shutdown().await;
    }

    async fn message(&mut self) -> Result<(u8, Vec<u8>), Error> {
        let kind = self.stream.read_u8().await?;
        let length = self.stream.read_u32().await?.checked_sub(4).map(usize::try_from);
        let Some(Ok(length)) = length.filter(|length| matches!(length, Ok(length) if *length <= LONGEST))
        else {
            return Err(Error::Protocol("a message of impossible length"));
        };
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok((kind, body))
    }
}

async fn connect(target: &Target) -> io::Result<Box<dyn Stream>> {
    let tcp = async |address: IpAddr| TcpStream::connect((address, target.port)).await;
    Ok(match &target.host {
        Host::Socket(directory) => {
            Box::new(UnixStream::connect(directory.join(format!(".s.PGSQL.{}", target.port))).await?)
        }
        Host::Address(address) => Box::new(tcp(*address).await?),
        Host::Local => match tcp(Ipv4Addr::LOCALHOST.into()).await {
            Ok(stream) => Box::new(stream),
            Err(_) => Box::new(tcp(Ipv6Addr::LOCALHOST.into()).await?),
        },
    })
}

fn framed(kind: Option<u8>, body: &[u8]) -> Result<Vec<u8>, Error> {
    let length = u32::try_from(body.len() + 4).map_err(|_| Error::Protocol("too long"))?;
    Ok(kind.into_iter().chain(length.to_be_bytes()).chain(body.iter().copied()).collect())
}

/// Severity-less text of an error: its message (`M`) and its code (`C`).
fn complaint(body: &[u8]) -> String {
    let field = |code: u8| {
        let field = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&code))?;
        let text = String::from_utf8_lossy(field.get(1..)?);
        Some(text.chars().filter(|character| !character.is_control()).take(300).collect::<String>())
    };
    let text = field(b'M').unwrap_or_else(|| "an error without text".to_owned());
    field(b'C').map_or(text.clone(), |code| format!("{text} ({code})"))
}

/// The first column of a row; None if it is NULL or no text.
fn first_column(body: &[u8]) -> Option<String> {
    let (_, rest) = body.split_first_chunk::<2>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
    String::from_utf8(rest.get(..length)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_errors_are_read() {
        assert_eq!(first_column(b"\0\x01\0\0\0\x0242"), Some("42".into()));
        assert_eq!(first_column(b"\0\x01\xff\xff\xff\xff"), None);
        assert_eq!(first_column(b"\0\x01\0\0\0\x0942"), None);
        assert_eq!(complaint(b"SERROR\0C42704\0Munknown\0\0"), "unknown (42704)");
        assert_eq!(complaint(b""), "an error without text");
    }
}
