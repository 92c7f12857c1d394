//! What the server answers to a client.

use std::collections::BTreeMap;
use std::sync::Arc;

use russh::keys::PublicKey;
use russh::server::{Auth, ChannelOpenHandle, Handle, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{ChannelId, ChannelOpenFailure, Pty, Sig};

use super::authorized::{self, Grant};
use super::channel::{Channel, Request};
use super::forward::{Forwards, Target};
use super::options::Options;
use super::shared::{Addresses, Shared};
use super::terminal::{Size, TerminalRequest};
use super::{Error, log};
use crate::config::{Account, Accounts};

/// Most channels of a connection at a time.
const CHANNELS: usize = 16;

#[derive(Debug)]
pub(super) struct Handler {
    options: Options,
    addresses: Addresses,
    shared: Arc<Shared>,
    login: Option<(Account, Grant)>,
    channels: BTreeMap<u32, Channel>,
    forwards: Forwards,
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.forwards.end();
    }
}

impl Handler {
    pub(super) fn new(options: Options, addresses: Addresses, shared: Arc<Shared>) -> Self {
        Self {
            options,
            addresses,
            shared,
            login: None,
            channels: BTreeMap::new(),
            forwards: Forwards::default(),
        }
    }

    fn find(&self, user: &str, key: &PublicKey) -> Option<(Account, Grant)> {
        // By name alone, not by a number or with a group.
        let account = Accounts::read().resolve(user).ok();
        let account = account.filter(|account| account.name.as_deref() == Some(user))?;
        let grant = authorized::find(&account, key, &self.options.authorized_keys, |why| log(&why))?;
        Some((account, grant))
    }

    fn verbose(&self, line: &str) {
        if self.options.verbose {
            log(line);
        }
    }

    fn channel(&mut self, id: ChannelId) -> Option<&mut Channel> {
        self.channels.get_mut(&u32::from(id))
    }

    fn may_forward(&self) -> bool {
        self.login.as_ref().is_some_and(|(_, grant)| !grant.no_forwarding)
    }

    /// Connects for a client that may, and drops the library's own half of the channel.
    async fn connect(
        &self,
        target: Option<Target>,
        channel: russh::Channel<Msg>,
        reply: ChannelOpenHandle,
        handle: Handle,
    ) {
        self.verbose(&format!("forward to {target:?}"));
        match target.filter(|_| self.may_forward()) {
            Some(target) => {
                let shared = Arc::clone(&self.shared);
                self.forwards.connect(target, channel.id(), reply, handle, shared);
            }
            None => reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await,
        }
    }

    async fn request(&mut self, id: ChannelId, request: Request, session: &mut Session) -> Result<(), Error> {
        let (shared, addresses) = (Arc::clone(&self.shared), self.addresses);
        let started = match (&self.login, self.channels.get_mut(&u32::from(id))) {
            (Some((account, grant)), Some(channel)) => {
                channel.start(account, grant, request, addresses, shared, (session.handle(), id))
            }
            _ => return Ok(session.channel_failure(id)?),
        };
        match started {
            Ok(()) => session.channel_success(id)?,
            Err(why) => {
                log(&why);
                session.channel_failure(id)?;
            }
        }
        Ok(())
    }
}

/// Reports to the client whether a request was accepted.
fn reply(session: &mut Session, id: ChannelId, taken: bool) -> Result<(), Error> {
    let sent = if taken { session.channel_success(id) } else { session.channel_failure(id) };
    Ok(sent?)
}

impl russh::server::Handler for Handler {
    type Error = Error;

    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, Error> {
        let found = self.find(user, offer.public_key).is_some();
        Ok(if found { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Error> {
        self.login = self.find(user, key.public_key);
        let verdict = if self.login.is_some() { "logs in" } else { "is refused" };
        let print = key.public_key.fingerprint(russh::keys::HashAlg::Sha256);
        let peer = self.addresses.peer.map_or_else(|| "somewhere".to_owned(), |peer| peer.to_string());
        log(&format!("{user:?} from {peer} {verdict} with {print}"));
        Ok(if self.login.is_some() { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_succeeded(&mut self, _session: &mut Session) -> Result<(), Error> {
        self.shared.authenticated.send_replace(true);
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: russh::Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Error> {
        if self.login.is_none() || self.channels.len() >= CHANNELS {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        self.channels.insert(u32::from(channel.id()), Channel::default());
        reply.accept().await;
        // The library's own half is not used: its queue would hold up the whole connection.
        drop(channel);
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: russh::Channel<Msg>,
        host: &str,
        port: u32,
        _originator: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), Error> {
        let target = u16::try_from(port).ok().map(|port| Target::Tcp(host.to_owned(), port));
        self.connect(target, channel, reply, session.handle()).await;
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: russh::Channel<Msg>,
        path: &str,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), Error> {
        let is_root = self.login.as_ref().is_some_and(|(account, _)| account.uid == 0);
        let target = is_root.then(|| Target::Socket(path.to_owned()));
        self.connect(target, channel, reply, session.handle()).await;
        Ok(())
    }

    /// Of channels that this side opens: for connections to ports that the client listens on.
    async fn channel_open_confirmation(
        &mut self,
        id: ChannelId,
        _max_packet_size: u32,
        _window_size: u32,
        session: &mut Session,
    ) -> Result<(), Error> {
        if !self.forwards.begin(id) {
            session.close(id)?;
        }
        Ok(())
    }

    async fn tcpip_forward(
        &mut self,
        address: &str,
        port: &mut u32,
        session: &mut Session,
    ) -> Result<bool, Error> {
        if !self.may_forward() {
            return Ok(false);
        }
        let shared = Arc::clone(&self.shared);
        let taken = self.forwards.listen(address, *port, session.handle(), shared).await;
        *port = taken.unwrap_or(*port);
        Ok(taken.is_some())
    }

    async fn cancel_tcpip_forward(
        &mut self,
        _address: &str,
        port: u32,
        _session: &mut Session,
    ) -> Result<bool, Error> {
        Ok(self.forwards.cancel(port))
    }

    async fn env_request(
        &mut self,
        id: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), Error> {
        let taken = self.channel(id).is_some_and(|channel| channel.set(name, value));
        reply(session, id, taken)
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        term: &str,
        columns: u32,
        rows: u32,
        width: u32,
        height: u32,
        modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Error> {
        let allowed = self.login.as_ref().is_some_and(|(_, grant)| !grant.no_pty);
        let request = TerminalRequest {
            term: term.to_owned(),
            size: Size { columns, rows, width, height },
            modes: modes.iter().map(|(mode, value)| (*mode as u8, *value)).collect(),
        };
        let taken = allowed && self.channel(id).is_some_and(|channel| channel.request_terminal(request));
        reply(session, id, taken)
    }

    async fn shell_request(&mut self, id: ChannelId, session: &mut Session) -> Result<(), Error> {
        self.verbose("shell");
        self.request(id, Request::Shell, session).await
    }

    async fn exec_request(&mut self, id: ChannelId, data: &[u8], session: &mut Session) -> Result<(), Error> {
        let Ok(command) = std::str::from_utf8(data) else { return Ok(session.channel_failure(id)?) };
        self.verbose(&format!("exec {command:?}"));
        self.request(id, Request::Exec(command.to_owned()), session).await
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), Error> {
        self.verbose(&format!("subsystem {name:?}"));
        if name == "sftp" {
            return self.request(id, Request::Sftp, session).await;
        }
        Ok(session.channel_failure(id)?)
    }

    async fn window_change_request(
        &mut self,
        id: ChannelId,
        columns: u32,
        rows: u32,
        width: u32,
        height: u32,
        session: &mut Session,
    ) -> Result<(), Error> {
        let size = Size { columns, rows, width, height };
        let taken = self.channel(id).is_some_and(|channel| channel.resize(size));
        reply(session, id, taken)
    }

    async fn signal(&mut self, id: ChannelId, signal: Sig, _session: &mut Session) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        if let Some(channel) = self.channel(id) {
            channel.signal(&signal, &shared);
        }
        Ok(())
    }

    async fn data(&mut self, id: ChannelId, data: &[u8], session: &mut Session) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        if let Some(input) = self.forwards.input(id) {
            if !input.push(data, &shared).await && self.forwards.close(id) {
                session.close(id)?;
            }
            return Ok(());
        }
        let Some(channel) = self.channel(id) else { return Ok(()) };
        if channel.input(data, &shared).await {
            return Ok(());
        }
        log("the client sends without end and takes nothing");
        session.close(id)?;
        self.shared.hang_up();
        Ok(())
    }

    async fn channel_eof(&mut self, id: ChannelId, _session: &mut Session) -> Result<(), Error> {
        if let Some(input) = self.forwards.input(id) {
            input.end();
        }
        if let Some(channel) = self.channel(id) {
            channel.end_of_input();
        }
        Ok(())
    }

    async fn channel_close(&mut self, id: ChannelId, _session: &mut Session) -> Result<(), Error> {
        self.forwards.close(id);
        if let Some(channel) = self.channels.remove(&u32::from(id)) {
            channel.hang_up(&self.shared);
        }
        Ok(())
    }
}
