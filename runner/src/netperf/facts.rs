//! Everything that the output says: the request, the figures of the last iteration and the means over all.

use netcore::spec::{BufferOptions, Side, Sizes, TestSpec};

use super::{
    confidence::{Means, Widths},
    figures::{Buffer, Cpu, EndFigures, Figures, Latency},
    globals::Globals,
    kind::{Calls, Shape},
    request::Request,
    specifics::Specifics,
    unit::Unit,
    values::Pair,
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
    pub means: Means,
    pub widths: Widths,
    pub iterations: u32,
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

    pub fn cpu(&self, end: End) -> Option<Cpu> {
        self.end(end)?.cpu
    }

    /// `S`: from /proc/stat; `U`: not measured.
    pub fn cpu_method(&self, end: End) -> &'static str {
        if self.cpu(end).is_some() { "S" } else { "U" }
    }

    /// Mean CPU use; -1: not measured.
    pub fn mean_cpu(&self, end: End) -> f64 {
        of(end, self.means.local_cpu, self.means.remote_cpu)
    }

    /// Mean service demand; -1: not measured.
    pub fn mean_demand(&self, end: End) -> f64 {
        of(end, self.means.local_demand, self.means.remote_demand)
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
        self.figures.latency.filter(|_| self.request.wants_latency())
    }

    /// A latency in whole microseconds; -1: it was not collected.
    pub fn latency_us(&self, of: fn(&Latency) -> f64) -> Value {
        Value::Real(self.latency().map_or(-1.0, |latency| of(&latency).floor()), 0)
    }
}

/// The value of an end; -1: not measured.
fn of(end: End, local: Option<f64>, remote: Option<f64>) -> f64 {
    (if end == End::Local { local } else { remote }).unwrap_or(-1.0)
}

fn side(end: End) -> Side {
    match end {
        End::Local => Side::Near,
        End::Remote => Side::Far,
    }
}
