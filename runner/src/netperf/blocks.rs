//! The blocks that `-v 2` adds to a table.

use super::{
    facts::{
        End::{Local, Remote},
        Facts,
    },
    kind::Calls,
};

/// Prints them; nothing below `-v 2` and for tests over datagrams.
pub fn render(facts: &Facts<'_>) -> String {
    let shape = facts.shape();
    if facts.globals().verbosity < 2 || shape.transport.is_datagram() {
        return String::new();
    }
    match (shape.connects, shape.has_transactions()) {
        (true, _) => connections(facts),
        (false, true) => exchange(facts),
        (false, false) => stream(facts),
    }
}

fn connections(facts: &Facts<'_>) -> String {
    let offset = |end| facts.buffers(end).offset;
    format!(
        "\nAlignment      Offset\nLocal  Remote  Local  Remote\nSend   Recv    Send   Recv\n\
         {:>5}  {:>5}   {:>5}  {:>5}\n",
        facts.alignment(Local),
        facts.alignment(Remote),
        offset(Local),
        offset(Remote)
    )
}

fn stream(facts: &Facts<'_>) -> String {
    let is_reverse = facts.shape().calls == Calls::RECEIVE;
    let (here, there) = if is_reverse { ("Recv", "Send") } else { ("Send", "Recv") };
    let offset = |end| facts.buffers(end).offset;
    let (sender, other) = if is_reverse { (Remote, Local) } else { (Local, Remote) };
    let sent = facts.end(sender).map_or((0, 0), |end| (end.bytes_sent, end.sends));
    let received = facts.end(other).map_or((0, 0), |end| (end.bytes_received, end.receives));
    let per_send = facts.per_call(sender, |end| (end.bytes_sent, end.sends));
    let per_receive = facts.per_call(other, |end| (end.bytes_received, end.receives));
    // This end's calls come first.
    let (bytes, first, second) = if is_reverse {
        (received.0, (per_receive, received.1), (per_send, sent.1))
    } else {
        (sent.0, (per_send, sent.1), (per_receive, received.1))
    };
    format!(
        "\nAlignment      Offset         Bytes    Bytes       {here}s   Bytes    {there}s\n\
         Local  Remote  Local  Remote  Xfered   Per                 Per\n\
         {here}   {there}    {here}   {there}             {here} (avg)          {there} (avg)\n\
         {:>5}   {:>5}  {:>5}   {:>5} {bytes:>6}  {:>6.2}    {:>6}   {:>6.2} {:>6}\n\
         \nMaximum\nSegment\nSize (bytes)\n{:>6}\n",
        facts.alignment(Local),
        facts.alignment(Remote),
        offset(Local),
        offset(Remote),
        first.0,
        first.1,
        second.0,
        second.1,
        facts.figures.mss.map_or(-1, u64::cast_signed)
    )
}

fn exchange(facts: &Facts<'_>) -> String {
    let offset = |end| facts.buffers(end).offset;
    let unit = facts.unit().as_volume();
    let rate = |bytes| facts.figures.rate_of(bytes, unit);
    format!(
        "Alignment      Offset         RoundTrip  Trans    Throughput\n\
         Local  Remote  Local  Remote  Latency    Rate     {:<8.8}/s\n\
         Send   Recv    Send   Recv    usec/Tran  per sec  Outbound   Inbound\n\
         {:>5}  {:>5}   {:>5}  {:>5}   {:<6.3}   {:<6.3} {:<6.3}    {:<6.3}\n",
        unit.label(),
        facts.alignment(Local),
        facts.alignment(Remote),
        offset(Local),
        offset(Remote),
        facts.round_trip_us().unwrap_or(-1.0),
        facts.transaction_rate().unwrap_or(0.0),
        rate(facts.figures.local.bytes_sent),
        rate(facts.figures.local.bytes_received)
    )
}
