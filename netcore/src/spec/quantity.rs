//! Numbers that a plan writes with a unit: `64KiB`, `50us`.
//!
//! On the wire they are plain numbers. A deserializer learns the name of the type that it reads, so that the reader of
//! plans, who knows units, can hand over the number that `Bytes` or `Seconds` wants.

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
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $kind.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "integer", "minimum": 0})
            }
        }
    )*};
}

quantities! {
    /// Bytes.
    Bytes(u64), in plans a "Size";
    /// Bytes, of which the kernel takes no more than 32 bits.
    Bytes32(u32), in plans a "Size";
    /// Microseconds.
    Microseconds(u32), in plans a "Time";
    /// Milliseconds.
    Milliseconds(u32), in plans a "Time";
    /// Seconds.
    Seconds(u32), in plans a "Time";
    /// Seconds for which a close waits for what is unsent.
    Linger(u32), in plans a "Time";
}

/// The quantities that are lengths of time: name and nanoseconds of 1.
pub const TIMES: [(&str, u32); 4] =
    [("Microseconds", 1_000), ("Milliseconds", 1_000_000), ("Seconds", 1_000_000_000), ("Linger", 1_000_000_000)];

/// Reads a number of bytes; null is 0.
pub(super) fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    optional_bytes(deserializer).map(Option::unwrap_or_default)
}

/// Reads a number of bytes, or null.
pub(super) fn optional_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Option::<Bytes>::deserialize(deserializer).map(|bytes| bytes.map(u64::from))
}
