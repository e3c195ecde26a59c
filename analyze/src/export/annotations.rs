//! Annotations of GitHub Actions: sentences that appear at a line of a file.

use std::fmt::Write as _;

use schemars::JsonSchema;
use schemas::text::plain_lines;
use serde::{Deserialize, Serialize};

/// GitHub shows about ten annotations of a kind per step.
pub const MOST: usize = 10;

/// GitHub annotations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Annotations {
    /// Within GitHub Actions.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Annotations {
    pub fn are_wanted(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true"),
        }
    }
}

/// A place in a file. Lines and columns begin at 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    pub file: String,
    pub line: usize,
    /// `None`: the whole line.
    pub column: Option<usize>,
}

/// One workflow command: `::error file=plan.yaml,line=3,col=5::message`. `kind`: error, warning or notice.
pub fn annotation(kind: &str, at: Option<&At>, message: &str) -> String {
    let escape = |text: &str| plain_lines(text).replace('%', "%25").replace('\n', "%0A");
    let property = |text: &str| escape(text).replace(':', "%3A").replace(',', "%2C");
    let mut text = format!("::{kind}");
    if let Some(At { file, line, column }) = at {
        let _ = write!(text, " file={},line={line}", property(file));
        if let Some(column) = column {
            let _ = write!(text, ",col={column}");
        }
    }
    text + "::" + &escape(message)
}

/// The first ten of them, errors before warnings, a line each.
pub fn annotations(mut all: Vec<(&str, Option<At>, String)>) -> String {
    all.sort_by_key(|(kind, ..)| *kind != "error");
    all.iter().take(MOST).map(|(kind, at, text)| annotation(kind, at.as_ref(), text) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_command_is_escaped() {
        assert_eq!(annotation("error", None, "50%\n\r\x1b"), "::error::50%25%0A\\r\\u{1b}");
        let at = At { file: "a,b:c.csv".into(), line: 3, column: None };
        assert_eq!(annotation("warning", Some(&at), "a: b"), "::warning file=a%2Cb%3Ac.csv,line=3::a: b");
    }

    #[test]
    fn ten_are_kept_errors_first() {
        let mut all = vec![("warning", None, "w".to_owned()); 12];
        all.push(("error", None, "e".to_owned()));
        let text = annotations(all);
        assert_eq!((text.lines().count(), text.lines().next()), (10, Some("::error::e")));
    }
}
