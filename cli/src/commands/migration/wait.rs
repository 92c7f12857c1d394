//! `migration wait`

use neonvm_api::VirtualMachineMigration;

use super::{until_over, verdict};
use crate::args::migration::Wait;
use crate::commands::flags::duration;
use crate::commands::resource::client::NamespaceClient;
use crate::commands::resource::document;
use crate::connect::block_on;
use crate::error::Result;
use crate::report::{Document, Report};
use crate::settings::Settings;

/// Waits until moves are over.
pub(in crate::commands) fn run(settings: &Settings, args: &Wait) -> Result<Report> {
    let limit = duration("timeout", &args.timeout)?;
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let (mut ended, mut lines) = (Vec::new(), Vec::new());
        for name in &args.names {
            client.find::<VirtualMachineMigration>(name).await?;
            let waited = until_over(&client, name, limit, |_| {}).await?;
            let Some(migration) = waited.object else { continue };
            verdict(&migration)?;
            lines.push(format!("migration/{name} {}", super::show::ending(&migration)));
            ended.push(migration);
        }
        let document = document(&ended);
        Ok(Report::document(Document { text: Some(lines.join("\n")), ..document }))
    })
}
