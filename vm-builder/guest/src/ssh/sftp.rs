//! Files over SSH: version 3 of the SFTP protocol (draft-ietf-secsh-filexfer-02), as OpenSSH speaks it.
//!
//! It runs in a process of the user's, on standard input and output, and does one request after another.
//!
//! Not `russh-sftp` 3.0: it replaces what is not UTF-8 in names, so that one file is removed instead of another (tested below),
//! and reads on after a packet of impossible length. What the requests do, the larger part, would be ours with it, too.

mod files;
mod wire;

use std::io::{self, BufRead, BufReader, Read, Write};

use super::Error;
use files::Files;
use wire::{Fields, Reply, Status};

/// Largest packet either way, as OpenSSH has it.
const LARGEST_PACKET: u32 = 256 * 1024;
/// Largest piece of a file in one answer or request.
const LARGEST_PIECE: u32 = LARGEST_PACKET - 1024;
/// Most open files and directories.
const MOST_HANDLES: usize = 256;

const INIT: u8 = 1;
const EXTENDED: u8 = 200;

/// Serves files on standard input and output until input ends.
pub(super) fn run() -> Result<(), Error> {
    serve(BufReader::with_capacity(64 * 1024, io::stdin().lock()), io::stdout().lock())
        .map_err(Error::system("serve files"))
}

fn serve(mut input: BufReader<impl Read>, output: impl Write) -> io::Result<()> {
    let mut output = io::BufWriter::with_capacity(64 * 1024, output);
    let mut files = Files::default();
    while let Some(packet) = packet(&mut input)? {
        let reply = answer(&mut files, &packet);
        output.write_all(&reply.into_packet())?;
        // Answers wait for one another as long as requests are at hand already.
        if input.buffer().is_empty() {
            output.flush()?;
        }
    }
    output.flush()
}

/// The next packet without its length; none at the end of input.
fn packet(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    if input.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length == 0 || length > LARGEST_PACKET {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet of impossible length"));
    }
    let mut packet = vec![0; usize::try_from(length).unwrap_or_default()];
    input.read_exact(&mut packet)?;
    Ok(Some(packet))
}

fn answer(files: &mut Files, packet: &[u8]) -> Reply {
    let mut fields = Fields::new(packet);
    let Some(kind) = fields.byte() else { return Reply::status(0, Status::BadMessage) };
    if kind == INIT {
        return Reply::version(&[
            ("posix-rename@openssh.com", "1"),
            ("hardlink@openssh.com", "1"),
            ("fsync@openssh.com", "1"),
            ("limits@openssh.com", "1"),
        ]);
    }
    let Some(id) = fields.number() else { return Reply::status(0, Status::BadMessage) };
    let done = if kind == EXTENDED {
        extended(files, id, &mut fields)
    } else {
        files.request(kind, id, &mut fields)
    };
    done.unwrap_or_else(|status| Reply::status(id, status))
}

fn extended(files: &mut Files, id: u32, fields: &mut Fields<'_>) -> Result<Reply, Status> {
    match fields.text()? {
        b"posix-rename@openssh.com" => files.rename(id, fields, true),
        b"hardlink@openssh.com" => files.link(id, fields),
        b"fsync@openssh.com" => files.sync(id, fields),
        b"limits@openssh.com" => {
            let limits = [LARGEST_PACKET, LARGEST_PIECE, LARGEST_PIECE].map(u64::from);
            let handles = u64::try_from(MOST_HANDLES).unwrap_or_default();
            Ok(Reply::extended(id, &[limits[0], limits[1], limits[2], handles]))
        }
        _ => Err(Status::Unsupported),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exchange(input: &[u8]) -> (io::Result<()>, Vec<u8>) {
        let mut output = Vec::new();
        (serve(BufReader::new(input), &mut output), output)
    }

    fn framed(packet: &[u8]) -> Vec<u8> {
        [&u32::try_from(packet.len()).unwrap().to_be_bytes(), packet].concat()
    }

    #[test]
    fn the_version_is_three() {
        let (result, output) = exchange(&framed(&[INIT, 0, 0, 0, 6]));
        assert!(result.is_ok());
        assert_eq!(output[4..9], [2, 0, 0, 0, 3]);
    }

    #[test]
    fn a_missing_file_is_reported_as_missing() {
        let path = b"/nowhere/at/all";
        let packet = [&[17, 0, 0, 0, 9, 0, 0, 0, 15][..], path].concat();
        let (_, output) = exchange(&framed(&packet));
        assert_eq!(output[4..13], [101, 0, 0, 0, 9, 0, 0, 0, 2]);
    }

    #[test]
    fn names_are_bytes() {
        use std::os::unix::ffi::OsStrExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &[u8]| directory.path().join(std::ffi::OsStr::from_bytes(name));
        let (bytes, replaced) = (path(b"a\xff"), path("a\u{fffd}".as_bytes()));
        for file in [&bytes, &replaced] {
            std::fs::write(file, "").unwrap();
        }
        let name = bytes.as_os_str().as_bytes();
        let length = u32::try_from(name.len()).unwrap().to_be_bytes();
        let (_, output) = exchange(&framed(&[&[13, 0, 0, 0, 9][..], &length, name].concat()));
        assert_eq!(output[4..13], [101, 0, 0, 0, 9, 0, 0, 0, 0]);
        assert!(!bytes.exists() && replaced.exists());
    }

    #[test]
    fn impossible_lengths_end_it() {
        for input in [&[0, 0, 0, 0][..], &[0xff; 8], &[0, 0, 0, 5, 1]] {
            assert!(exchange(input).0.is_err());
        }
    }

    proptest! {
        /// Kinds of requests that cannot change anything without a whole path or handle.
        #[test]
        fn any_packet_is_answered(kind in any::<u8>(), rest in proptest::collection::vec(0u8..4, 0..40)) {
            let packet = [&[kind], &rest[..]].concat();
            let (result, output) = exchange(&framed(&packet));
            prop_assert!(result.is_ok());
            let length = u32::from_be_bytes(output[..4].try_into().unwrap());
            prop_assert_eq!(usize::try_from(length).unwrap() + 4, output.len());
        }
    }
}
