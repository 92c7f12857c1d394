//! Runs the steps in their order.

use std::time::Duration;

use neonvm_kernel::Progress as _;
use tokio::time::Instant;

use super::step::{Outcome, Row, Step};
use super::trial::{Trial, VM};
use super::{clean_up, create, database, delete, drain, load, migrate, scale};
use crate::error::Result;

impl Trial<'_> {
    /// Runs the steps one after the other; rows of those that are over stay if this is dropped.
    pub(super) async fn steps(&mut self, rows: &mut Vec<Row>) {
        for step in Step::ALL {
            if let Some(reason) =
                step.left_out(&self.only, self.keep, self.has_vm || (step == Step::Delete && self.made_vm))
            {
                rows.push(Row { step, outcome: Outcome::NotRun(reason.to_owned()), took: Duration::ZERO });
                continue;
            }
            self.reporter.begin(step.name(), &format!("{}/{VM}", self.namespace()));
            let begun = Instant::now();
            let outcome = self.step(step).await.unwrap_or_else(Outcome::Failed);
            self.reporter.end(&format!("{}: {}", outcome.word(), outcome.detail()));
            rows.push(Row { step, outcome, took: begun.elapsed() });
        }
    }

    async fn step(&mut self, step: Step) -> Result<Outcome> {
        match step {
            Step::Create => create::run(self).await,
            Step::Scale => scale::run(self).await,
            Step::Load => load::run(self).await,
            Step::Migrate => migrate::run(self).await,
            Step::Drain => {
                let drained = drain::run(self).await;
                let uncordoned = clean_up::uncordon(self).await;
                drained.and_then(|outcome| uncordoned.map(|()| outcome))
            }
            Step::Database => database::run(self).await,
            Step::Delete => delete::run(self).await,
            Step::CleanUp => clean_up::run(self).await,
        }
    }
}
