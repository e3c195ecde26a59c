//! Iterations until the result is confident, and their means.

use analyze::stats::{confidence::t_interval_of, moments::Moments};

use super::{figures::Figures, globals::Goal, kind::Shape, unit::Unit};

/// Means over the iterations. What was not measured is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Means {
    pub elapsed_s: f64,
    pub throughput: f64,
    pub local_cpu: Option<f64>,
    pub remote_cpu: Option<f64>,
    pub local_demand: Option<f64>,
    pub remote_demand: Option<f64>,
}

/// Full widths of the confidence intervals relative to their means; 0: not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Widths {
    pub throughput: f64,
    pub local_cpu: f64,
    pub remote_cpu: f64,
}

/// The iterations so far.
#[derive(Clone, Debug, Default)]
pub struct Iterations {
    count: u32,
    elapsed: Moments,
    throughput: Moments,
    local_cpu: Moments,
    remote_cpu: Moments,
    local_demand: Moments,
    remote_demand: Moments,
}

impl Iterations {
    pub fn push(&mut self, figures: &Figures, shape: Shape, unit: Unit) {
        self.count += 1;
        self.elapsed.push(figures.elapsed_s);
        self.throughput.push(figures.throughput(shape, unit));
        let remote = figures.remote.as_ref().and_then(|remote| remote.cpu);
        for (cpu, busy, demand) in [
            (figures.local.cpu, &mut self.local_cpu, &mut self.local_demand),
            (remote, &mut self.remote_cpu, &mut self.remote_demand),
        ] {
            if let Some(cpu) = cpu {
                busy.push(cpu.busy);
            }
            if let Some(value) = figures.service_demand(cpu, unit) {
                demand.push(value);
            }
        }
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn means(&self) -> Means {
        Means {
            elapsed_s: self.elapsed.mean().unwrap_or(0.0),
            throughput: self.throughput.mean().unwrap_or(0.0),
            local_cpu: self.local_cpu.mean(),
            remote_cpu: self.remote_cpu.mean(),
            local_demand: self.local_demand.mean(),
            remote_demand: self.remote_demand.mean(),
        }
    }

    pub fn widths(&self, level: u32) -> Widths {
        let width = |moments: &Moments| {
            let interval = t_interval_of(moments, f64::from(level) / 100.0);
            interval.and_then(|interval| interval.margin_ratio()).map_or(0.0, |margin| 2.0 * margin)
        };
        Widths {
            throughput: width(&self.throughput),
            local_cpu: width(&self.local_cpu),
            remote_cpu: width(&self.remote_cpu),
        }
    }

    /// Whether the widths are as narrow as asked for.
    pub fn reached(&self, goal: &Goal) -> bool {
        let widths = self.widths(goal.level);
        let all = [widths.throughput, widths.local_cpu, widths.remote_cpu];
        let judged = if goal.result_only { &all[..1] } else { &all[..] };
        self.count > 1 && judged.iter().all(|width| *width <= goal.width)
    }

    /// Whether another iteration is needed.
    pub fn needs_more(&self, goal: Option<&Goal>) -> bool {
        match goal {
            None => self.count < 1,
            Some(goal) => self.count < goal.least || (self.count < goal.most && !self.reached(goal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netperf::{
        figures::EndFigures,
        kind::{Calls, Shape},
    };
    use netcore::spec::Transport;

    const SHAPE: Shape = Shape { transport: Transport::Tcp, calls: Calls::RECEIVE, connects: false };

    fn of(values: &[f64]) -> Iterations {
        let mut iterations = Iterations::default();
        for mbit in values {
            // A megabit in the time that makes it this rate.
            let local = EndFigures { bytes_received: 125_000, ..EndFigures::default() };
            let figures = Figures { elapsed_s: 1.0 / mbit, local, ..Figures::default() };
            iterations.push(&figures, SHAPE, Unit::of(None, false));
        }
        iterations
    }

    /// netperf's formula: 2 · t(level, n−1) · √(σ²/(n−1)) / mean, with its printed table of t.
    #[test]
    fn widths_are_netperfs() {
        let values = [100.0, 110.0, 120.0];
        let mean = 110.0;
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 3.0;
        for (level, t) in [(95, 4.303), (99, 9.925)] {
            let expected = 2.0 * t * (variance / 2.0_f64).sqrt() / mean;
            let width = of(&values).widths(level).throughput;
            assert!((width - expected).abs() < 1e-4 * expected, "{level}: {width} {expected}");
        }
    }

    #[test]
    fn iterations_go_on_until_they_agree() {
        let goal = Goal { most: 5, least: 3, level: 95, width: 0.05, result_only: false };
        assert!(of(&[]).needs_more(None) && !of(&[1.0]).needs_more(None));
        assert!(of(&[100.0, 100.0]).needs_more(Some(&goal)), "the least is three");
        assert!(!of(&[100.0, 100.1, 100.0]).needs_more(Some(&goal)));
        assert!(of(&[100.0, 150.0, 100.0]).needs_more(Some(&goal)));
        let five = of(&[100.0, 150.0, 100.0, 150.0, 120.0]);
        assert!(!five.needs_more(Some(&goal)) && !five.reached(&goal));
        assert!((five.means().throughput - 124.0).abs() < 1e-3);
    }
}
