//! Bugs that can be planted into the adapters between the cores and the world, to show that the simulator finds them.
//! For tests alone.

macro_rules! bugs {
    ($($name:ident $help:literal,)*) => {
        /// A bug to plant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $(#[doc = $help] $name,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What it does, in words.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$name => $help,)* }
            }
        }
    };
}

bugs! {
    ForgetPod "The scheduler forgets a pod now and then.",
    PermitBeforeListed "A scheduler that starts permits before it has listed all pods.",
    ForgetLastPermit "The scheduler that took over ignores the permits that agents report, and keeps no buffer.",
    StaleReply "A late answer of the scheduler is taken for the answer to the present request.",
    PatchWithoutPrecondition "Patches are made without looking whether the object has changed.",
    PatchWithoutPermit "The agent patches the VM to what it asked for, whatever was permitted.",
    DenialIsConsent "A denial of the monitor is taken for consent.",
    NoMonitorNeeded "The agent takes silence of the monitor for consent.",
    NotifiedTooEarly "The monitor is notified of a size before the VM has it.",
    PatchCountsAsDone "A successful patch counts as a VM that has changed.",
    TimeoutIsPermit "A request to the scheduler without answer counts as permitted.",
    DuplicateCountsTwice "The scheduler grants a repeated request once more on top.",
    CompletedPodsStay "Pods that have ended still count.",
    BindWithoutRoom "Pods are bound to any open node, whether it has room or not.",
    GrantEverything "The scheduler grants whatever is asked for.",
    WatermarkIgnored "Nodes above their watermark are not relieved.",
    BoundsIgnored "The agent keeps the bounds that the VM had first.",
    HalfUnits "The scheduler's grant is cut in half and used as it is.",
    RetryWithoutWait "A failed request is repeated at once.",
    UnboundedQueue "Each timer sets two timers.",
    HoldIgnored "A size fixed by a person is set at once, beside the agent, without asking the scheduler.",
    TargetNotReserved "The target of a migration takes no room until the VM is there.",
    PatchesLost "Patches are answered and not made.",
    LostWatch "The agent's watch shows nothing after the first object.",
    GenerationFallsBack "The controller writes an old status over a new one.",
    StatusHidesMemory "The status shows the old, smaller memory until a change is done, also when growing is cancelled half-way.",
    RestlessAgent "The agent asks the scheduler again at every timer.",
    TargetRunsUnasked "The target of a move lets the guest run as soon as all is there, without the order of the source.",
    SourceRunsAgain "A source that cannot reach the target at the end of a move lets its own guest run again.",
    SilenceIsDeath "A runner that does not answer is taken for dead while a VM moves.",
    UnlockBusy "A busy machine whose migration object is gone is let go, although its runner still moves it.",
    LastPassLeftOut "What the guest wrote last is not sent when it moves.",
    DisksNotFinished "A guest runs on the target before its disks are whole there.",
    TargetLeftBehind "The target of a migration that failed is not deleted.",
    PortStaysOpen "The port of a target is not closed when the VM has arrived.",
    EndNotReceived "The controller does not receive the report that a migration has ended.",
    QueueIgnored "Every migration begins at once.",
    ResizeBelieved "The controller takes the resize of a pod for done as soon as it has written it.",
    AddressGivenBackEarly "A VM that is being deleted gives its address back before it has ended, and the address does not rest.",
    HasIsNeed "After each change of its size the agent takes the compute units that a VM has, counted from the larger resource, for what it needs.",
    PoolsNotRead "A controller that starts gives addresses without having read the pools.",
}
