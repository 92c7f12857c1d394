//! `neond`: one binary that carries every service; each is a subcommand.

mod agent;
mod apiserver;
mod firewall;
mod history_dir;
mod kubelet;
mod lease;
mod local;
mod log;
mod node;
mod pod_autoscaler;
mod scheduler;
mod service;
mod state;
mod upstream_agents;
mod vm_controller;
mod vxlan_controller;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Parser, Subcommand};
use neonvm_api::runner_pod::LOG_FORMAT_VARIABLE;

#[derive(Debug, Parser)]
#[command(
    name = "neond",
    version,
    about = "Services of the VM autoscaling system; started by neonctl or by pods"
)]
struct Args {
    /// How the service writes its log on standard error; stands before the name of the service
    #[arg(long, env = LOG_FORMAT_VARIABLE, value_name = "FORMAT", value_enum, default_value_t)]
    log_format: log::Format,
    #[command(subcommand)]
    service: Service,
}

#[derive(Debug, Subcommand)]
enum Service {
    /// Run a complete cluster on this host: starts the services below and restarts them when they end
    Local(Box<local::Args>),
    /// Serve the embedded Kubernetes API, with its state on disk
    Apiserver(apiserver::Args),
    /// Check, back up or restore the state of a stopped cluster
    #[command(hide = true)]
    State(state::Args),
    /// Reconcile VMs and migrations; serve the webhooks
    VmController(Box<vm_controller::Args>),
    /// Permit sizes, watch the pressure on nodes, bind pods or extend a kube-scheduler
    Scheduler(scheduler::Args),
    /// Forward requests of upstream's agents, which speak plain HTTP, to the scheduler
    UpstreamAgents(upstream_agents::Args),
    /// Scale the VMs of a node by their load
    Agent(Box<agent::Args>),
    /// Make a directory in which an agent that is not root keeps its history
    #[command(hide = true)]
    HistoryDir(history_dir::Args),
    /// Join a node to the overlay network of VMs
    VxlanController(Box<vxlan_controller::Args>),
    /// Serve what runners need of their node: devices, networks, and the device plugin of its kubelet
    Node(node::Args),
    /// Scale the replicas of workloads by their metrics
    PodAutoscaler(pod_autoscaler::Args),
    /// Run the pods of one node on this host, for local clusters
    Kubelet(Box<kubelet::Args>),
    /// Print the chains of this host that may drop forwarded packets, as JSON
    #[command(hide = true)]
    Firewall,
    /// Run one VM, in its pod: executes `neonvm-runner`
    #[command(disable_help_flag = true)]
    Runner {
        /// Its flags and subcommands
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    log::outcome(run())
}

fn run() -> anyhow::Result<()> {
    neonvm_kit::descriptors::close_inherited().context("cannot close what was inherited")?;
    let args = Args::parse();
    match args.service {
        Service::Runner { arguments } => become_runner(&arguments),
        service => {
            log::to(args.log_format, std::io::stderr);
            match service {
                Service::Local(args) => local::run(&args),
                Service::Apiserver(args) => apiserver::run(&args),
                Service::State(args) => state::run(&args),
                Service::VmController(args) => vm_controller::run(&args),
                Service::Scheduler(args) => scheduler::run(&args),
                Service::UpstreamAgents(args) => upstream_agents::run(&args),
                Service::Agent(args) => agent::run(&args),
                Service::HistoryDir(args) => history_dir::run(&args),
                Service::VxlanController(args) => vxlan_controller::run(&args),
                Service::Node(args) => node::run(&args),
                Service::PodAutoscaler(args) => pod_autoscaler::run(&args),
                Service::Kubelet(args) => kubelet::run(&args),
                Service::Firewall => firewall::run(),
                Service::Runner { .. } => Ok(()),
            }
        }
    }
}

/// There is a runner for each virtual machine: in a separate program it takes half of the memory.
fn become_runner(arguments: &[OsString]) -> anyhow::Result<()> {
    let program = runner_program()?;
    let error = std::process::Command::new(&program).arg("runner").args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// The runner's program beside this one.
fn runner_program() -> anyhow::Result<PathBuf> {
    let program =
        std::env::current_exe().context("cannot find this program")?.with_file_name("neonvm-runner");
    ensure!(program.is_file(), "{} is missing: neond needs it beside itself to run VMs", program.display());
    Ok(program)
}
