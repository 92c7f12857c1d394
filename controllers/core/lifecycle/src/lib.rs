//! Phase machine of a virtual machine and the plan of its runner pod, as pure functions.
