//! `test cluster`: a VM through its whole life, in a namespace of its own, on whatever cluster the kubeconfig names. What was made is
//! removed whatever happens; a step that cannot run is reported as not run, never as passed.

mod create;
mod guest;
mod image;
mod migrate;
mod remove;
mod scale;
mod step;
mod trial;

use std::time::Duration;

use neonvm_kernel::Progress as _;
use tokio::time::Instant;

use crate::args::cluster::Cluster;
use crate::commands::checks::{self, Group, Source, Verdict, read};
use crate::commands::flags::duration;
use crate::commands::job::Stop;
use crate::connect::{Connection, block_on};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::Report;
use crate::settings::Settings;
use step::{Outcome, Row, Step};
use trial::{Trial, VM};

pub(crate) fn run(env: &Env, settings: &Settings, args: &Cluster, quiet: bool) -> Result<Report> {
    let limit = duration("timeout", &args.timeout)?;
    if let Some(named) = &args.namespace {
        read::checked(named)?;
    }
    let reporter = Reporter::new(env, &args.showing.progress, quiet);
    block_on(async {
        let mut stop = Stop::listen()?;
        let connection = Connection::open(settings).await?;
        connection.json("/version").await?;
        let image = tokio::select! {
            image = image::choose(env, settings, &connection, args, &reporter) => image?,
            () = stop.requested() => return Err(Error::new(Code::Interrupted, "interrupted, nothing was created")),
        };
        let server = connection.server.clone();
        let mut trial = Trial::new(env, settings, connection, args, &reporter, image, limit);
        let mut rows = Vec::new();
        let is_over = tokio::select! {
            () = trial.steps(&mut rows) => true,
            () = stop.requested() => false,
        };
        if is_over {
            let mut report = step::report(&rows, &trial.image, trial.namespace(), &server);
            report.notes.extend(trial.kept());
            return Ok(report);
        }
        reporter.show("interrupted: removing the created objects; a second Ctrl-C keeps them");
        let namespace = trial.namespace().to_owned();
        tokio::select! {
            removed = remove::clean_up(&mut trial) => match removed {
                Ok(_) => Err(Error::new(Code::Interrupted, "interrupted, all created objects were removed")),
                Err(error) => Err(Error { code: Code::Interrupted, message: format!("interrupted; {}", error.message), ..error }),
            },
            () = stop.requested() => Err(Error::new(Code::Interrupted, format!("interrupted; VMs remain in {namespace}"))
                .hint(format!("remove them: kubectl delete namespace {namespace}; see cordoned nodes: kubectl get nodes"))),
        }
    })
}

/// The checks of the services; not run where none can be seen.
async fn checked_services(trial: &Trial<'_>) -> Result<Outcome> {
    let connection = trial.connection();
    let namespace = read::installed(connection, None).await?;
    let mut facts = read::begin(connection, &namespace).await?;
    read::more(connection, &mut facts, &checks::needs(&[Group::Services])).await?;
    if facts.is_absent() || facts.missing(Source::Workloads).is_some() {
        return Ok(Outcome::NotRun(format!("no service can be seen in namespace {namespace}")));
    }
    let found = checks::findings(&facts, Group::Services);
    let mut failed = found.iter().filter(|found| found.verdict == Verdict::Fail);
    match failed.next() {
        None => Ok(Outcome::Passed(format!("{} of the services, none fails", found.len()))),
        Some(first) => {
            let mut error = Error::new(Code::Unhealthy, format!("{}: {}", first.name, first.detail));
            error.causes = failed.map(|found| format!("{}: {}", found.name, found.detail)).collect();
            Err(error.hint(first.remedy.clone()))
        }
    }
}

impl Trial<'_> {
    /// Runs the steps one after the other; rows of those that are over stay if this is dropped.
    async fn steps(&mut self, rows: &mut Vec<Row>) {
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
            Step::Checks => checked_services(self).await,
            Step::Create => create::run(self).await,
            Step::Scale => scale::scale(self).await,
            Step::Load => scale::load(self).await,
            Step::Migrate => migrate::migrate(self).await,
            Step::Drain => {
                let drained = migrate::drain(self).await;
                let uncordoned = remove::uncordon(self).await;
                drained.and_then(|outcome| uncordoned.map(|()| outcome))
            }
            Step::Database => scale::database(self).await,
            Step::Delete => remove::delete(self).await,
            Step::CleanUp => remove::clean_up(self).await,
        }
    }
}
