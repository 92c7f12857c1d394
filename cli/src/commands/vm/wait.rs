//! `vm wait`

mod predicate;

use neonvm_api::VirtualMachine;

use super::waiting::until;
use crate::args::vm::Wait;
use crate::commands::flags::duration;
use crate::commands::resource::client::NamespaceClient;
use crate::commands::resource::wait;
use crate::connect::block_on;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;
use predicate::Predicate;

/// Waits until a predicate is true.
pub(in crate::commands) fn run(settings: &Settings, args: &Wait) -> Result<Report> {
    let predicate = Predicate::parse(&args.predicate)?;
    let limit = duration("timeout", &args.timeout)?;
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        client.find::<VirtualMachine>(&args.name).await?;
        let name = &args.name;
        let look = |vm: Option<&VirtualMachine>| wait::seen(name, vm, |vm| predicate.holds(vm));
        let waited = until(&client, name, limit, &args.predicate, look).await?;
        Ok(wait::report(name, &args.predicate, waited))
    })
}
