//! The rule of streams without TCP's times: datagrams, and transports whose kernels tell nothing.

use schemas::{
    units::{Unit, human, margin},
    words::LimitedBy,
};

use super::{
    Limit,
    ends::{self, Support, may_be_full},
    evidence::{Evidence, Place},
    of_the_time, path,
    thresholds::{EXPLAINED, FEW_PACKETS, FULL, LOSS, TRACE},
};

pub fn rule(evidence: &Evidence<'_>) -> Result<Limit, String> {
    let row = evidence.row;
    if let (Some(lost), Some(loss)) = (row.lost, row.loss_ratio)
        && loss > LOSS
        && lost as f64 >= FEW_PACKETS
    {
        return dropped(evidence, lost as f64, loss);
    }
    // A receiver to which everything arrived kept pace, however full it is.
    let is_full = evidence.sender.load().is_some_and(|load| load >= FULL);
    let support = if row.loss_ratio.is_some() && is_full { Support::Sender } else { Support::Neither };
    match ends::cpu(evidence, support) {
        Some(found) => found,
        None if may_be_full(&evidence.sender) || may_be_full(&evidence.receiver) => {
            Err("a data thread was neither full nor idle".to_owned())
        }
        None if evidence.sender.load().is_none() => {
            Err("the data thread of the sender could not be looked at".to_owned())
        }
        None if matches!(row.transport.as_deref(), Some("tcp" | "mptcp")) => {
            Err("both ends waited, and TCP's times were not collected (`collect: [tcp_info]`)".to_owned())
        }
        None => Err("both ends waited, and this transport does not tell for what".to_owned()),
    }
}

/// Datagrams that a known place dropped.
fn dropped(evidence: &Evidence<'_>, lost: f64, loss: f64) -> Result<Limit, String> {
    let receiver = &evidence.receiver;
    let share = margin(loss);
    let Some((place, host, drops)) = place_of(evidence).filter(|(.., drops)| *drops >= lost * EXPLAINED) else {
        return path::lost(evidence, lost, loss)
            .ok_or_else(|| format!("{share} of the datagrams were lost, and neither end says where"));
    };
    let count = human(Unit::Count, drops);
    let at_receiver = matches!(place, Place::Socket | Place::Softnet);
    match receiver.load() {
        Some(load) if at_receiver && load >= FULL => {
            let because = format!(
                "the data thread of {host} was full ({}), and {} dropped {count} datagrams",
                margin(load),
                place.of(host)
            );
            Ok(Limit::named(LimitedBy::ReceiverCpu, load, because))
        }
        _ if at_receiver && receiver.waits() => Err(format!(
            "{} dropped {count} datagrams, and its thread waited {} for a CPU",
            place.of(host),
            of_the_time(receiver.thread.map_or(0.0, |thread| thread.waiting))
        )),
        // The kernel counts a quota's time when it ends: a thread may seem to sleep that was held back all the time.
        Some(load) if at_receiver && load < TRACE => {
            Err(format!("{} dropped {count} datagrams, and its thread hardly ran", place.of(host)))
        }
        _ if at_receiver && may_be_full(receiver) => {
            Err(format!("{} dropped {count} datagrams, and its thread was neither full nor idle", place.of(host)))
        }
        None if at_receiver => {
            Err(format!("{} dropped {count} datagrams, and its thread could not be looked at", place.of(host)))
        }
        _ => {
            let advice = match place {
                Place::Socket => format!("; try a larger `{}.receive_buffer`", receiver.key("socket")),
                Place::Qdisc => "; a `rate` below it loses none".to_owned(),
                Place::Interface | Place::Softnet => String::new(),
            };
            let because = format!("{} dropped {count} datagrams, {share} were lost{advice}", place.of(host));
            Ok(Limit::named(LimitedBy::Queue, drops.min(lost) / lost, because))
        }
    }
}

/// The place with most drops, its host and their number.
pub fn place_of<'a>(evidence: &Evidence<'a>) -> Option<(Place, &'a str, f64)> {
    let places = [&evidence.sender, &evidence.receiver]
        .into_iter()
        .flat_map(|end| end.drops.iter().filter_map(move |(place, drops)| Some((*place, end.host, (*drops)?))));
    places.filter(|(.., drops)| *drops >= FEW_PACKETS).reduce(|best, other| if other.2 > best.2 { other } else { best })
}
