//! The conversation between the ends, as `docs/reference/protocol.md` describes it.
//!
//! From the wire upwards: [`frame`] cuts a byte stream into bounded frames, [`key`] encrypts that stream where a
//! key is used, [`channel`] is a connection with deadlines over both, [`message`] is the content of the frames.
//! [`clock`] relates two monotonic clocks by probes; [`stop`] wakes waiting threads; [`child`] runs a program
//! within bounds, here or for a client; `part` is a part of a test in this process.

pub mod capabilities;
pub mod channel;
pub mod child;
pub mod clock;
pub mod dial;
pub mod frame;
pub mod key;
pub mod message;
pub mod netns;
pub(crate) mod part;
pub mod stop;

/// The default control port.
pub const DEFAULT_PORT: u16 = 12864;
