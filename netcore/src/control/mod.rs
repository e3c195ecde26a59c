//! The conversation between the ends: what `docs/protocol.md` tells, as code.
//!
//! From the wire upwards: [`frame`] cuts a byte stream into bounded frames, [`secure`] encrypts that stream where a
//! [`key`] is used, [`channel`] is a connection with deadlines over both, [`message`] says what is in the frames.
//! [`clock`] relates two monotonic clocks by probes; [`stop`] and [`event`] wake whoever waits; [`child`] is a program that
//! runs within bounds, here or for a client.

pub mod capabilities;
pub mod channel;
pub mod child;
pub mod clock;
pub mod dial;
pub mod event;
pub mod frame;
pub mod key;
pub(crate) mod load;
pub mod message;
pub mod netns;
pub mod secure;
pub mod stop;

/// The control port where none is named.
pub const DEFAULT_PORT: u16 = 12864;
