//! Progress on standard error: a line that rewrites itself on a terminal, plain lines elsewhere, or nothing.

use std::{
    fmt::Write as _,
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use schemas::units::{Unit, human};

use crate::{plan::estimate::span, style};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A line that rewrites itself.
    Line,
    /// A line per iteration.
    Plain,
    /// Nothing but warnings and errors.
    Silent,
}

impl Mode {
    /// The rewriting line where standard error is a terminal.
    pub fn auto() -> Self {
        if std::io::stderr().is_terminal() { Self::Line } else { Self::Plain }
    }
}

/// Progress of the run.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// From 1.
    pub case: usize,
    pub cases: usize,
    /// Name of the case.
    pub name: String,
    /// From 1.
    pub iteration: u32,
    /// Fewest iterations of the case.
    pub min: u32,
    /// Most iterations of the case.
    pub max: u32,
    /// Loads between which the answer of a search lies, as far as is known.
    pub range: Option<String>,
    /// Margin reached so far.
    pub margin: Option<f64>,
    /// Margin to reach.
    pub goal: Option<f64>,
    /// Estimated time left of the whole run, at the start of this iteration.
    pub left: Duration,
}

/// State of a running measurement.
#[derive(Clone, Debug)]
pub struct Live {
    /// `warmup`, `measure` or `cooldown`.
    pub phase: &'static str,
    /// Time in that phase.
    pub elapsed: Duration,
    /// Length of that phase; `None`: it ends by a count.
    pub planned: Option<Duration>,
    pub rate: Option<(f64, Unit)>,
}

pub struct Progress {
    mode: Mode,
    bar: Option<ProgressBar>,
    position: Position,
    began: Instant,
}

impl Progress {
    pub fn new(mode: Mode) -> Self {
        let bar = (mode == Mode::Line).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            // Cannot fail: the template is a constant.
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { mode, bar, position: Position::default(), began: Instant::now() }
    }

    /// Whether the rewriting line is shown, which [`Progress::live`] updates.
    pub fn is_live(&self) -> bool {
        self.bar.is_some()
    }

    /// Shows that an iteration begins.
    pub fn iteration(&mut self, position: Position) {
        self.began = Instant::now();
        if self.mode == Mode::Plain {
            style::tell(self::position(&position));
        }
        self.position = position;
        if let Some(bar) = &self.bar {
            bar.set_message(self::position(&self.position));
        }
    }

    /// Updates the rewriting line.
    pub fn live(&mut self, live: &Live) {
        let Some(bar) = &self.bar else { return };
        // Writing to a String cannot fail.
        let mut text = format!("{}  {}", position(&self.position), live.phase);
        if let Some(planned) = live.planned {
            let _ = write!(text, " {:.1}/{:.1} s", live.elapsed.as_secs_f64(), planned.as_secs_f64());
        }
        if let Some((value, unit)) = live.rate {
            let _ = write!(text, "  {}", human(unit, value));
        }
        if let (Some(margin), Some(goal)) = (self.position.margin, self.position.goal) {
            let _ = write!(text, "  ±{:.1} % of ±{:.1} %", margin * 100.0, goal * 100.0);
        }
        let left = self.position.left.saturating_sub(self.began.elapsed());
        if !left.is_zero() {
            let _ = write!(text, "  eta {}", span(left));
        }
        bar.set_message(text);
    }

    /// A `note:`; nothing when silent.
    pub fn note(&self, text: &str) {
        if self.mode != Mode::Silent {
            self.print(&format!("{}note:{} {text}", style::NOTE, style::NOTE.render_reset()));
        }
    }

    /// Plain information; nothing when silent.
    pub fn say(&self, text: &str) {
        if self.mode != Mode::Silent {
            self.print(text);
        }
    }

    /// A `warning:`, in every mode.
    pub fn warn(&self, text: &str) {
        self.print(&format!("{}warning:{} {text}", style::WARNING, style::WARNING.render_reset()));
    }

    /// An `error:` after which the run goes on, in every mode.
    pub fn fault(&self, text: &str) {
        self.print(&format!("{}error:{} {text}", style::ERROR, style::ERROR.render_reset()));
    }

    /// Text that is shown in every mode: rendered diagnostics, interim results.
    pub fn print(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| style::tell(text)),
            None => style::tell(text),
        }
    }

    /// Removes the rewriting line.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// `[2/3] upload  iteration 2 of 3–10`, `[1/2] no-loss  probe 4  500 Mbit/s … 900 Mbit/s`
fn position(p: &Position) -> String {
    if let Some(range) = &p.range {
        return format!("[{}/{}] {}  probe {}  {range}", p.case, p.cases, p.name, p.iteration);
    }
    let of = if p.min == p.max { p.max.to_string() } else { format!("{}–{}", p.min, p.max) };
    format!("[{}/{}] {}  iteration {} of {of}", p.case, p.cases, p.name, p.iteration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_read_like_sentences() {
        let mut p =
            Position { case: 2, cases: 3, name: "upload".into(), iteration: 2, min: 3, max: 10, ..Position::default() };
        assert_eq!(position(&p), "[2/3] upload  iteration 2 of 3–10");
        p.max = 3;
        assert_eq!(position(&p), "[2/3] upload  iteration 2 of 3");
        p.range = Some("500 Mbit/s … ?".into());
        assert_eq!(position(&p), "[2/3] upload  probe 2  500 Mbit/s … ?");
    }
}
