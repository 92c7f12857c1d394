//! The standard streams of a workload, between one client and the daemon of the guest.
//!
//! A client sends `GET` [`ATTACH_PATH`] with an upgrade to [`ATTACH_PROTOCOL`]; after the response `101` both sides send frames: a
//! byte for the [`Frame`], the length as four bytes, most significant first, and so many bytes. The end of a direction is a frame,
//! so a connection that breaks is never taken for an end.

use serde::{Deserialize, Serialize};

/// Where a client attaches, on the daemon's port.
pub const ATTACH_PATH: &str = "/attach";
/// Protocol to upgrade to.
pub const ATTACH_PROTOCOL: &str = "neonvm-attach-1";
/// Bytes of a frame's header.
pub const FRAME_HEADER: usize = 5;
/// Most bytes of a frame after its header.
pub const LONGEST_FRAME: usize = 32 << 10;

/// Which of its streams a workload has from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Attach {
    /// Standard output and standard error; standard input is `/dev/null`.
    Output,
    /// Standard input as well.
    InputAndOutput,
}

/// What a frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// From the client: bytes of standard input.
    Input,
    /// To the client: bytes of standard output.
    Output,
    /// To the client: bytes of standard error.
    Errors,
    /// No more of this direction; it has no bytes.
    End,
}

/// The header of a frame of this length, which is at most [`LONGEST_FRAME`].
#[must_use]
pub fn frame_header(frame: Frame, length: usize) -> [u8; FRAME_HEADER] {
    let kind = match frame {
        Frame::Input => 0,
        Frame::Output => 1,
        Frame::Errors => 2,
        Frame::End => 3,
    };
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [kind, a, b, c, d]
}

/// What a header announces; none for a kind that does not exist and for a length above [`LONGEST_FRAME`].
#[must_use]
pub fn read_frame_header(header: [u8; FRAME_HEADER]) -> Option<(Frame, usize)> {
    let [kind, a, b, c, d] = header;
    let frame = match kind {
        0 => Frame::Input,
        1 => Frame::Output,
        2 => Frame::Errors,
        3 => Frame::End,
        _ => return None,
    };
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?;
    (length <= LONGEST_FRAME && (frame != Frame::End || length == 0)).then_some((frame, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_back_and_others_refused() {
        for frame in [Frame::Input, Frame::Output, Frame::Errors] {
            for length in [0, 1, 300, LONGEST_FRAME] {
                assert_eq!(read_frame_header(frame_header(frame, length)), Some((frame, length)));
            }
            assert_eq!(read_frame_header(frame_header(frame, LONGEST_FRAME + 1)), None);
        }
        assert_eq!(read_frame_header(frame_header(Frame::End, 0)), Some((Frame::End, 0)));
        assert_eq!(read_frame_header(frame_header(Frame::End, 1)), None);
        assert_eq!(read_frame_header([4, 0, 0, 0, 0]), None);
    }
}
