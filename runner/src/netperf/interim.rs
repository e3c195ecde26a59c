//! Interim results (`-D`).

use netcore::{
    client::Observer,
    report::{Phase, Window},
    spec::Side,
};

use super::{kind::Shape, specifics::Form, unit::Unit};

/// Prints an interim result for each interval of this end that moved something. An interval without work lasts until the next
/// work, as in netperf, which looks at its clock after each operation: readers divide by these rates.
pub struct Interim<'a> {
    shape: Shape,
    unit: Unit,
    form: Form,
    /// Results so far, which `-k` numbers.
    count: usize,
    /// Time since the last result.
    since_ns: u64,
    print: &'a mut dyn FnMut(&str),
}

impl<'a> Interim<'a> {
    pub fn new(shape: Shape, unit: Unit, form: Form, print: &'a mut dyn FnMut(&str)) -> Self {
        Self { shape, unit, form, count: 0, since_ns: 0, print }
    }

    /// Bytes, and the transactions of tests that have them.
    fn work(&self, window: &Window) -> (f64, Option<f64>) {
        let sum =
            |of: fn(&netcore::report::Counts) -> u64| window.flows.iter().map(|flow| of(&flow.counts)).sum::<u64>();
        let bytes = sum(|counts| counts.bytes_sent + counts.bytes_received) as f64;
        (bytes, self.shape.has_transactions().then(|| sum(|counts| counts.transactions) as f64))
    }
}

impl Observer for Interim<'_> {
    fn interval(&mut self, side: Side, window: &Window) {
        if side != Side::Near || window.phase != Phase::Measure || window.elapsed_ns == 0 {
            return;
        }
        let (bytes, transactions) = self.work(window);
        self.since_ns += window.elapsed_ns;
        if transactions.unwrap_or(bytes) == 0.0 {
            return;
        }
        let seconds = std::mem::take(&mut self.since_ns) as f64 / 1e9;
        let rate = self.unit.rate(bytes, transactions, seconds);
        let text = render(self.form, self.count, self.unit, rate, (seconds, window.wall_end_ns));
        self.count += 1;
        (self.print)(&text);
    }
}

/// One result over some seconds until a wall-clock time, which is printed in Unix seconds.
fn render(form: Form, index: usize, unit: Unit, rate: f64, (seconds, wall_end_ns): (f64, i64)) -> String {
    let unit = unit.label();
    let ends_ms = wall_end_ns.div_euclid(1_000_000);
    let end = format!("{}.{:03}", ends_ms.div_euclid(1000), ends_ms.rem_euclid(1000));
    match form {
        Form::Columns => {
            format!("Interim result: {rate:>7.2} {unit}/s over {seconds:.3} seconds ending at {end}\n")
        }
        Form::Csv => format!("{rate:>7.2},{unit}/s,{seconds:.3},{end}\n"),
        Form::KeyValue => format!(
            "NETPERF_INTERIM_RESULT[{index}]={rate:.2}\nNETPERF_UNITS[{index}]={unit}/s\n\
             NETPERF_INTERVAL[{index}]={seconds:.3}\nNETPERF_ENDING[{index}]={end}\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use netcore::{
        report::{Counts, FlowWindow},
        spec::{Role, Transport},
    };

    use super::*;
    use crate::netperf::kind::Calls;

    fn window(bytes_sent: u64, transactions: u64) -> Window {
        let counts = Counts { bytes_sent, transactions, ..Counts::default() };
        let flow = FlowWindow {
            flow: 0,
            role: Role::Sender,
            counts,
            latencies: Vec::new(),
            tcp_at_start: None,
            tcp_info: None,
            retransmits: None,
            datagrams: None,
            jitter_ns: None,
            pacing: None,
        };
        Window {
            phase: Phase::Measure,
            start_ns: 0,
            elapsed_ns: 200_400_000,
            wall_end_ns: 1_795_403_450_276_900_000,
            flows: vec![flow],
            cpu: None,
            evidence: None,
        }
    }

    fn printed(calls: Calls, form: Form, windows: &[(Side, Window)]) -> String {
        let shape = Shape { transport: Transport::Tcp, calls, connects: false };
        let mut text = String::new();
        let mut print = |line: &str| text.push_str(line);
        let mut interim = Interim::new(shape, Unit::of(None, shape.has_transactions()), form, &mut print);
        for (side, window) in windows {
            interim.interval(*side, window);
        }
        text
    }

    #[test]
    fn an_interval_lasts_until_there_was_work() {
        // A transaction that began in the second interval ends in the third. After it there is none.
        let windows = [1002, 0, 1002, 0].map(|transactions| (Side::Near, window(1, transactions)));
        assert_eq!(
            printed(Calls::BOTH, Form::Csv, &windows),
            "5000.00,Trans/s,0.200,1795403450.276\n2500.00,Trans/s,0.401,1795403450.276\n"
        );
    }

    #[test]
    fn the_three_forms_are_netperfs() {
        let windows =
            [(Side::Near, window(250_500_000, 0)), (Side::Far, window(1, 0)), (Side::Near, window(501_000, 0))];
        assert_eq!(
            printed(Calls::SEND, Form::Columns, &windows),
            "Interim result: 10000.00 10^6bits/s over 0.200 seconds ending at 1795403450.276\n\
             Interim result:   20.00 10^6bits/s over 0.200 seconds ending at 1795403450.276\n"
        );
        assert_eq!(printed(Calls::SEND, Form::Csv, &windows[..1]), "10000.00,10^6bits/s,0.200,1795403450.276\n");
        assert_eq!(
            printed(Calls::BOTH, Form::KeyValue, &[(Side::Near, window(1002, 1002)), (Side::Near, window(0, 501))]),
            "NETPERF_INTERIM_RESULT[0]=5000.00\nNETPERF_UNITS[0]=Trans/s\nNETPERF_INTERVAL[0]=0.200\n\
             NETPERF_ENDING[0]=1795403450.276\nNETPERF_INTERIM_RESULT[1]=2500.00\nNETPERF_UNITS[1]=Trans/s\n\
             NETPERF_INTERVAL[1]=0.200\nNETPERF_ENDING[1]=1795403450.276\n"
        );
    }
}
