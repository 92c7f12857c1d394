//! Changes of size: what is agreed to, and the file cache that goes with it. One at a time.

use std::time::Duration;

use neonvm_types::Resources;
use neonvm_types::monitor_protocol::MonitorMessage;

use super::change::{Pending, Refusal, Resize};
use super::formula::mib;
use super::outcome::{Action, Outcome};
use super::policy::Policy;
use super::{FILE_CACHE_DEADLINE, usable};

/// Most changes that wait for one under way. An agent sends one request at a time.
const QUEUED: usize = 4;

impl Policy {
    /// Begins a change, or lets it wait for the one under way.
    pub(super) fn resize(&mut self, now: Duration, id: Option<u64>, resize: Resize, outcome: &mut Outcome) {
        if self.pending.is_none() {
            self.begin(now, id, resize, outcome);
        } else if self.queue.len() < QUEUED {
            self.queue.push_back((id, resize));
        } else {
            let error = "too many changes of size at a time".to_owned();
            self.reply(id, MonitorMessage::InternalError { error }, outcome);
        }
    }

    fn begin(&mut self, now: Duration, id: Option<u64>, resize: Resize, outcome: &mut Outcome) {
        let size = match resize {
            Resize::Down(target) => {
                if let Err(refusal) = self.refusal(now, target) {
                    return self.reply(id, refusal, outcome);
                }
                Some(usable(target.mem.get()))
            }
            Resize::Up(granted) => {
                // Whatever becomes of the file cache, the memory is there.
                self.follow_growth(now, granted.vcpus);
                self.granted = Some(granted);
                self.giving = None;
                self.follow_grant(outcome);
                self.usable_now()
            }
            Resize::Settle => self.usable_now(),
        };
        match size.filter(|_| self.settings.file_cache) {
            Some(size) => {
                self.tokens = self.tokens.wrapping_add(1);
                let (token, size) = (self.tokens, self.file_cache(size));
                let deadline = now.saturating_add(FILE_CACHE_DEADLINE);
                self.pending = Some(Pending { token, id, resize, deadline });
                outcome.actions.push(Action::SetFileCache { token, size });
            }
            None => self.finish(now, id, resize, None, outcome),
        }
    }

    fn finish(
        &mut self,
        now: Duration,
        id: Option<u64>,
        resize: Resize,
        cache: Option<u64>,
        outcome: &mut Outcome,
    ) {
        let mut status = match resize {
            // The agent that sent the request is disconnected, so it will not take anything.
            Resize::Down(_) if id.is_none() => return self.resize(now, None, Resize::Settle, outcome),
            Resize::Down(target) => match self.refusal(now, target) {
                Ok(status) => {
                    self.granted = Some(target);
                    self.giving = self.total.filter(|total| target.mem.get() < *total).map(|_| (now, now));
                    self.narrow(outcome);
                    status
                }
                // It was agreeable before the file cache was changed: that is undone.
                Err(refusal) => {
                    self.reply(id, refusal, outcome);
                    return self.resize(now, None, Resize::Settle, outcome);
                }
            },
            Resize::Up(_) => return self.reply(id, MonitorMessage::UpscaleConfirmation, outcome),
            Resize::Settle => return,
        };
        if let Some(cache) = cache {
            status.push_str(&format!("; file cache: {}", mib(cache)));
        }
        self.reply(id, MonitorMessage::DownscaleResult { ok: true, status }, outcome);
    }

    /// The text for a consent; `Err`: the reply that refuses.
    fn refusal(&self, now: Duration, target: Resources) -> Result<String, MonitorMessage> {
        let status = self.judge_memory(now, target.mem.get()).map_err(|refusal| match refusal {
            Refusal::No(status) => MonitorMessage::DownscaleResult { ok: false, status },
            Refusal::Unknown(error) => MonitorMessage::InternalError { error },
        })?;
        match self.cpu_refusal(target.vcpus) {
            Some(status) => Err(MonitorMessage::DownscaleResult { ok: false, status }),
            None => Ok(status),
        }
    }

    pub(super) fn file_cache_set(
        &mut self,
        now: Duration,
        token: u64,
        result: Result<u64, String>,
        outcome: &mut Outcome,
    ) {
        // A late reply to a request that was abandoned.
        let Some(pending) = self.pending.take_if(|pending| pending.token == token) else { return };
        match result {
            Ok(size) => self.finish(now, pending.id, pending.resize, Some(size), outcome),
            Err(error) => {
                let error = format!("file cache: {error}");
                self.reply(pending.id, MonitorMessage::InternalError { error }, outcome);
            }
        }
        while self.pending.is_none()
            && let Some((id, resize)) = self.queue.pop_front()
        {
            self.begin(now, id, resize, outcome);
        }
    }

    /// Stops waiting for a file cache that takes too long.
    pub(super) fn expire(&mut self, now: Duration, outcome: &mut Outcome) {
        if let Some(token) = self.pending.as_ref().filter(|pending| pending.deadline <= now).map(|p| p.token)
        {
            self.file_cache_set(now, token, Err("PostgreSQL did not answer in time".to_owned()), outcome);
        }
    }
}
