//! `sim`: replays seeds of the simulator.
fn main() {}
