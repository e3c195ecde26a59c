//! MPI without linking to it: the library is opened at run time, and this process is one of its ranks.
//!
//! - `family`: handles and constants of Open MPI, MPICH and the standard ABI
//! - `library`: an opened library, and its calls
//! - `world`: all ranks, from the start to the end; the lease, by which one thread at a time calls the library
//! - `group`: some ranks with operations of all
//! - `route`: messages between two ranks, as the patterns use them

mod family;
#[expect(unsafe_code, reason = "a library without a binding is called")]
mod library;
mod route;
mod world;

pub use family::Family;
pub use library::{Library, MpiError, Request, collectives::Number};
pub use route::{Place, Route, Routes};
pub use world::{Group, Lease, RankFacts, World, start, world};
