//! One GET over HTTP/1.1: a question, and the answer framed as RFC 9112 has it.
//!
//! By hand, because of how many there are: a connection that the library holds open keeps some 16 KiB of buffers, and one
//! that it is lent for a single question costs it a quarter of all that a reading takes. Heads are read by the parser that
//! the library uses, too.

use std::str::from_utf8;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use httparse::{EMPTY_HEADER, Header, Response, Status};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::room::Room;

/// Most bytes of a head, of all heads before the answer, and of what follows the last chunk.
const HEAD: usize = 64 << 10;
/// Most headers.
const HEADERS: usize = 100;
/// Most bytes of the line before a chunk.
const CHUNK_LINE: usize = 1 << 10;
/// First size of the buffer, and the least that is read at once.
const FIRST: usize = 8 << 10;
/// Most room that is made before there is something to fill it.
const AHEAD: usize = 1 << 20;

/// Nothing came of it.
#[derive(Debug)]
pub(super) enum Fault {
    /// The connection broke, or the answer is invalid.
    Broken(String),
    /// The body is longer than is read.
    TooLarge,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct HttpResponse {
    pub(super) status: u16,
    /// Read for status 200 only.
    pub(super) body: Bytes,
    /// Whether the connection can be used for another request.
    pub(super) again: bool,
}

/// How the end of a body is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilClosed,
}

struct Head {
    status: u16,
    framing: Framing,
    again: bool,
    /// In bytes.
    length: usize,
}

fn broken(text: impl Into<String>) -> Fault {
    Fault::Broken(text.into())
}

/// Sends a request, and reads the response; of its body no more than so many bytes, and never more than there is room
/// for.
pub(super) async fn get<S>(
    stream: &mut S,
    question: &[u8],
    largest: usize,
    room: &mut Room<'_>,
) -> Result<HttpResponse, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(question).await.map_err(|error| broken(error.to_string()))?;
    stream.flush().await.map_err(|error| broken(error.to_string()))?;
    let mut incoming = Incoming { stream, buffer: BytesMut::with_capacity(FIRST), passed: 0, room };
    let head = incoming.head().await?;
    if head.status != 200 {
        return Ok(HttpResponse { status: head.status, body: Bytes::new(), again: false });
    }
    let body = match head.framing {
        Framing::Length(length) if length > largest => return Err(Fault::TooLarge),
        Framing::Length(length) => incoming.exactly(length).await?,
        Framing::Chunked => incoming.chunks(largest).await?,
        Framing::UntilClosed => incoming.rest(largest).await?,
    };
    // Bytes without a request would confuse the next answer.
    let again = head.again && head.framing != Framing::UntilClosed && incoming.buffer.is_empty();
    Ok(HttpResponse { status: head.status, body, again })
}

struct Incoming<'a, 'r, S> {
    stream: &'a mut S,
    buffer: BytesMut,
    /// Bytes that were read before those in the buffer, and are kept elsewhere.
    passed: usize,
    room: &'a mut Room<'r>,
}

impl<S: AsyncRead + Unpin> Incoming<'_, '_, S> {
    /// Reads some more; `false` at the end.
    async fn fill(&mut self) -> Result<bool, Fault> {
        let held = self.passed + self.buffer.len();
        while self.room.bytes() <= held {
            if !self.room.grow().await {
                return Err(Fault::TooLarge);
            }
        }
        // Doubles at least, so that copies of much data are rare.
        if self.buffer.capacity() == self.buffer.len() {
            self.buffer.reserve(self.buffer.len().clamp(FIRST, AHEAD));
        }
        let free = self.room.bytes() - held;
        let read = self.stream.read_buf(&mut (&mut self.buffer).limit(free)).await;
        read.map(|count| count > 0).map_err(|error| broken(error.to_string()))
    }

    async fn more(&mut self) -> Result<(), Fault> {
        if self.fill().await? { Ok(()) } else { Err(broken("connection closed before the answer was whole")) }
    }

    /// The head of the answer; interim responses (1xx) are skipped.
    async fn head(&mut self) -> Result<Head, Fault> {
        let (mut seen, mut passed) = (0, 0);
        loop {
            // Parsed when it is whole, so that one that comes byte by byte is not parsed each time.
            if !has_end(&self.buffer, seen) {
                seen = self.buffer.len();
                if passed + seen > HEAD {
                    return Err(broken("the head of the answer does not end"));
                }
                self.more().await?;
                continue;
            }
            let head = parse(&self.buffer)?;
            self.buffer.advance(head.length);
            if head.status >= 200 {
                return Ok(head);
            }
            (seen, passed) = (0, passed + head.length);
        }
    }

    async fn exactly(&mut self, length: usize) -> Result<Bytes, Fault> {
        while self.buffer.len() < length {
            let missing = length - self.buffer.len();
            self.buffer.reserve(missing.min(AHEAD));
            self.more().await?;
        }
        Ok(self.buffer.split_to(length).freeze())
    }

    async fn rest(&mut self, largest: usize) -> Result<Bytes, Fault> {
        loop {
            if self.buffer.len() > largest {
                return Err(Fault::TooLarge);
            }
            if !self.fill().await? {
                return Ok(self.buffer.split().freeze());
            }
        }
    }

    async fn chunks(&mut self, largest: usize) -> Result<Bytes, Fault> {
        let mut body = BytesMut::new();
        loop {
            let size = self.chunk_size().await?;
            if size == 0 {
                self.trailers().await?;
                return Ok(body.freeze());
            }
            if size > largest.saturating_sub(body.len()) {
                return Err(Fault::TooLarge);
            }
            self.chunk(size, &mut body).await?;
            if self.exactly(2).await? != b"\r\n"[..] {
                return Err(broken("a chunk of the answer is longer than its stated size"));
            }
        }
    }

    /// The bytes of a chunk, as they come: a large one is not kept twice.
    async fn chunk(&mut self, size: usize, body: &mut BytesMut) -> Result<(), Fault> {
        let mut missing = size;
        while missing > 0 {
            if self.buffer.is_empty() {
                self.more().await?;
            }
            let some = self.buffer.split_to(missing.min(self.buffer.len()));
            missing -= some.len();
            self.passed += some.len();
            body.extend_from_slice(&some);
        }
        Ok(())
    }

    async fn chunk_size(&mut self) -> Result<usize, Fault> {
        loop {
            match httparse::parse_chunk_size(&self.buffer) {
                Ok(Status::Complete((length, size))) => {
                    self.buffer.advance(length);
                    return usize::try_from(size).map_err(|_| Fault::TooLarge);
                }
                Ok(Status::Partial) if self.buffer.len() <= CHUNK_LINE => self.more().await?,
                _ => return Err(broken("the size of a chunk of the answer cannot be read")),
            }
        }
    }

    /// Passes over what follows the last chunk, up to an empty line.
    async fn trailers(&mut self) -> Result<(), Fault> {
        let mut passed = 0;
        loop {
            let line = self.buffer.iter().position(|byte| *byte == b'\n');
            let Some(end) = line else {
                if passed + self.buffer.len() > HEAD {
                    return Err(broken("what follows the answer does not end"));
                }
                self.more().await?;
                continue;
            };
            let line = self.buffer.split_to(end + 1);
            if line.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
                return Ok(());
            }
            passed += line.len();
        }
    }
}

/// Whether there is an empty line; the bytes before `seen` were searched already.
fn has_end(buffer: &[u8], seen: usize) -> bool {
    let new = buffer.get(seen.saturating_sub(3)..).unwrap_or_default();
    let breaks = new.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let mut after = breaks.map(|(at, _)| new.get(at + 1..).unwrap_or_default());
    after.any(|rest| rest.starts_with(b"\n") || rest.starts_with(b"\r\n"))
}

fn parse(buffer: &[u8]) -> Result<Head, Fault> {
    let mut headers = [EMPTY_HEADER; HEADERS];
    let mut response = Response::new(&mut headers);
    let length = match response.parse(buffer) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Err(broken("the head of the answer cannot be read")),
        Err(error) => {
            return Err(broken(format!("the head of the answer cannot be read: {error}")));
        }
    };
    let status = response.code.unwrap_or_default();
    let is_new = response.version == Some(1);
    let (framing, is_plain) = framing(response.headers)?;
    let closes = words(response.headers, "connection").any(|word| word.eq_ignore_ascii_case("close"));
    Ok(Head { status, framing, again: is_new && is_plain && !closes, length })
}

/// The words of all headers of this name.
fn words<'a>(headers: &'a [Header<'a>], name: &'a str) -> impl Iterator<Item = &'a str> {
    let named = headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
    // A value that is not text counts as one unknown word.
    let texts = named.map(|header| from_utf8(header.value).unwrap_or("?"));
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

/// How the end of the body is found, and whether the headers are unambiguous about it.
fn framing(headers: &[Header<'_>]) -> Result<(Framing, bool), Fault> {
    let mut lengths = words(headers, "content-length");
    let first = lengths.next();
    if lengths.any(|other| Some(other) != first) {
        return Err(broken("the answer has two lengths"));
    }
    let coding = words(headers, "transfer-encoding").collect::<Vec<_>>();
    match coding.as_slice() {
        [] => {}
        [one] if one.eq_ignore_ascii_case("chunked") => {
            return Ok((Framing::Chunked, first.is_none()));
        }
        _ => {
            return Err(broken("the answer has a transfer encoding that was not asked for"));
        }
    }
    let Some(text) = first else {
        return Ok((Framing::UntilClosed, true));
    };
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let length = text.parse().ok().filter(|_| digits);
    length
        .map(|length| (Framing::Length(length), true))
        .ok_or_else(|| broken("the answer has no sound length"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::room::Rooms;
    use super::*;

    const LARGEST: usize = 100;

    /// What comes of an answer that arrives in pieces of so many bytes.
    async fn read(answer: &[u8], piece: usize) -> Result<HttpResponse, Fault> {
        let (mut here, mut there) = tokio::io::duplex(piece);
        let answer = answer.to_vec();
        let other = tokio::spawn(async move {
            let mut question = [0; 16];
            there.read_exact(&mut question).await.unwrap();
            // The client may have closed the connection early.
            let _ = there.write_all(&answer).await;
        });
        let rooms = Rooms::new(0, 1, Duration::from_secs(1));
        let share = rooms.share();
        let done = get(&mut here, b"GET / HTTP/1.1\r\n", LARGEST, &mut Room::small(&rooms, &share)).await;
        drop(here);
        other.await.unwrap();
        done
    }

    #[tokio::test]
    async fn bodies_end_where_the_head_states() {
        for (answer, body, again) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello", true),
            ("HTTP/1.1 200 OK\ncontent-length: 5\n\nhello", "hello", true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\nhello", "hello", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\nConnection: x, Close\r\n\r\nhello", "hello", false),
            ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello", false),
            ("HTTP/1.1 200 OK\r\n\r\nhello", "hello", false),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab", "ab", true),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
                "hello",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\na: b\r\n\r\n",
                "hello",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n1\r\nh\r\n0\r\n\r\n",
                "h",
                false,
            ),
        ] {
            for piece in [1, 2, 3, 7, 1000] {
                let done = read(answer.as_bytes(), piece).await.unwrap();
                assert_eq!(
                    (done.status, &done.body[..], done.again),
                    (200, body.as_bytes(), again),
                    "{answer} {piece}"
                );
            }
        }
        // More than requested: the connection cannot be used again.
        let more = read(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhelloHTTP", 1000).await.unwrap();
        assert!(!more.again && more.body == b"hello"[..]);
        let other = read(b"HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\nhello", 1000).await.unwrap();
        assert_eq!(other, HttpResponse { status: 404, body: Bytes::new(), again: false });
    }

    #[tokio::test]
    async fn nonsense_and_halves_are_refused() {
        let endless = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(2 * HEAD));
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(HEAD / 10);
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1));
        let chunk =
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;{}", "x".repeat(2 * CHUNK_LINE));
        let after =
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n{}", "a: b\r\n".repeat(HEAD));
        for answer in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "<html>\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell",
            "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ncontent-length: 5, 6\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999999\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhelloooo\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\nhello\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
            &endless,
            &interim,
            &many,
            &chunk,
            &after,
        ] {
            for piece in [3, 1000] {
                let done = read(answer.as_bytes(), piece).await;
                assert!(matches!(done, Err(Fault::Broken(_))), "{:?} {done:?}", answer.get(..80));
            }
        }
    }

    #[tokio::test]
    async fn large_bodies_are_refused_however_they_come() {
        let body = "x".repeat(LARGEST + 1);
        for head in [
            format!("content-length: {}\r\n\r\n", body.len()),
            format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len()),
            "transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n".to_owned(),
            format!(
                "transfer-encoding: chunked\r\n\r\n{:x}\r\n{}\r\n5\r\n",
                LARGEST - 2,
                &body[..LARGEST - 2]
            ),
            "\r\n".to_owned(),
        ] {
            let answer = format!("HTTP/1.1 200 OK\r\n{head}{body}");
            assert!(matches!(read(answer.as_bytes(), 1000).await, Err(Fault::TooLarge)), "{head}");
        }
    }
}
