//! Frames of SPDY/3.1 (draft-mbelshe-httpbis-spdy-00, section 2.2).

use std::collections::BTreeMap;

use super::headers::Headers;

/// Largest frame that is taken, in bytes.
const LIMIT: usize = 4 << 20;
/// Types of control frames.
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
/// Flag of a stream's last frame.
const LAST: u8 = 1;
/// Bytes before the content of a frame.
const HEAD: usize = 8;
/// A block of no headers: a zlib stream with a stored block that holds a count of zero, and an empty one, which makes
/// readers give out what they have.
const NO_HEADERS: [u8; 16] = [0x78, 0x01, 0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
/// What later blocks of the same zlib stream begin with in place of its head.
const STORED: usize = 2;

/// A frame of the client's.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Open {
        stream: u32,
        headers: BTreeMap<String, String>,
    },
    Data {
        stream: u32,
        bytes: Vec<u8>,
        last: bool,
    },
    Reset {
        stream: u32,
    },
    /// To be sent back as it is.
    Ping(Vec<u8>),
    GoAway,
    /// Of no interest here: settings, windows.
    Other,
}

/// Cuts a stream of bytes into frames.
#[derive(Default)]
pub(super) struct Frames {
    rest: Vec<u8>,
    headers: Headers,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes)
}

impl Frames {
    /// Takes bytes in; the whole frames among them.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, String> {
        self.rest.extend_from_slice(bytes);
        let mut frames = Vec::new();
        while self.rest.len() >= HEAD {
            let length = usize::try_from(word(&self.rest, 4) & 0x00ff_ffff).unwrap_or(LIMIT);
            if length > LIMIT {
                return Err(format!("a frame of {length} bytes"));
            }
            if self.rest.len() < HEAD + length {
                break;
            }
            let left = self.rest.split_off(HEAD + length);
            let frame = std::mem::replace(&mut self.rest, left);
            frames.push(self.parse(frame)?);
        }
        Ok(frames)
    }

    fn parse(&mut self, frame: Vec<u8>) -> Result<Frame, String> {
        let first = word(&frame, 0);
        let last = frame.get(4).is_some_and(|flags| flags & LAST != 0);
        if first & 0x8000_0000 == 0 {
            let bytes = frame.get(HEAD..).unwrap_or_default().to_vec();
            return Ok(Frame::Data { stream: first, bytes, last });
        }
        let stream = word(&frame, HEAD) & 0x7fff_ffff;
        match u16::try_from(first & 0xffff).unwrap_or(0) {
            SYN_STREAM => {
                // Stream, the stream it belongs to, priority, slot.
                let headers = self.headers.read(frame.get(HEAD + 10..).unwrap_or_default())?;
                Ok(Frame::Open { stream, headers })
            }
            // All blocks of headers share a dictionary: none can be left out.
            HEADERS | SYN_REPLY => {
                self.headers.read(frame.get(HEAD + 4..).unwrap_or_default()).map(|_| Frame::Other)
            }
            RST_STREAM => Ok(Frame::Reset { stream }),
            PING => Ok(Frame::Ping(frame)),
            GOAWAY => Ok(Frame::GoAway),
            _ => Ok(Frame::Other),
        }
    }
}

fn control(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80, 3];
    frame.extend(kind.to_be_bytes());
    frame.extend(u32::try_from(content.len()).unwrap_or(0).to_be_bytes());
    frame.extend_from_slice(content);
    frame
}

/// Accepts a stream, with no headers of ours.
pub(super) fn reply(stream: u32, is_first: bool) -> Vec<u8> {
    let mut content = stream.to_be_bytes().to_vec();
    content.extend(NO_HEADERS.get(if is_first { 0 } else { STORED }..).unwrap_or_default());
    control(SYN_REPLY, &content)
}

pub(super) fn reset(stream: u32) -> Vec<u8> {
    let mut content = stream.to_be_bytes().to_vec();
    // REFUSED_STREAM
    content.extend(3_u32.to_be_bytes());
    control(RST_STREAM, &content)
}

/// Bytes of a stream; at most 16 MiB.
pub(super) fn data(stream: u32, bytes: &[u8], last: bool) -> Vec<u8> {
    let mut frame = stream.to_be_bytes().to_vec();
    let length = u32::try_from(bytes.len()).unwrap_or(0) & 0x00ff_ffff;
    let flags = if last { u32::from(LAST) << 24 } else { 0 };
    frame.extend((flags | length).to_be_bytes());
    frame.extend_from_slice(bytes);
    frame
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_cut_where_they_end() {
        let mut bytes = data(5, b"abc", false);
        bytes.extend(data(5, b"", true));
        bytes.extend(control(PING, &[0, 0, 0, 9]));
        for cut in 0..bytes.len() {
            let mut frames = Frames::default();
            let (a, b) = bytes.split_at(cut);
            let mut all = frames.take(a).unwrap();
            all.extend(frames.take(b).unwrap());
            assert_eq!(all.len(), 3);
            assert_eq!(all[0], Frame::Data { stream: 5, bytes: b"abc".to_vec(), last: false });
            assert_eq!(all[1], Frame::Data { stream: 5, bytes: vec![], last: true });
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Frames::default().take(&bytes);
        }
    }
}
