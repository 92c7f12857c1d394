//! The pages whose commands are executed, each in a session of its own.

use neonvm_test_support::needs;

use crate::page;
use crate::session::Session;

/// What a page needs of the host, and why it is skipped without it.
fn is_there(need: &str) -> bool {
    match need {
        "local" => {
            let (root, qemu) = (needs::root().is_ok(), needs::qemu().is_ok());
            root && qemu
        }
        "kubectl" => needs::kubectl(28).is_ok(),
        "postgres" => needs::programs(&["debootstrap", "psql", "pgbench"]).is_ok(),
        _ => true,
    }
}

fn execute(name: &str) {
    let page = page(name);
    if !page.needs.iter().all(|need| is_there(need)) {
        return;
    }
    let mut session = Session::start();
    if let Err(error) = session.work(&page) {
        panic!("docs/src/{name}: {error}");
    }
}

macro_rules! pages {
    ($($test:ident = $name:literal),* $(,)?) => {
        /// Names of the pages.
        pub(crate) const PAGES: [&str; [$($name),*].len()] = [$($name),*];
        $(
            #[test]
            fn $test() {
                execute($name);
            }
        )*
    };
}

pages! {
    backup = "howto/backup.md",
    events = "howto/events.md",
    history = "howto/history.md",
    from_kubevirt = "howto/from-kubevirt.md",
    from_upstream = "howto/from-upstream.md",
    images = "howto/images.md",
    install = "howto/install.md",
    kvm = "howto/kvm.md",
    migrate = "howto/migrate.md",
    pause = "howto/pause.md",
    suspend = "howto/suspend.md",
    podautoscaler = "howto/podautoscaler.md",
    sizes = "howto/sizes.md",
    volumes = "howto/volumes.md",
    upgrade = "howto/upgrade.md",
    reference = "reference/index.md",
    troubleshooting = "troubleshooting.md",
    database = "tutorial/database.md",
    first_vm = "tutorial/first-vm.md",
}
