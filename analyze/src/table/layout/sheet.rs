//! The paper of a table: how wide it is, and whether it has colours.

use anstream::{AutoStream, ColorChoice, stream::RawStream};

use crate::{style::Style, table::OutputArgs};

/// Room and colours of an output. A terminal has a width; a file or a pipe has none, and gets every cell whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sheet {
    /// Columns of characters; `None`: without a limit.
    pub width: Option<usize>,
    /// Blanks before each line.
    pub indent: usize,
    pub colours: bool,
    /// Whether every column is shown, even if the lines become too long.
    pub all_columns: bool,
    /// Advice for seeing columns that did not fit, for the note about them.
    pub hint: &'static str,
}

impl Default for Sheet {
    fn default() -> Self {
        Self::PLAIN
    }
}

impl Sheet {
    /// Without a limit and without colours.
    pub const PLAIN: Self =
        Self { width: None, indent: 0, colours: false, all_columns: false, hint: "a wider terminal shows them" };

    pub fn stdout() -> Self {
        Self::of_stream(&std::io::stdout())
    }

    pub fn stderr() -> Self {
        Self::of_stream(&std::io::stderr())
    }

    /// For standard output, or for the file of `-o`.
    pub fn of(output: &OutputArgs) -> Self {
        if output.is_for_people() { Self::stdout() } else { Self::PLAIN }
    }

    fn of_stream(stream: &impl RawStream) -> Self {
        if !stream.is_terminal() {
            return Self::PLAIN;
        }
        // `NO_COLOR`, `CLICOLOR` and `TERM=dumb` decide.
        let colours = AutoStream::choice(stream) != ColorChoice::Never;
        Self { width: Some(size_or((80, 24)).0), colours, ..Self::PLAIN }
    }

    /// The same with blanks before each line.
    #[must_use]
    pub fn indented(self, indent: usize) -> Self {
        Self { indent, ..self }
    }
}

impl Sheet {
    /// A text in a style, where the sheet has colours.
    pub fn painted(&self, style: Style, text: &str) -> String {
        if self.colours && style != Style::new() && !text.is_empty() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// Columns and rows: `COLUMNS` and `LINES` where they are set, else those of the terminal, else these.
pub fn size_or(default: (usize, usize)) -> (usize, usize) {
    let asked = |name: &str| std::env::var(name).ok()?.parse::<usize>().ok().filter(|side| *side > 0);
    let real = terminal_size::terminal_size().map(|(width, height)| (usize::from(width.0), usize::from(height.0)));
    let real = real.filter(|(width, height)| *width > 0 && *height > 0).unwrap_or(default);
    (asked("COLUMNS").unwrap_or(real.0), asked("LINES").unwrap_or(real.1))
}
