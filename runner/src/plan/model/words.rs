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
    /// Who is at the far end.
    Control {
        /// A daemon: both ends report.
        Session,
        /// A service that takes no part (echo, discard, chargen): the near end reports alone.
        None,
    }
);
words!(
    /// Whether the interval or the point is judged.
    Judge {
        /// The confidence interval: pass, fail or inconclusive.
        Ci,
        /// The mean (or the only value).
        Point,
    }
);
words!(
    /// Which rows are judged.
    Scope {
        /// Each stream.
        Stream,
        /// Each direction.
        Direction,
        /// The sum.
        Total,
    }
);
words!(
    /// Over which window a concurrent group is summed.
    Window {
        /// The window that all members share.
        Intersection,
        /// Each member's own.
        Own,
    }
);

words!(
    /// What a search varies.
    FindBy {
        /// The offered load.
        Rate,
        /// Outstanding transactions.
        Inflight,
    }
);
