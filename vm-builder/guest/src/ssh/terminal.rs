//! A pseudo-terminal and its modes by RFC 4254 §8.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, Winsize, tcgetattr,
    tcsetattr, tcsetwinsize,
};
use tokio::net::unix::pipe;

/// The group `tty` of every distribution.
const TTY_GROUP: u32 = 5;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: u32,
    pub(super) rows: u32,
    pub(super) width: u32,
    pub(super) height: u32,
}

impl From<Size> for Winsize {
    fn from(size: Size) -> Self {
        let clamp = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
        Self {
            ws_row: clamp(size.rows),
            ws_col: clamp(size.columns),
            ws_xpixel: clamp(size.width),
            ws_ypixel: clamp(size.height),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TerminalRequest {
    pub(super) term: String,
    pub(super) size: Size,
    pub(super) modes: Vec<(u8, u32)>,
}

/// What a program on a terminal is given, and what the server keeps.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) terminal: Terminal,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    pub(super) line: OwnedFd,
    pub(super) path: String,
}

/// The server's end, for its size.
#[derive(Debug)]
pub(super) struct Terminal(OwnedFd);

/// The server's end, for output.
#[derive(Debug)]
pub(super) struct Reader(pipe::Receiver);

/// The server's end, for input.
#[derive(Debug)]
pub(super) struct Writer(pipe::Sender);

pub(super) fn open(request: &TerminalRequest, uid: u32) -> io::Result<Opened> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let path = ptsname(&master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let line = rustix::fs::open(&path, flags, Mode::empty())?;
    // Programs such as screen open the line by its name. Not every file system of terminals lets it change.
    let _ = rustix::fs::fchown(&line, Some(Uid::from_raw(uid)), Some(Gid::from_raw(TTY_GROUP)));
    let _ = rustix::fs::fchmod(&line, Mode::from_raw_mode(0o620));
    let mut termios = tcgetattr(&line)?;
    for (mode, value) in &request.modes {
        apply(&mut termios, *mode, *value);
    }
    tcsetattr(&line, OptionalActions::Now, &termios)?;
    tcsetwinsize(&line, request.size.into())?;
    rustix::io::ioctl_fionbio(&master, true)?;
    // To the event loop a terminal is as good as a pipe.
    let reader = Reader(pipe::Receiver::from_owned_fd_unchecked(master.try_clone()?)?);
    let writer = Writer(pipe::Sender::from_owned_fd_unchecked(master.try_clone()?)?);
    let path = path.to_string_lossy().into_owned();
    Ok(Opened { terminal: Terminal(master), reader, writer, line, path })
}

impl Terminal {
    /// Sets the terminal's size; the kernel notifies the programs on it.
    pub(super) fn resize(&self, size: Size) -> bool {
        tcsetwinsize(&self.0, size.into()).is_ok()
    }
}

impl Reader {
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.0.readable().await?;
            // Not the trait's `read`: it takes a short read for the last one, which holds for pipes only.
            match self.0.try_read(buffer) {
                Err(error) if again(&error) => {}
                read => return read,
            }
        }
    }
}

impl Writer {
    pub(super) async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            self.0.writable().await?;
            match self.0.try_write(data) {
                Ok(written) => data = data.get(written..).unwrap_or_default(),
                Err(error) if again(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Sets one mode; those that mean nothing on Linux change nothing.
fn apply(termios: &mut Termios, mode: u8, value: u32) {
    let code = match mode {
        1 => Some(SpecialCodeIndex::VINTR),
        2 => Some(SpecialCodeIndex::VQUIT),
        3 => Some(SpecialCodeIndex::VERASE),
        4 => Some(SpecialCodeIndex::VKILL),
        5 => Some(SpecialCodeIndex::VEOF),
        6 => Some(SpecialCodeIndex::VEOL),
        7 => Some(SpecialCodeIndex::VEOL2),
        8 => Some(SpecialCodeIndex::VSTART),
        9 => Some(SpecialCodeIndex::VSTOP),
        10 => Some(SpecialCodeIndex::VSUSP),
        12 => Some(SpecialCodeIndex::VREPRINT),
        13 => Some(SpecialCodeIndex::VWERASE),
        14 => Some(SpecialCodeIndex::VLNEXT),
        18 => Some(SpecialCodeIndex::VDISCARD),
        _ => None,
    };
    if let (Some(code), Ok(value)) = (code, u8::try_from(value)) {
        // 255 switches a character off.
        termios.special_codes[code] = if value == u8::MAX { 0 } else { value };
    }
    let on = value != 0;
    if let Some(flag) = input_mode(mode) {
        termios.input_modes.set(flag, on);
    }
    if let Some(flag) = local_mode(mode) {
        termios.local_modes.set(flag, on);
    }
    if let Some(flag) = output_mode(mode) {
        termios.output_modes.set(flag, on);
    }
}

const fn input_mode(mode: u8) -> Option<InputModes> {
    Some(match mode {
        30 => InputModes::IGNPAR,
        31 => InputModes::PARMRK,
        32 => InputModes::INPCK,
        33 => InputModes::ISTRIP,
        34 => InputModes::INLCR,
        35 => InputModes::IGNCR,
        36 => InputModes::ICRNL,
        37 => InputModes::IUCLC,
        38 => InputModes::IXON,
        39 => InputModes::IXANY,
        40 => InputModes::IXOFF,
        41 => InputModes::IMAXBEL,
        42 => InputModes::IUTF8,
        _ => return None,
    })
}

const fn local_mode(mode: u8) -> Option<LocalModes> {
    Some(match mode {
        50 => LocalModes::ISIG,
        51 => LocalModes::ICANON,
        53 => LocalModes::ECHO,
        54 => LocalModes::ECHOE,
        55 => LocalModes::ECHOK,
        56 => LocalModes::ECHONL,
        57 => LocalModes::NOFLSH,
        58 => LocalModes::TOSTOP,
        59 => LocalModes::IEXTEN,
        60 => LocalModes::ECHOCTL,
        61 => LocalModes::ECHOKE,
        62 => LocalModes::PENDIN,
        _ => return None,
    })
}

const fn output_mode(mode: u8) -> Option<OutputModes> {
    Some(match mode {
        70 => OutputModes::OPOST,
        71 => OutputModes::OLCUC,
        72 => OutputModes::ONLCR,
        73 => OutputModes::OCRNL,
        74 => OutputModes::ONOCR,
        75 => OutputModes::ONLRET,
        _ => return None,
    })
}
