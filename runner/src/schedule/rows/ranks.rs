//! The rows of a test of ranks: one for all of them, and one for each.

use netcore::spec::ranks::Work;
use schemas::{
    columns::Row,
    words::{Control, Way},
};

use crate::plan::{
    case::{Endpoint, RanksJob},
    ranges,
};

/// The cells that the plan decides.
pub fn requested(row: &mut Row, job: &RanksJob) {
    let spec = &job.spec;
    let first = job.ends.first().map_or("", Endpoint::name);
    let mut others: Vec<&str> = job.ends.iter().map(Endpoint::name).filter(|name| *name != first).collect();
    others.dedup();
    row.from = Some(first.to_owned());
    row.to = Some(if others.is_empty() { first.to_owned() } else { ranges::fold(others) });
    row.control = Some(Control::Session);
    row.transport = Some(spec.transport.name().into());
    row.direction = Some(Way::Both);
    row.ranks = Some(job.ends.len() as u64);
    match spec.work {
        Work::Operation { operation, message_bytes, .. } => {
            row.operation = Some(operation.name().into());
            row.message_bytes = Some(message_bytes);
        }
        Work::Nas { class, .. } => row.class = Some(class.name().into()),
    }
    row.local_cpu = spec.cpus.as_ref().map(ToString::to_string);
    row.remote_cpu.clone_from(&row.local_cpu);
}
