//! Numbers that plans write with a unit: `64KiB`, `50us`.
//!
//! On the wire they are plain numbers. Serde passes the type's name to the deserializer: the plan's reader, which knows
//! units, sees `Bytes` or `Seconds`, parses the text and hands over the number.

use serde::{Deserialize, Deserializer, Serialize};

macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident($inner:ty), in plans a $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl From<$name> for u64 {
            fn from(quantity: $name) -> Self {
                quantity.0.into()
            }
        }

        #[cfg(feature = "schema")]
        schemas::published!($name as $kind, {"type": "integer", "minimum": 0});
    )*};
}

quantities! {
    Bytes(u64), in plans a "Size";
    /// Bytes, for kernel options of 32 bits.
    Bytes32(u32), in plans a "Size";
    Microseconds(u32), in plans a "Time";
    Milliseconds(u32), in plans a "Time";
    Seconds(u32), in plans a "Time";
    BitsPerSecond(u64), in plans a "Rate";
    /// Seconds for which a close waits for what is unsent.
    Linger(u32), in plans a "Time";
}

/// Quantities of time: type name, and nanoseconds of its unit.
pub const TIMES: [(&str, u32); 4] =
    [("Microseconds", 1_000), ("Milliseconds", 1_000_000), ("Seconds", 1_000_000_000), ("Linger", 1_000_000_000)];

/// Reads bytes; null is 0.
pub(super) fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    optional_bytes(deserializer).map(Option::unwrap_or_default)
}

/// Reads bytes or null.
pub(super) fn optional_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Option::<Bytes>::deserialize(deserializer).map(|bytes| bytes.map(u64::from))
}
