//! The rules of streams of TCP and QUIC, and of datagrams.
//!
//! The kernel of a TCP sender counts for how long it had data to send (busy), and how much of that it waited for room in the
//! receiver's window or for its own send buffer. Those two are parts of the first.

use super::{
    Limit,
    ends::{self, Support, is_most, may_be_full, sleeps},
    evidence::{
        BBR_LOSS, BUFFER_FILLED, BUFFER_OF_TWO, BUSY, EXPLAINED, End, Evidence, FEW_LOSSES, FEW_PACKETS, FULL,
        FULL_WITH_SUPPORT, HANDED_OVER, LITTLE, LOSS, MATHIS_SLACK, ONE_PACKET, PACED, PACED_BBR, PACING_OF_WINDOW,
        PROVEN, Place, QUEUED, QUEUED_US, RATE_SLACK, SLOW_READER, SMALL_BUFFER, TRACE, WINDOW_FILLED,
    },
    of_the_time,
};
use schemas::{
    columns::Row,
    units::{Unit, human, margin},
    words::LimitedBy,
};

/// TCP's times, as shares of the window.
#[derive(Clone, Copy)]
struct Times {
    busy: f64,
    window: f64,
    buffer: f64,
}

pub fn rule(evidence: &Evidence<'_>) -> Result<Limit, String> {
    let row = evidence.row;
    if let Some(why) = handed_over(row) {
        return Err(why);
    }
    let share = |ratio: Option<f64>| ratio.unwrap_or(0.0).clamp(0.0, 1.0);
    let times = Times {
        busy: share(row.busy_ratio),
        window: share(row.rwnd_limited_ratio),
        buffer: share(row.sndbuf_limited_ratio),
    };
    // With such a buffer a reader wakes for each segment: its thread is full, or waits for its CPU, since the window is small.
    let small = evidence.buffers().1.filter(|buffer| *buffer <= SMALL_BUFFER && !evidence.receiver.is_throttled());
    if let Some(buffer) = small.filter(|_| is_most(times.window) && times.buffer < LITTLE) {
        return small_buffer(evidence, times, buffer);
    }
    let support = match () {
        () if times.window >= LITTLE => Support::Receiver,
        () if times.window < TRACE && times.busy < BUSY => Support::Sender,
        () => Support::Neither,
    };
    if let Some(found) = ends::cpu(evidence, support) {
        return found.and_then(|limit| undisputed(limit, times));
    }
    if times.window >= LITTLE && times.buffer >= LITTLE {
        return Err("the receiver's window and the send buffer both held the sender back".to_owned());
    }
    if is_most(times.window) {
        return receiver_window(evidence, times);
    }
    if is_most(times.buffer) {
        return send_buffer(evidence, times);
    }
    if times.window >= LITTLE || times.buffer >= LITTLE {
        return Err("no cause held for most of the time".to_owned());
    }
    if times.busy < BUSY { idle(evidence, times) } else { path(evidence, times) }
}

/// A test that stops by a count may end at the sender while most of it is still in its buffer: thread and kernel were looked at for the
/// time until then, and say nothing about the rest.
fn handed_over(row: &Row) -> Option<String> {
    let sent_s = row.bytes_sent? as f64 * 8.0 / row.sent_bits_per_s?;
    let share = sent_s / row.elapsed_s?;
    (share < HANDED_OVER).then(|| {
        format!(
            "the sender handed all its data to the kernel in {} of the time that they took to arrive",
            margin(share)
        )
    })
}

/// A full thread is the limit unless TCP's times point to the other end.
fn undisputed(limit: Limit, times: Times) -> Result<Limit, String> {
    let other = match limit.by {
        LimitedBy::SenderCpu if is_most(times.window) => "yet the receiver's window held the sender back",
        LimitedBy::SenderCpu | LimitedBy::ReceiverCpu if is_most(times.buffer) => {
            "yet the send buffer held the sender back"
        }
        LimitedBy::ReceiverCpu if times.window < TRACE && times.busy < BUSY => {
            "yet the sender had nothing to send for a part of the time"
        }
        _ => return Ok(limit),
    };
    Err(format!("{}, {other}", limit.because))
}

/// A receive buffer that is small on any path.
fn small_buffer(evidence: &Evidence<'_>, times: Times, buffer: f64) -> Result<Limit, String> {
    // On a link slow enough for a queue of so little data it is the link. A reader that waits for its CPU delays answers, too.
    if let Some(queue) = ends::queue(evidence).filter(|_| !evidence.receiver.waits()) {
        return ends::full(evidence).ok_or(queue);
    }
    let because = format!(
        "{}; {} has a buffer of {} only; try {}",
        of_the_time(times.window),
        evidence.receiver.host,
        human(Unit::Bytes, buffer),
        advice(evidence, true, buffer)
    );
    Ok(Limit::named(LimitedBy::ReceiverWindow, times.window, because))
}

fn receiver_window(evidence: &Evidence<'_>, times: Times) -> Result<Limit, String> {
    let receiver = &evidence.receiver;
    // A reader that could not run is the deeper cause.
    if is_most(receiver.held()) && receiver.load().is_some() {
        return Ok(ends::of_thread(LimitedBy::ReceiverCpu, receiver, &evidence.sender, evidence.shares_cpus()));
    }
    if may_be_full(receiver) {
        return Err(format!("the sender waited for room at {}, whose thread was neither full nor idle", receiver.host));
    }
    if receiver.held() >= LITTLE {
        return Err(format!("the sender waited for room at {}, {}", receiver.host, held_up(receiver)));
    }
    let (_, buffer) = evidence.buffers();
    let in_flight = evidence.in_flight();
    let row = evidence.row;
    let closed = row.receive_window_bytes.zip(row.mss_bytes).is_some_and(|(window, mss)| window < mss * 2);
    // A window that holds two segments closes while they are on their way to the reader, and opens for whole segments only.
    let holds_two =
        closed && buffer.zip(row.mss_bytes).is_some_and(|(buffer, mss)| buffer <= BUFFER_OF_TWO * mss as f64);
    let slow = (closed && !holds_two)
        || buffer.zip(in_flight).is_some_and(|(buffer, in_flight)| in_flight < buffer * SLOW_READER);
    if !slow && let Some(queue) = ends::queue(evidence) {
        return ends::full(evidence).ok_or(queue);
    }
    let bytes = |bytes: f64| human(Unit::Bytes, bytes);
    let time = of_the_time(times.window);
    let because = match (buffer, in_flight) {
        (Some(buffer), _) if holds_two => format!(
            "{time}; {} has a buffer of {}, room for two segments of {} at most; try {}",
            receiver.host,
            bytes(buffer),
            bytes(row.mss_bytes.unwrap_or(0) as f64),
            advice(evidence, true, buffer)
        ),
        _ if closed => {
            format!("{time}; the window of {} was closed at the end, so its reader was slow", receiver.host)
        }
        (Some(buffer), Some(in_flight)) if slow => format!(
            "{time}; {} has a buffer of {} and the path holds {}, so its reader was slow and the buffer is large enough",
            receiver.host,
            bytes(buffer),
            bytes(in_flight)
        ),
        (Some(buffer), _) => {
            let holds = path_bytes(evidence).filter(|path| *path > buffer / 2.0);
            let holds = holds.map(|path| format!(" and the path holds {}", bytes(path))).unwrap_or_default();
            format!(
                "{time}; {} has a buffer of {}{holds}; try {}",
                receiver.host,
                bytes(buffer),
                advice(evidence, true, buffer)
            )
        }
        (None, _) => {
            let window = evidence.row.receive_window_bytes.filter(|w| *w > 0);
            let window = window.map(|w| format!(" of {}", bytes(w as f64))).unwrap_or_default();
            format!("{time} the sender waited for room in the window{window} of {}", receiver.host)
        }
    };
    Ok(Limit::named(LimitedBy::ReceiverWindow, times.window, because))
}

fn send_buffer(evidence: &Evidence<'_>, times: Times) -> Result<Limit, String> {
    let sender = &evidence.sender;
    if sender.load().is_some_and(|load| load >= FULL_WITH_SUPPORT) {
        return Err(format!("the send buffer held the sender back, and the thread of {} was nearly full", sender.host));
    }
    if let Some(queue) = ends::queue(evidence) {
        return ends::full(evidence).ok_or(queue);
    }
    let time = of_the_time(times.buffer);
    let because = match evidence.buffers().0 {
        Some(buffer) => {
            let holds = path_bytes(evidence).filter(|path| *path > buffer / 2.0);
            let holds =
                holds.map(|path| format!(" and the path holds {}", human(Unit::Bytes, path))).unwrap_or_default();
            format!(
                "{time}; {} has a send buffer of {}{holds}; try {}",
                sender.host,
                human(Unit::Bytes, buffer),
                advice(evidence, false, buffer)
            )
        }
        None => format!("{time} {} waited for room in its send buffer", sender.host),
    };
    Ok(Limit::named(LimitedBy::SendBuffer, times.buffer, because))
}

/// Bytes that the path holds: the speed of its link times the smallest round-trip time.
fn path_bytes(evidence: &Evidence<'_>) -> Option<f64> {
    let wire = evidence.row.number("wire_bits_per_s")?;
    Some(wire / 8.0 * evidence.row.min_rtt_us? / 1e6)
}

/// `socket.receive_buffer: 4MiB`: twice what the path holds, or four times the buffer, as a power of two. The kernel doubles
/// what is asked for, and uses about half of that for data.
fn advice(evidence: &Evidence<'_>, receive: bool, buffer: f64) -> String {
    let end = if receive { &evidence.receiver } else { &evidence.sender };
    let wanted = path_bytes(evidence).map_or(0.0, |path| path * 2.0).max(buffer * 2.0).max(4096.0);
    let bytes = wanted.log2().ceil().exp2();
    let which = if receive { "receive_buffer" } else { "send_buffer" };
    format!("`{}.{which}: {}`", end.key("socket"), human(Unit::Bytes, bytes).replace(' ', ""))
}

/// A sender that often had nothing to send. The two shares of the window, for which TCP had data and for which the thread slept,
/// bound how often the thread slept without data, and how often it was ready to send and could not run.
fn idle(evidence: &Evidence<'_>, times: Times) -> Result<Limit, String> {
    let (sender, receiver) = (&evidence.sender, &evidence.receiver);
    let idle = 1.0 - times.busy;
    if evidence.row.offered_per_s.is_some() {
        return Err("the sender missed the plan's rate, and waited between its sends".to_owned());
    }
    let Some(load) = sender.load() else {
        return Err("the sender often had nothing to send, and its thread could not be looked at".to_owned());
    };
    let asleep = 1.0 - load;
    if asleep - times.busy >= PROVEN {
        let because = format!(
            "{} had nothing to send {}, while its data thread slept ({} in all): the program waited for something else",
            sender.host,
            of_the_time(idle),
            of_the_time(asleep)
        );
        return Ok(Limit::named(LimitedBy::Application, idle, because));
    }
    if idle - asleep >= PROVEN {
        return Ok(ends::of_thread(LimitedBy::SenderCpu, sender, receiver, evidence.shares_cpus()));
    }
    Err(format!("the sender had nothing to send {}, and no cause held for most of it", of_the_time(idle)))
}

/// A sender that always had data under way, and waited for neither window nor buffer.
fn path(evidence: &Evidence<'_>, times: Times) -> Result<Limit, String> {
    // BBR paces by what the path delivered, so a full path is the deeper cause.
    let paced = paced(evidence);
    let full = if evidence.is_bbr() { ends::full(evidence).or(paced) } else { paced.or_else(|| ends::full(evidence)) };
    if let Some(limit) = full {
        return Ok(limit);
    }
    if let Some(found) = lost(evidence, times) {
        return found;
    }
    if let Some(why) = ends::queue(evidence) {
        return Err(why);
    }
    let (sender, receiver) = (&evidence.sender, &evidence.receiver);
    if may_be_full(sender) || may_be_full(receiver) {
        return Err("a data thread was neither full nor idle, and TCP's times name no cause".to_owned());
    }
    if !sleeps(sender) {
        return Err("TCP's times name no cause".to_owned());
    }
    let (Some(window), Some(in_flight)) = (evidence.row.cwnd_bytes, evidence.in_flight()) else {
        return Err("TCP's times name no cause, and its congestion window is not known".to_owned());
    };
    let filled = window as f64 / in_flight;
    let buffer = evidence.buffers().0.filter(|buffer| {
        let of_buffer = in_flight / (buffer + ONE_PACKET);
        (BUFFER_FILLED.0..=BUFFER_FILLED.1).contains(&of_buffer)
    });
    if let Some(buffer) = buffer {
        if filled <= WINDOW_FILLED.1 {
            return Err("both the send buffer and the congestion window may have been full".to_owned());
        }
        let because = format!(
            "{} was in flight, what a send buffer of {} holds, and the congestion control of {} allowed {}; try {}",
            human(Unit::Bytes, in_flight),
            human(Unit::Bytes, buffer),
            sender.host,
            human(Unit::Bytes, window as f64),
            advice(evidence, false, buffer)
        );
        return Ok(Limit::named(LimitedBy::SendBuffer, times.busy - times.window, because));
    }
    if !(WINDOW_FILLED.0..=WINDOW_FILLED.1).contains(&filled) {
        return Err(format!(
            "TCP's times name no cause, and the congestion window of {} is not what was in flight ({})",
            human(Unit::Bytes, window as f64),
            human(Unit::Bytes, in_flight)
        ));
    }
    let because = format!(
        "{} of {} was in flight in each round trip of {}, all that its congestion control allowed; a longer warm-up or more \
         `streams` let it grow",
        human(Unit::Bytes, window as f64),
        sender.host,
        human(Unit::Microseconds, evidence.row.rtt_us.unwrap_or(0.0))
    );
    Ok(Limit::named(LimitedBy::CongestionWindow, times.busy - times.window - times.buffer, because))
}

/// A kernel that spaces the sends.
fn paced(evidence: &Evidence<'_>) -> Option<Limit> {
    let row = evidence.row;
    let rate = row.pacing_rate_bits_per_s.filter(|rate| *rate > 0.0)?;
    let used = row.throughput_bits_per_s.or(row.sent_bits_per_s)? / rate;
    let is_bbr = evidence.is_bbr();
    let (low, high) = if is_bbr { PACED_BBR } else { PACED };
    // A rate that the kernel derives from its window is no limit of its own.
    let of_window = row.cwnd_bytes.zip(row.rtt_us).map(|(cwnd, rtt)| rate / (cwnd as f64 * 8.0 / (rtt / 1e6)));
    if !(low..=high).contains(&used) || !is_bbr && of_window.is_none_or(|ratio| ratio > PACING_OF_WINDOW) {
        return None;
    }
    let rate = human(Unit::BitsPerSecond, rate);
    let because = if is_bbr {
        format!(
            "it spaced the segments at {rate}, its estimate of the path; `congestion_control: cubic` shows whether that carries more"
        )
    } else {
        format!(
            "the kernel spaced the segments at {rate}; `{}.pacing_rate` or `rate` sets it",
            evidence.sender.key("socket")
        )
    };
    Some(Limit::named(if is_bbr { LimitedBy::Bbr } else { LimitedBy::Pacing }, used.min(1.0), because))
}

/// Losses that explain the throughput: at a place that counts its drops, or somewhere on the path.
fn lost(evidence: &Evidence<'_>, times: Times) -> Option<Result<Limit, String>> {
    let segments = evidence.segments()?;
    let retransmits = evidence.retransmits().unwrap_or(0.0);
    // Segments that the sender's own queue refuses are sent again and are no retransmits.
    let refused = evidence.sender.drops[0].1.unwrap_or(0.0);
    let losses = retransmits.max(refused);
    let ratio = losses / segments;
    if losses < 1.0 || !explains(evidence, ratio) {
        return None;
    }
    if losses < FEW_LOSSES {
        return Some(Err("so few segments were lost that they prove nothing".to_owned()));
    }
    let share = margin(ratio.min(1.0));
    let held = times.busy - times.window - times.buffer;
    let receiver = &evidence.receiver;
    let place = place_of(evidence).filter(|(.., drops)| *drops >= losses * EXPLAINED);
    // A receiver that could not run left its socket's backlog to overflow.
    if place.is_none() && receiver.held() >= LITTLE {
        return Some(Err(format!("{share} of the segments were lost, {}", held_up(receiver))));
    }
    if let Some((place, host, drops)) = place {
        if matches!(place, Place::Socket | Place::Softnet) && (receiver.waits() || may_be_full(receiver)) {
            let why = format!("{} dropped packets, and its thread did not always run when it could", place.of(host));
            return Some(Err(why));
        }
        let because = format!(
            "{} dropped {}, {share} of the segments, and the congestion control slowed down",
            place.of(host),
            evidence.count(drops, "packets")
        );
        return Some(Ok(Limit::named(LimitedBy::Queue, held, because)));
    }
    let because = format!(
        "{} were sent again, {share} of all, and the congestion control slowed down; neither end dropped them",
        evidence.count(retransmits, "segments")
    );
    Some(Ok(Limit::named(LimitedBy::Loss, held, because)))
}

/// `and the thread of b could not run 30 % of the time`
fn held_up(end: &End<'_>) -> String {
    format!("and the thread of {} was ready and could not run {}", end.host, of_the_time(end.held()))
}

/// Whether a loss of this share explains the throughput, by the formula of Mathis and others (1997): MSS ÷ RTT × 1.22 ÷ √loss
/// is about what a congestion control like Reno's reaches. Others reach more.
fn explains(evidence: &Evidence<'_>, loss: f64) -> bool {
    if evidence.is_bbr() {
        return loss >= BBR_LOSS;
    }
    let row = evidence.row;
    let (Some(bits), Some(mss), Some(rtt)) = (row.throughput_bits_per_s, row.mss_bytes, row.rtt_us) else {
        return false;
    };
    let streams = row.streams.unwrap_or(1) as f64;
    let most = streams * mss as f64 * 8.0 / (rtt / 1e6) * 1.22 / loss.sqrt();
    bits >= most / MATHIS_SLACK
}

/// The rule of streams without TCP's times: datagrams, and transports whose kernels tell nothing.
pub fn datagram_rule(evidence: &Evidence<'_>) -> Result<Limit, String> {
    let row = evidence.row;
    if let (Some(lost), Some(loss)) = (row.lost, row.loss_ratio)
        && loss > LOSS
        && lost as f64 >= FEW_PACKETS
    {
        return dropped(evidence, lost as f64, loss);
    }
    let late = late(row);
    if let Some(late) = late.filter(|_| sleeps(&evidence.receiver)) {
        return Err(on_its_way(row, late));
    }
    // A receiver to which everything arrived kept pace, however full it is.
    let is_full = evidence.sender.load().is_some_and(|load| load >= FULL);
    let support =
        if row.loss_ratio.is_some() && is_full && late.is_none() { Support::Sender } else { Support::Neither };
    match ends::cpu(evidence, support) {
        Some(found) => found,
        None if may_be_full(&evidence.sender) || may_be_full(&evidence.receiver) => {
            Err("a data thread was neither full nor idle".to_owned())
        }
        None if evidence.sender.load().is_none() => {
            Err("the data thread of the sender could not be looked at".to_owned())
        }
        None if matches!(row.transport.as_deref(), Some("tcp" | "mptcp" | "tls")) => {
            Err("both ends waited, and TCP's times were not collected (`collect: [tcp_info]`)".to_owned())
        }
        None => Err("both ends waited, and this transport does not tell for what".to_owned()),
    }
}

/// The longest run of lost datagrams, if it has half of them: a full link loses some all the time.
pub fn lost_at_once(row: &Row) -> Option<u64> {
    row.loss_run_max.filter(|run| *run as f64 >= FEW_PACKETS && 2 * run >= row.lost.unwrap_or(u64::MAX))
}

/// Share of the datagrams that were neither lost nor there at the end; `None`: no more than a burst at an edge of the window.
pub fn late(row: &Row) -> Option<f64> {
    let late = 1.0 - row.throughput_bits_per_s? / row.sent_bits_per_s? - row.loss_ratio?;
    (late >= 2.0 * RATE_SLACK).then_some(late)
}

/// A queue that still grows and a long path that a load has just begun to fill look alike.
fn on_its_way(row: &Row, late: f64) -> String {
    let [arrived, sent] =
        [row.throughput_bits_per_s, row.sent_bits_per_s].map(|bits| human(Unit::BitsPerSecond, bits.unwrap_or(0.0)));
    let lost = row.loss_ratio.filter(|loss| *loss > 0.0);
    let lost = lost.map_or_else(|| "none was lost".to_owned(), |loss| format!("{} were lost", margin(loss)));
    format!(
        "{arrived} arrived of the {sent} that were sent, {lost}, and {} was on its way: in a queue, which loses packets once it is full, \
         or on a long path that had just begun to fill",
        margin(late)
    )
}

/// The rule of streams over QUIC. Its library tells round trips, losses, and that the receiver's window is full, and no times.
pub fn quic_rule(evidence: &Evidence<'_>) -> Result<Limit, String> {
    let row = evidence.row;
    if let Some(found) = ends::cpu(evidence, Support::Neither) {
        return found;
    }
    if may_be_full(&evidence.sender) || may_be_full(&evidence.receiver) {
        return Err("a data thread was neither full nor idle".to_owned());
    }
    let queue =
        row.rtt_us.zip(row.min_rtt_us).filter(|(rtt, least)| *rtt >= least * QUEUED && rtt - least >= QUEUED_US);
    let stands = queue.map(|(rtt, least)| {
        let [rtt, least] = [rtt, least].map(|us| human(Unit::Microseconds, us));
        format!("a round trip took {rtt}, and {least} without a queue")
    });
    let lost = row.quic_lost.unwrap_or(0) as f64;
    let loss = row.quic_loss_ratio.unwrap_or(0.0);
    if loss > LOSS && lost >= FEW_PACKETS {
        if place_of(evidence).is_some_and(|(.., drops)| drops >= lost * EXPLAINED) {
            return dropped(evidence, lost, loss);
        }
        if stands.is_none() {
            let because = format!(
                "{} were lost, {} of all, and the congestion control slowed down; neither end dropped them, and no queue stood",
                evidence.count(lost, "packets"),
                margin(loss)
            );
            return Ok(Limit::named(LimitedBy::Loss, 1.0, because));
        }
    }
    match (row.quic_blocked.unwrap_or(0), stands) {
        (blocked, None) if blocked as f64 >= FEW_PACKETS => {
            let because = format!(
                "the sender said {} that the receiver's window was full, and no queue stood on the path; `quic.window` sets it",
                evidence.count(blocked as f64, "times")
            );
            Ok(Limit::named(LimitedBy::ReceiverWindow, 1.0, because))
        }
        (_, Some(stands)) => {
            let rate = human(Unit::BitsPerSecond, row.throughput_bits_per_s.unwrap_or(0.0));
            Ok(Limit::named(
                LimitedBy::Path,
                1.0,
                format!("{rate} arrived, and data stood in a queue of the path: {stands}"),
            ))
        }
        (_, None) => Err("both ends waited, and QUIC's library does not tell for what".to_owned()),
    }
}

/// Datagrams that a known place dropped.
fn dropped(evidence: &Evidence<'_>, lost: f64, loss: f64) -> Result<Limit, String> {
    let receiver = &evidence.receiver;
    let share = margin(loss);
    let Some((place, host, drops)) = place_of(evidence).filter(|(.., drops)| *drops >= lost * EXPLAINED) else {
        if let Some(run) = lost_at_once(evidence.row) {
            return Err(format!(
                "{share} of the datagrams were lost, most of them in one run of {run}: the path was down for a moment, or one burst \
                 overflowed a queue"
            ));
        }
        return ends::lost(evidence, lost, loss)
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
