//! What a person sees while it runs, on standard error: a line that rewrites itself on a terminal, plain lines
//! elsewhere, or nothing.

use std::{
    fmt::Write as _,
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use schemas::units::{Unit, human};

use crate::{plan::estimate::span, style};

/// How much is shown.
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
    #[must_use]
    pub fn auto() -> Self {
        if std::io::stderr().is_terminal() { Self::Line } else { Self::Plain }
    }
}

/// Where the run stands.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// Number of the case, from 1.
    pub case: usize,
    /// Number of cases.
    pub cases: usize,
    /// Its name.
    pub name: String,
    /// The iteration, from 1.
    pub iteration: u32,
    /// The fewest iterations of the case.
    pub min: u32,
    /// The most.
    pub max: u32,
    /// Of a search: between which loads the answer lies, as far as is known.
    pub range: Option<String>,
    /// The margin reached so far.
    pub margin: Option<f64>,
    /// The margin to be reached.
    pub goal: Option<f64>,
    /// What is left of the whole run by the estimate, at the start of this iteration.
    pub left: Duration,
}

/// What the running measurement last said.
#[derive(Clone, Debug)]
pub struct Live {
    /// Its phase: `warmup`, `measure`, `cooldown`, or what is done before and after.
    pub phase: &'static str,
    /// Time in that phase.
    pub elapsed: Duration,
    /// The length of that phase where it is known.
    pub planned: Option<Duration>,
    /// The current value and its unit.
    pub rate: Option<(f64, Unit)>,
}

/// The display.
pub struct Progress {
    mode: Mode,
    bar: Option<ProgressBar>,
    position: Position,
    began: Instant,
}

impl Progress {
    /// A display of that kind.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        let bar = (mode == Mode::Line).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            // The template is a constant that the crate's own tests accept.
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { mode, bar, position: Position::default(), began: Instant::now() }
    }

    /// Whether a rewriting line is shown, which wants to be told of what happens.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.bar.is_some()
    }

    /// An iteration begins.
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

    /// The measurement goes on.
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

    /// A line of interim results; shown whatever the mode, since it was asked for.
    pub fn interim(&self, text: &str) {
        self.print(text);
    }

    /// Something to know; nothing is shown when silent.
    pub fn note(&self, text: &str) {
        if self.mode != Mode::Silent {
            self.print(&format!("{}note:{} {text}", style::NOTE, style::NOTE.render_reset()));
        }
    }

    /// Plain information; nothing is shown when silent.
    pub fn say(&self, text: &str) {
        if self.mode != Mode::Silent {
            self.print(text);
        }
    }

    /// Text that says itself what it is, such as rendered diagnostics; shown always.
    pub fn plain(&self, text: &str) {
        self.print(text);
    }

    /// Something to act on; shown always.
    pub fn warn(&self, text: &str) {
        self.print(&format!("{}warning:{} {text}", style::WARNING, style::WARNING.render_reset()));
    }

    /// Something that went wrong, after which the run goes on; shown always.
    pub fn fault(&self, text: &str) {
        self.print(&format!("{}error:{} {text}", style::ERROR, style::ERROR.render_reset()));
    }

    fn print(&self, text: &str) {
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
