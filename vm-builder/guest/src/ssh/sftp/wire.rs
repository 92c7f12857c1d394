//! Packets of the protocol.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// Outcomes that the protocol defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok = 0,
    End = 1,
    NoSuchFile = 2,
    PermissionDenied = 3,
    Failure = 4,
    BadMessage = 5,
    Unsupported = 8,
}

impl From<io::Error> for Status {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NoSuchFile,
            io::ErrorKind::PermissionDenied => Self::PermissionDenied,
            io::ErrorKind::UnexpectedEof => Self::End,
            _ => Self::Failure,
        }
    }
}

impl From<rustix::io::Errno> for Status {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

/// Reads fields of a packet from front to back.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) const fn new(packet: &'a [u8]) -> Self {
        Self(packet)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(super) fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn long(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Bytes with their length before them.
    pub(super) fn text(&mut self) -> Result<&'a [u8], Status> {
        let length = self.number().and_then(|length| usize::try_from(length).ok());
        length.and_then(|length| self.take(length)).ok_or(Status::BadMessage)
    }

    pub(super) fn attributes(&mut self) -> Result<Attributes, Status> {
        self.read_attributes().ok_or(Status::BadMessage)
    }

    fn read_attributes(&mut self) -> Option<Attributes> {
        let flags = self.number()?;
        let has = |flag| flags & flag != 0;
        Some(Attributes {
            size: if has(1) { Some(self.long()?) } else { None },
            owner: if has(2) { Some((self.number()?, self.number()?)) } else { None },
            mode: if has(4) { Some(self.number()?) } else { None },
            times: if has(8) { Some((self.number()?, self.number()?)) } else { None },
        })
    }
}

/// Attributes of a file, as read or to be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) size: Option<u64>,
    pub(super) owner: Option<(u32, u32)>,
    pub(super) mode: Option<u32>,
    /// Last access and change, in Unix seconds.
    pub(super) times: Option<(u32, u32)>,
}

impl From<&Metadata> for Attributes {
    fn from(metadata: &Metadata) -> Self {
        let time = |seconds: i64| u32::try_from(seconds).unwrap_or(if seconds < 0 { 0 } else { u32::MAX });
        Self {
            size: Some(metadata.len()),
            owner: Some((metadata.uid(), metadata.gid())),
            mode: Some(metadata.mode()),
            times: Some((time(metadata.atime()), time(metadata.mtime()))),
        }
    }
}

/// An answer being written.
#[derive(Clone, Debug)]
pub(super) struct Reply(Vec<u8>);

impl Reply {
    fn new(kind: u8, id: u32) -> Self {
        // Room for the length.
        let mut reply = Self(vec![0, 0, 0, 0, kind]);
        reply.number(id);
        reply
    }

    pub(super) fn version(extensions: &[(&str, &str)]) -> Self {
        let mut reply = Self::new(2, 3);
        for (name, value) in extensions {
            reply.text(name.as_bytes());
            reply.text(value.as_bytes());
        }
        reply
    }

    pub(super) fn status(id: u32, status: Status) -> Self {
        let mut reply = Self::new(101, id);
        reply.number(status as u32);
        reply.text(format!("{status:?}").as_bytes());
        reply.text(b"");
        reply
    }

    pub(super) fn handle(id: u32, handle: u32) -> Self {
        let mut reply = Self::new(102, id);
        reply.text(&handle.to_be_bytes());
        reply
    }

    pub(super) fn data(id: u32, data: &[u8]) -> Self {
        let mut reply = Self::new(103, id);
        reply.text(data);
        reply
    }

    pub(super) fn attributes(id: u32, attributes: &Attributes) -> Self {
        let mut reply = Self::new(105, id);
        reply.attribute_fields(attributes);
        reply
    }

    /// Names with what people read and what programs read.
    pub(super) fn names(id: u32, names: &[(Vec<u8>, String, Attributes)]) -> Self {
        let mut reply = Self::new(104, id);
        reply.number(u32::try_from(names.len()).unwrap_or(u32::MAX));
        for (name, line, attributes) in names {
            reply.text(name);
            reply.text(line.as_bytes());
            reply.attribute_fields(attributes);
        }
        reply
    }

    pub(super) fn extended(id: u32, numbers: &[u64]) -> Self {
        let mut reply = Self::new(201, id);
        for number in numbers {
            reply.0.extend(number.to_be_bytes());
        }
        reply
    }

    pub(super) fn into_packet(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len().saturating_sub(4)).unwrap_or(u32::MAX);
        for (byte, length) in self.0.iter_mut().zip(length.to_be_bytes()) {
            *byte = length;
        }
        self.0
    }

    fn number(&mut self, number: u32) {
        self.0.extend(number.to_be_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.number(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.0.extend(text);
    }

    fn attribute_fields(&mut self, attributes: &Attributes) {
        let Attributes { size, owner, mode, times } = attributes;
        let flag = |known: bool, flag: u32| if known { flag } else { 0 };
        self.number(
            flag(size.is_some(), 1)
                | flag(owner.is_some(), 2)
                | flag(mode.is_some(), 4)
                | flag(times.is_some(), 8),
        );
        self.0.extend(size.iter().flat_map(|size| size.to_be_bytes()));
        let pairs = [*owner, mode.map(|mode| (mode, 0)), *times];
        for (index, (first, second)) in pairs.into_iter().enumerate().filter_map(|(i, pair)| Some((i, pair?)))
        {
            self.number(first);
            if index != 1 {
                self.number(second);
            }
        }
    }
}
