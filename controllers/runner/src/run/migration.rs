//! Migrations, between the loop and [`crate::migration`].

use std::net::{IpAddr, SocketAddr};

use neonvm_api::runner_pod::Receive;
use neonvm_core_migration::{Refused, source as source_core, target as target_core};
use neonvm_hypervisor::machine::QemuExit;
use neonvm_hypervisor::plan::CpuMode;
use neonvm_types::runner_protocol::{
    ExitReason, MigrationCall, MigrationRequest, MigrationState, MigrationVerdict, RunnerState,
};

use super::{Arc, Error, Event, Loop, Message, Moving, Options, Refusal};
use crate::migration::connect::Connector;
use crate::migration::{check, source, target};

/// Last lines of QEMU's output that go into the reason when it could not take the VM.
const WORDS: usize = 4;

fn conflict(Refused(why): Refused) -> Refusal {
    Refusal::Conflict(why)
}

impl Loop {
    /// Waits for the VM instead of letting it boot.
    pub(super) async fn receive(&mut self, options: &Options, receive: &Receive) -> Result<(), Error> {
        let failed = |why: String| Error::Receive(why);
        if self.machine.plan().cpu.mode == CpuMode::Qmp {
            let plugged = self.vcpus.set(&self.machine, receive.cpus.max(1)).await;
            plugged.map_err(|error| failed(format!("CPUs: {error}")))?;
        }
        let any = [IpAddr::from([0; 4])];
        let addresses = if options.addresses.is_empty() { &any[..] } else { &options.addresses };
        let addresses: Vec<SocketAddr> = addresses.iter().map(|&ip| SocketAddr::new(ip, 0)).collect();
        let (machine, messages) = (Arc::clone(&self.machine), self.messages.clone());
        let parts =
            target::TargetParts { machine, messages, addresses: &addresses, frames: self.frames.clone() };
        let shell = target::Shell::begin(self.begun.elapsed(), &self.pod, &receive.migration, parts);
        self.moving = Some(Moving::Target(shell.await.map_err(failed)?));
        tracing::info!(id = receive.migration, "waits for the VM");
        self.publish_move();
        Ok(())
    }

    fn publish_move(&mut self) {
        let status = self.moving.as_ref().map(|moving| Box::new(moving.status().clone()));
        if let Some(status) = status
            && self.core.status().migration.as_ref() != Some(&*status)
        {
            self.take(Event::Moved(status));
        }
    }

    pub(super) fn take_move_message(&mut self, message: Message) {
        tracing::debug!(?message);
        match message {
            Message::Source(number, event) => {
                if matches!(&self.moving, Some(Moving::Source(shell)) if shell.is(number)) {
                    let _ = self.step_source(event);
                }
            }
            Message::Target(event, answer) => {
                let result = self.step_target(event);
                if let Some(answer) = answer {
                    let _ = answer.send(result.map_err(|Refused(why)| why));
                }
            }
        }
    }

    pub(super) fn wake_move(&mut self) {
        match &self.moving {
            Some(Moving::Source(_)) => drop(self.step_source(source_core::Event::Timer)),
            Some(Moving::Target(_)) => drop(self.step_target(target_core::Event::Timer)),
            None => {}
        }
    }

    fn step_source(&mut self, event: source_core::Event) -> Result<(), Refused> {
        let (now, guest) = (self.begun.elapsed(), self.core.guest());
        let Some(Moving::Source(shell)) = &mut self.moving else { return Ok(()) };
        let result = shell.step(now, event, &guest);
        self.publish_move();
        result
    }

    fn step_target(&mut self, event: target_core::Event) -> Result<(), Refused> {
        let now = self.begun.elapsed();
        let Some(Moving::Target(shell)) = &mut self.moving else {
            return Err(Refused("the VM has moved on".to_owned()));
        };
        let consequence = shell.step(now, event)?;
        let runs = matches!(shell.core.status().state, MigrationState::Completed | MigrationState::PostCopy);
        let guest = shell.core.guest().cloned();
        self.publish_move();
        if consequence == target::Consequence::End {
            self.machine.kill();
        }
        if runs && self.core.status().state == RunnerState::Preparing {
            tracing::info!("the guest runs here");
            self.take(Event::TakenOver(self.info.clone(), guest));
            self.keep_files();
            self.follow_memory();
        }
        Ok(())
    }

    pub(super) fn begin_move(&mut self, request: MigrationRequest) -> Result<(), Refusal> {
        let target = check(&request)?;
        if let Some(moving) = &self.moving {
            let status = moving.status();
            if matches!(moving, Moving::Source(_)) && status.id == request.id {
                return Ok(());
            }
            let (id, state) = (&status.id, status.state);
            if !state.is_over() {
                return Err(Refusal::Conflict(format!("the move {id} goes on: {state:?}")));
            }
            if matches!(moving, Moving::Source(_)) && state.has_left() {
                return Err(Refusal::Conflict(format!("the VM has left with the move {id}")));
            }
        }
        let state = self.core.status().state;
        if state != RunnerState::Running {
            return Err(Refusal::Conflict(format!("the VM is {state:?}: it can move when it runs")));
        }
        if self.core.is_paused() {
            return Err(Refusal::Conflict("the VM is paused: it can move when it is resumed".to_owned()));
        }
        if self.core.grows_disk() {
            return Err(Refusal::Conflict(
                "a disk of the VM grows: it can be migrated afterwards".to_owned(),
            ));
        }
        let pod = &self.pod;
        let identity = pod.certificate.identity();
        let connector =
            Connector::new(&identity, &pod.certificate.authorities(), &pod.config.uid, target, &request.id)
                .map_err(Refusal::Wrong)?;
        self.moves += 1;
        let parts = source::SourceParts {
            number: self.moves,
            machine: Arc::clone(&self.machine),
            messages: self.messages.clone(),
            connector,
            frames: self.frames.clone(),
        };
        tracing::info!(id = request.id, target = request.target, "the VM is to move");
        let shell = source::Shell::begin(self.begun.elapsed(), parts, request).map_err(Refusal::Conflict)?;
        self.moving = Some(Moving::Source(shell));
        self.publish_move();
        Ok(())
    }

    /// Returns the migration, if it is the one with this id.
    fn is_move(&self, id: &str) -> Result<&Moving, Refusal> {
        match &self.moving {
            Some(moving) if moving.status().id == id => Ok(moving),
            _ => Err(Refusal::Unknown(format!("there is no move {id:?} here"))),
        }
    }

    pub(super) fn cancel_move(&mut self, call: &MigrationCall) -> Result<(), Refusal> {
        match self.is_move(&call.id)? {
            Moving::Source(_) => {
                self.step_source(source_core::Event::Cancel(call.reason.clone())).map_err(conflict)
            }
            // A migration that is still incoming is cancelled at its source.
            Moving::Target(_) => Err(Refusal::Conflict("this is the target: call the source".to_owned())),
        }
    }

    pub(super) fn recover_move(&mut self, call: &MigrationCall) -> Result<(), Refusal> {
        match self.is_move(&call.id)? {
            Moving::Source(_) => self.step_source(source_core::Event::Recover).map_err(conflict),
            Moving::Target(_) => Err(Refusal::Conflict("this is the target: call the source".to_owned())),
        }
    }

    pub(super) fn settle_move(&mut self, verdict: &MigrationVerdict) -> Result<(), Refusal> {
        match self.is_move(&verdict.id)? {
            Moving::Source(_) => {
                self.step_source(source_core::Event::Verdict(verdict.keep)).map_err(conflict)
            }
            Moving::Target(_) => {
                self.step_target(target_core::Event::Verdict(verdict.keep)).map_err(conflict)
            }
        }
    }

    /// The runner is to stop. Returns whether there is a guest here whose power button can be pressed.
    pub(super) fn stop_move(&mut self) -> bool {
        match &self.moving {
            Some(Moving::Source(shell)) if shell.core.status().state.has_left() => {
                tracing::info!("asked to stop: the guest has left already, and is handed over first");
                false
            }
            Some(Moving::Source(_)) => {
                let _ = self.step_source(source_core::Event::Cancel("the VM is to stop".to_owned()));
                true
            }
            Some(Moving::Target(_)) if self.core.status().state == RunnerState::Preparing => {
                let _ = self.step_target(target_core::Event::Gone("the target was asked to stop".to_owned()));
                false
            }
            _ => true,
        }
    }

    /// QEMU has ended: whether that was the end of a migration.
    pub(super) fn end_of_move(&mut self, exit: &QemuExit) -> Option<(ExitReason, String)> {
        // The first of its lines names the cause, the last is the same for all.
        let lines = exit.stderr.get(exit.stderr.len().saturating_sub(WORDS)..).unwrap_or_default();
        let words = if lines.is_empty() { exit.to_string() } else { lines.join("; ") };
        match &self.moving {
            Some(Moving::Source(_)) => {
                drop(self.step_source(source_core::Event::Gone(format!("the VM has ended: {words}"))));
            }
            Some(Moving::Target(_)) => {
                drop(self.step_target(target_core::Event::Gone(format!("QEMU: {words}"))));
            }
            None => return None,
        }
        let status = self.moving.as_ref()?.status();
        match (self.moving.as_ref()?, status.state) {
            (Moving::Source(_), MigrationState::Completed) => {
                Some((ExitReason::Migrated, "the VM has moved to another runner".to_owned()))
            }
            (Moving::Target(_), MigrationState::Failed) => {
                Some((ExitReason::MigrationFailed, status.reason.clone()))
            }
            _ => None,
        }
    }

    /// Waits until the source of a migration that has failed here has the reason; otherwise it would see a lost connection only.
    pub(super) async fn notify_source(&mut self) {
        let Some(Moving::Target(shell)) = &self.moving else { return };
        let notified = shell.source_notified();
        tokio::pin!(notified);
        loop {
            tokio::select! {
                () = &mut notified => return,
                Some(message) = self.moved.recv() => self.take_move_message(message),
            }
        }
    }
}
