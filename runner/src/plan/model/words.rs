//! Choices of one word.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant),* }
    };
}

words!(
    /// The far end's part in the test.
    Control {
        /// A daemon: both ends report.
        Session,
        /// A plain service (echo, discard, chargen): only the near end reports.
        None,
    }
);
words!(
    /// The window over which a concurrent group is summed.
    Window {
        /// The window that all members share.
        Intersection,
        /// Each member's own.
        Own,
    }
);

words!(
    /// The key that a search varies.
    FindBy {
        /// The offered load.
        Rate,
        /// Outstanding transactions.
        Inflight,
    }
);

words!(
    /// The pairs among the hosts of `pairs`.
    Shape {
        /// Every ordered pair, in rounds of disjoint pairs.
        All,
        /// Each host and the next one in the order, in rounds of disjoint pairs.
        Neighbours,
        /// Each host to the next one and the last to the first, all at once.
        Ring,
        /// Each host of the first half to one of the second, all at once.
        Bisection,
        /// Every other host to `to`, all at once.
        Incast,
        /// `from` to every other host, all at once.
        Outcast,
    }
);
