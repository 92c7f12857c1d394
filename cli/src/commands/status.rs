//! `status`

use crate::args::cluster::Status;
use crate::connect::{Connection, block_on};
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

/// Health of the cluster that the kubeconfig names.
pub(super) fn run(settings: &Settings, args: &Status) -> Result<Report> {
    block_on(async {
        let connection = Connection::open(settings).await?;
        super::health::report(&connection, "cluster", args.namespace.as_deref()).await
    })
}
