//! Far ends that start themselves: `launch` of a host.
//!
//! One contract serves every engine: the launcher carries standard input to `plumb serve --launched` at the far end, whose
//! first line is a key for this run and whose end is the daemon's end.
//!
//! - `contract`: the lines that both sides exchange, and which of a host's addresses carries the traffic
//! - `lifeline`: the far side of it, `plumb serve --launched`
//! - `process`: the near side, one launcher process, with control connections over the life line (`control: launcher`)
//! - `remote`: the far end's command, with a program that is there or one that travels
//! - `recipe`: from a host of the plan to the launcher's command, by engine
//! - `kubernetes`: pods for daemons, made before their launchers start
//! - `fleet`: all launchers of a run, from their start to their end
//! - `remedy`: what to do about the errors of each engine
//! - `watchdog`: frees what the end of a process does not free

pub mod contract;
pub mod fleet;
mod kubernetes;
pub mod lifeline;
mod process;
pub mod recipe;
mod remedy;
mod remote;
mod watchdog;
