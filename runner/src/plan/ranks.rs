//! Tests of N ranks: their keys, their hosts, the translated test, and what it measures.

use std::time::Duration;

use netcore::{
    ranks,
    spec::{
        self, Stop, Transport,
        ranks::{Kernel, MOST_COMPUTE_NS, Operation, RanksSpec, Work},
    },
};
use schemas::{
    columns::{self, Row},
    metrics::{Family, Metric},
    words::{Control, Way},
};

use super::{
    answers::{ASSUMED, Estimate},
    inventory::Endpoint,
    keys::{SpecError, error, key},
    model::{TestBody, Warmup},
    quantity::Time,
    ranges,
};

/// Assumed operations per second of a rank in a kernel of the NAS benchmarks, which has a CPU of its own.
const KERNEL_PER_S: f64 = 25e6;

/// Limit of a message, bytes.
const MESSAGE_MAX: u64 = 1 << 30;

/// Default bytes of an operation.
const MESSAGE: u64 = 1024;

/// A test of several ranks, and their hosts.
#[derive(Clone, Debug)]
pub struct RanksJob {
    pub spec: RanksSpec,
    /// By rank.
    pub ends: Vec<Endpoint>,
}

/// The family of metrics of a kernel or of an operation.
pub(super) fn family(is_kernel: bool) -> Family {
    if is_kernel { Family::Nas } else { Family::Collective }
}

impl RanksJob {
    fn is_kernel(&self) -> bool {
        matches!(self.spec.work, Work::Nas { .. })
    }

    /// Why it cannot deliver a metric; `None`: it can.
    pub(super) fn lacks(&self, metric: &Metric) -> Option<String> {
        let group = columns::find(metric.column).map_or("", |column| column.group);
        let is_kernel = self.is_kernel();
        let missing = match (group, metric.name) {
            ("ranks", "mops") if !is_kernel => "only kernels of the NAS benchmarks count these operations",
            ("ranks", "bus_bandwidth") => match self.spec.work {
                Work::Operation { operation, .. } if operation.facts().bus.is_some() => return None,
                _ => "no formula has a bus bandwidth for it",
            },
            (
                "ranks",
                "operation_time" | "operation_time.mean" | "operation_time.min" | "own_time" | "arrival_spread",
            ) if is_kernel => "a kernel is one operation: use `elapsed` or `mops`",
            ("ranks", _) | (_, "elapsed" | "transactions" | "transaction_rate") => return None,
            ("latency", _) if !is_kernel => return None,
            (_, "messages_sent" | "messages_received" | "bytes_sent" | "bytes_received")
                if self.spec.transport == Transport::Tcp =>
            {
                return None;
            }
            (_, "messages_sent" | "messages_received" | "bytes_sent" | "bytes_received") => {
                "the library does not say what it sends"
            }
            _ => "it is between two ends, and these are ranks",
        };
        Some(missing.to_owned())
    }

    /// Its main metric.
    pub(super) fn headline(&self) -> Option<&'static Metric> {
        family(self.is_kernel()).headline(|metric| self.lacks(metric).is_none())
    }

    /// How long it runs.
    pub(super) fn length(&self) -> Estimate {
        let length_ns = self.spec.length_ns();
        let length = match self.spec.work {
            Work::Nas { kernel, class } => {
                let operations = ranks::operations(kernel, class);
                Duration::from_secs_f64(operations / self.ends.len().max(1) as f64 / KERNEL_PER_S)
            }
            Work::Operation { .. } => length_ns.map_or_else(
                || Duration::from_nanos(self.spec.warmup_ns).saturating_add(ASSUMED),
                Duration::from_nanos,
            ),
        };
        Estimate { least: length, most: length, open: length_ns.is_none() }
    }

    /// Writes the cells that it decides.
    pub(super) fn fill(&self, row: &mut Row) {
        let spec = &self.spec;
        let first = self.ends.first().map_or("", Endpoint::name);
        let mut others: Vec<&str> = self.ends.iter().map(Endpoint::name).filter(|name| *name != first).collect();
        others.dedup();
        row.from = Some(first.to_owned());
        row.to = Some(if others.is_empty() { first.to_owned() } else { ranges::fold(others) });
        row.control = Some(Control::Session);
        row.transport = Some(spec.transport.name().into());
        row.direction = Some(Way::Both);
        row.ranks = Some(self.ends.len() as u64);
        match spec.work {
            Work::Operation { operation, message_bytes, .. } => {
                row.operation = Some(operation.as_str().into());
                row.message_bytes = Some(message_bytes);
            }
            Work::Nas { class, .. } => row.class = Some(class.as_str().into()),
        }
        row.local_cpu = spec.cpus.as_ref().map(ToString::to_string);
        row.remote_cpu.clone_from(&row.local_cpu);
    }
}

/// Translates a body; mistakes in its keys go to `errors`.
pub(super) fn translate(
    body: &TestBody,
    transport: Transport,
    kernel: Option<Kernel>,
    errors: &mut Vec<SpecError>,
) -> RanksSpec {
    let work = match kernel {
        Some(kernel) => Work::Nas { kernel, class: body.class.unwrap_or_default() },
        None => operation(body, errors),
    };
    let mut spec = RanksSpec::new(transport, work);
    for (key, is_set) in misplaced(body, kernel.is_some()) {
        if is_set {
            let whose = if kernel.is_some() { "a kernel of the NAS benchmarks" } else { "a collective operation" };
            errors.push(error(key, format!("`{key}` means nothing to {whose}"), "leave it out"));
        }
    }
    match &body.warmup {
        Some(Warmup::For(time)) => spec.warmup_ns = time.nanoseconds(),
        Some(Warmup::Auto(_)) => errors.push(error(key::warmup, "a warm-up of ranks has a length", "for example 1s")),
        None => {}
    }
    match (body.duration.map(Time::nanoseconds), body.transactions) {
        (Some(_), Some(_)) => errors.push(error(
            key::transactions,
            "`duration` and `transactions` both say when to stop",
            "keep one of them",
        )),
        (Some(0), None) | (None, Some(0)) => {
            let key = if body.duration.is_some() { key::duration } else { key::transactions };
            errors.push(error(key, format!("`{key}` is 0"), "it must be greater than 0"));
        }
        (Some(ns), None) => spec.stop = Stop::AfterNs(ns),
        (None, Some(count)) => spec.stop = Stop::AfterTransactions(count),
        (None, None) => {}
    }
    spec.integrity = body.integrity.unwrap_or(false);
    spec.socket = body.socket.clone().unwrap_or_default();
    spec.family = match spec.socket.ipv6.take() {
        Some(true) => spec::Family::V6,
        Some(false) => spec::Family::V4,
        None => spec::Family::Any,
    };
    spec.cpus.clone_from(&body.cpu);
    spec
}

/// Keys of the one kind of work that the other kind has no use for, and whether they are set.
fn misplaced(body: &TestBody, is_kernel: bool) -> Vec<(&'static str, bool)> {
    if is_kernel {
        vec![
            (key::operation, body.operation.is_some()),
            (key::compute, body.compute.is_some()),
            (key::message_size, body.message_size.is_some()),
        ]
    } else {
        vec![(key::class, body.class.is_some())]
    }
}

fn operation(body: &TestBody, errors: &mut Vec<SpecError>) -> Work {
    let operation = body.operation.unwrap_or_else(|| {
        let names: Vec<&str> = Operation::ALL.iter().map(|operation| operation.as_str()).collect();
        errors.push(error(key::operation, "no `operation` says what the ranks do", names.join(", ")));
        Operation::Barrier
    });
    let facts = operation.facts();
    let message_bytes = match body.message_size.map(|size| size.0) {
        _ if operation == Operation::Barrier => 0,
        None => MESSAGE,
        Some(0) => {
            errors.push(error(key::message_size, "`message_size` is 0", "1 byte or more"));
            MESSAGE
        }
        Some(bytes) if bytes > MESSAGE_MAX => {
            let message = format!("`message_size` is {bytes} bytes");
            errors.push(error(key::message_size, message, format!("the limit is {MESSAGE_MAX} bytes")));
            MESSAGE
        }
        Some(bytes) if facts.adds && bytes % 8 != 0 => {
            let message = format!("{operation} adds numbers of 8 bytes, and {bytes} bytes are no whole number of them");
            errors.push(error(key::message_size, message, format!("for example {}", bytes.next_multiple_of(8))));
            MESSAGE
        }
        Some(bytes) => bytes,
    };
    if body.compute.is_some() && !facts.skeleton {
        let message = format!("{operation} has no busy time between exchanges");
        let skeletons: Vec<&str> =
            Operation::ALL.iter().filter(|other| other.facts().skeleton).map(|other| other.as_str()).collect();
        errors.push(error(key::compute, message, format!("{} have", skeletons.join(", "))));
    }
    let compute_ns = body.compute.map_or(0, Time::nanoseconds);
    if compute_ns > MOST_COMPUTE_NS {
        let message = format!("`compute` is {} s", compute_ns / 1_000_000_000);
        errors.push(error(key::compute, message, format!("the limit is {} s", MOST_COMPUTE_NS / 1_000_000_000)));
    }
    Work::Operation { operation, message_bytes, compute_ns: compute_ns.min(MOST_COMPUTE_NS) }
}

#[cfg(test)]
mod tests {
    use netcore::spec::ranks::Class;

    use super::{
        super::workload::{self, Kind, Workload},
        *,
    };

    #[test]
    fn plans_and_tables_agree_on_the_family() {
        for name in workload::names_of_ranks() {
            let Kind::Ranks { kernel, .. } = name.parse::<Workload>().unwrap().kind else { panic!("{name}") };
            assert_eq!(Family::of(&name), family(kernel.is_some()), "{name}");
        }
    }

    #[test]
    fn a_kernel_is_as_long_as_its_operations() {
        let spec = RanksSpec::new(Transport::Tcp, Work::Nas { kernel: Kernel::Ep, class: Class::B });
        let job = RanksJob { spec, ends: vec![Endpoint::Embedded; 2] };
        // 2^31 random numbers by two ranks.
        assert_eq!(job.length().most.as_secs(), (1 << 31) / 2 / 25_000_000);
    }
}
