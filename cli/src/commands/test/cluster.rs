//! `test cluster`: a VM through its whole life, in a namespace of its own, on whatever cluster the kubeconfig names. What was made is
//! removed whatever happens; a step that cannot run is reported as not run, never as passed.

mod clean_up;
mod create;
mod database;
mod delete;
mod drain;
mod guest;
mod image;
mod load;
mod migrate;
mod nodes;
mod scale;
mod sequence;
mod step;
mod trial;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::cluster::Cluster;
use crate::commands::flags::duration;
use crate::commands::health::checked;
use crate::connect::{Connection, block_on};
use crate::env::Env;
use crate::error::{Code, Error, Result, reason};
use crate::render::Reporter;
use crate::report::Report;
use crate::settings::Settings;
use trial::Trial;

pub(in crate::commands) fn run(
    env: &Env,
    settings: &Settings,
    args: &Cluster,
    quiet: bool,
) -> Result<Report> {
    let limit = duration("timeout", &args.timeout)?;
    if let Some(named) = &args.namespace {
        checked(named)?;
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
            removed = clean_up::run(&mut trial) => match removed {
                Ok(_) => Err(Error::new(Code::Interrupted, "interrupted, all created objects were removed")),
                Err(error) => Err(Error { code: Code::Interrupted, message: format!("interrupted; {}", error.message), ..error }),
            },
            () = stop.requested() => Err(Error::new(Code::Interrupted, format!("interrupted; VMs remain in {namespace}"))
                .hint(format!("remove them: kubectl delete namespace {namespace}; see cordoned nodes: kubectl get nodes"))),
        }
    })
}

/// Requests of a person, or of the system, to end.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    fn listen() -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(Code::Failed, "cannot listen for Ctrl-C").cause(reason(&error))
        };
        let interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let terminate = signal(SignalKind::terminate()).map_err(failed)?;
        Ok(Self { interrupt, terminate })
    }

    async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
