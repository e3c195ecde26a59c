//! Everything that the output says: the request, the figures of the last iteration and the means over all, which go on until
//! the result is confident.

use analyze::stats::{confidence::t_interval_of, moments::Moments};
use netcore::{
    report::CpuUse,
    spec::{BufferOptions, Side, Sizes, TestSpec},
};

use super::{
    figures::{Buffer, EndFigures, Figures, Latency, busy},
    globals::{Globals, Goal},
    kind::{Calls, Shape, Unit},
    request::Request,
    specifics::Specifics,
    words::Pair,
};

/// An end of the test, in netperf's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Local,
    Remote,
}

/// A value with its form.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Whole(i64),
    /// With this many decimals.
    Real(f64, usize),
    /// With this many digits at least.
    Hex(u32, usize),
    Text(String),
    /// Text between quotes.
    Quoted(String),
    /// There is none.
    Absent,
}

impl Value {
    /// As it is printed; `None`: absent.
    pub fn shown(&self) -> Option<String> {
        Some(match self {
            Self::Whole(value) => value.to_string(),
            Self::Real(value, decimals) => format!("{value:.decimals$}"),
            Self::Hex(value, digits) => format!("0x{value:0digits$x}"),
            Self::Text(text) => text.clone(),
            Self::Quoted(text) => format!("\"{text}\""),
            Self::Absent => return None,
        })
    }
}

pub fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// A count; unknown is -1.
pub fn whole(value: Option<u64>) -> Value {
    Value::Whole(value.map_or(-1, u64::cast_signed))
}

/// Figures of the output.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    pub request: &'a Request,
    pub spec: &'a TestSpec,
    /// Of the last iteration.
    pub figures: &'a Figures,
    pub iterations: &'a Iterations,
    pub widths: Widths,
    pub uuid: String,
    /// Whether the data went over IPv6.
    pub is_ipv6: bool,
}

impl Facts<'_> {
    pub fn globals(&self) -> &Globals {
        &self.request.globals
    }

    pub fn specifics(&self) -> &Specifics {
        &self.request.specifics
    }

    pub fn shape(&self) -> Shape {
        self.request.shape
    }

    pub fn unit(&self) -> Unit {
        self.request.unit
    }

    pub fn end(&self, end: End) -> Option<&EndFigures> {
        match end {
            End::Local => Some(&self.figures.local),
            End::Remote => self.figures.remote.as_ref(),
        }
    }

    pub fn buffers(&self, end: End) -> &BufferOptions {
        &self.spec.end(side(end)).buffers
    }

    /// Alignment of an end's buffers; by default they begin a page.
    pub fn alignment(&self, end: End) -> i64 {
        self.buffers(end).alignment.unwrap_or(4096).cast_signed()
    }

    /// A socket buffer: what was asked for, and what the kernel gave.
    pub fn buffer(&self, end: End, sends: bool) -> (Option<u64>, Buffer) {
        let asked = match end {
            End::Local => self.specifics().local_buffers,
            End::Remote => self.specifics().remote_buffers,
        };
        let figures = self.end(end);
        let of = |figures: &EndFigures| if sends { figures.send_buffer } else { figures.receive_buffer };
        (if sends { asked.local } else { asked.remote }, figures.map_or_else(Buffer::default, of))
    }

    /// Size of a socket buffer at the begin; -1: unknown.
    pub fn initial_size(&self, end: End, sends: bool) -> i64 {
        self.buffer(end, sends).1.initial.map_or(-1, u64::cast_signed)
    }

    /// Bytes per send call: of a stream, or asked for; a far end that does not send has -1, its responses have their own.
    pub fn send_size(&self, end: End) -> i64 {
        let Sizes { message_bytes, response_bytes, .. } = self.spec.sizes;
        self.size(end, (message_bytes, response_bytes), self.specifics().send_size, end == self.sender())
    }

    /// The same for receive calls.
    pub fn receive_size(&self, end: End) -> i64 {
        let Sizes { receive_bytes, request_bytes, .. } = self.spec.sizes;
        self.size(end, (receive_bytes, request_bytes), self.specifics().receive_size, end != self.sender())
    }

    fn size(&self, end: End, (stream, exchange): (u64, u64), asked: Pair<u64>, is_its: bool) -> i64 {
        let asked = if end == End::Local { asked.local } else { asked.remote };
        let size = match end {
            _ if !self.shape().has_transactions() && is_its => Some(stream),
            _ if asked.is_some() => asked,
            End::Remote if self.shape().calls == Calls::BOTH => Some(exchange),
            End::Remote => None,
            End::Local => Some(0),
        };
        size.map_or(-1, u64::cast_signed)
    }

    /// The end that sends a stream.
    fn sender(&self) -> End {
        if self.shape().calls == Calls::RECEIVE { End::Remote } else { End::Local }
    }

    /// A size of an exchange; -1 where there is none.
    pub fn exchange(&self, size: fn(&Sizes) -> u64) -> Value {
        whole((self.shape().calls == Calls::BOTH).then(|| size(&self.spec.sizes)))
    }

    pub fn cpu(&self, end: End) -> Option<&CpuUse> {
        self.end(end)?.cpu.as_ref()
    }

    /// A share of the CPUs, per cent; `None`: not measured.
    pub fn cpu_percent(&self, end: End, share: fn(&CpuUse) -> f64) -> Option<f64> {
        self.cpu(end).map(|cpu| 100.0 * share(cpu))
    }

    /// `S`: from /proc/stat; `U`: not measured.
    pub fn cpu_method(&self, end: End) -> &'static str {
        if self.cpu(end).is_some() { "S" } else { "U" }
    }

    /// Mean CPU use; -1: not measured.
    pub fn mean_cpu(&self, end: End) -> f64 {
        self.iterations.busy[end as usize].mean().unwrap_or(-1.0)
    }

    /// Mean service demand; -1: not measured.
    pub fn mean_demand(&self, end: End) -> f64 {
        self.iterations.demand[end as usize].mean().unwrap_or(-1.0)
    }

    /// Width of a confidence interval, per cent; -1: none was asked for.
    pub fn width(&self, of: fn(&Widths) -> f64) -> f64 {
        if self.globals().goal.is_some() { 100.0 * of(&self.widths) } else { -1.0 }
    }

    /// Bytes of the last iteration at an end as a rate; 0 where they are unknown.
    pub fn rate(&self, end: End, bytes: fn(&EndFigures) -> u64) -> f64 {
        self.end(end).map_or(0.0, |figures| self.figures.rate_of(bytes(figures), self.unit()))
    }

    pub fn count(&self, end: End, of: fn(&EndFigures) -> u64) -> Value {
        Value::Whole(self.end(end).map_or(-1, |figures| of(figures).cast_signed()))
    }

    pub fn per_call(&self, end: End, of: fn(&EndFigures) -> (u64, u64)) -> f64 {
        let (bytes, calls) = self.end(end).map(of).unwrap_or_default();
        if calls == 0 { 0.0 } else { bytes as f64 / calls as f64 }
    }

    /// Transactions per second of the last iteration.
    pub fn transaction_rate(&self) -> Option<f64> {
        self.shape().has_transactions().then(|| self.figures.transaction_rate())
    }

    /// Mean time of a transaction, from the rate and the number under way.
    pub fn round_trip_us(&self) -> Option<f64> {
        let rate = self.transaction_rate().filter(|rate| *rate > 0.0)?;
        Some(f64::from(self.spec.inflight) * 1e6 / rate)
    }

    /// Latencies, if they were asked for.
    pub fn latency(&self) -> Option<Latency> {
        self.figures.latency.filter(|_| self.request.wants_latency)
    }

    /// A latency in whole microseconds; -1: it was not collected.
    pub fn latency_us(&self, of: fn(&Latency) -> f64) -> Value {
        Value::Real(self.latency().map_or(-1.0, |latency| of(&latency).floor()), 0)
    }
}

fn side(end: End) -> Side {
    match end {
        End::Local => Side::Near,
        End::Remote => Side::Far,
    }
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
    /// CPU use and service demand by [`End`].
    busy: [Moments; 2],
    demand: [Moments; 2],
}

impl Iterations {
    pub fn push(&mut self, figures: &Figures, shape: Shape, unit: Unit) {
        self.count += 1;
        self.elapsed.push(figures.elapsed_s);
        self.throughput.push(figures.throughput(shape, unit));
        for (end, of) in [Some(&figures.local), figures.remote.as_ref()].into_iter().enumerate() {
            let Some(cpu) = of.and_then(|of| of.cpu.as_ref()) else { continue };
            self.busy[end].push(busy(cpu));
            if let Some(value) = figures.service_demand(cpu, unit) {
                self.demand[end].push(value);
            }
        }
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// Mean time of an iteration, seconds.
    pub fn elapsed_s(&self) -> f64 {
        self.elapsed.mean().unwrap_or(0.0)
    }

    /// The mean headline.
    pub fn mean_throughput(&self) -> f64 {
        self.throughput.mean().unwrap_or(0.0)
    }

    pub fn widths(&self, level: u32) -> Widths {
        let width = |moments: &Moments| {
            let interval = t_interval_of(moments, f64::from(level) / 100.0);
            interval.and_then(|interval| interval.margin_ratio()).map_or(0.0, |margin| 2.0 * margin)
        };
        Widths {
            throughput: width(&self.throughput),
            local_cpu: width(&self.busy[0]),
            remote_cpu: width(&self.busy[1]),
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
    use netcore::spec::Transport;

    use super::*;

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
        assert!((five.mean_throughput() - 124.0).abs() < 1e-3);
    }
}
