//! netperf's test-specific options: those after `--`.

use std::time::Duration;

use netcore::spec::{Family, Transport};

use super::{
    globals::{Stop, wrong},
    kind::Calls,
    words::{self, Getopt, Item, Pair, both, complaint, first},
};

/// The letters of the options; a colon after one says that it takes a value.
pub const LETTERS: &str = "aBb:cCd:De:fFgG:hH:i:Ij:kK:l:L:m:M:nNoOp:P:q:r:R:s:S:t:T:u:UVw:W:46";

/// Layout of a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `-k`: a line `NAME=value` for each selector.
    KeyValue,
    /// `-o`: CSV.
    Csv,
    /// `-O`: columns below their titles.
    Columns,
}

/// The options after `--`.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the command line")]
pub struct Specifics {
    /// Layout, and the selection if one is given.
    pub output: Option<(Form, Option<String>)>,
    /// Bytes per send call.
    pub send_size: Pair<u64>,
    /// Bytes per receive call.
    pub receive_size: Pair<u64>,
    /// Bytes of a request (`local`) and of a response (`remote`).
    pub exchange: Pair<u64>,
    /// Send (`local`) and receive (`remote`) buffer of this end's socket.
    pub local_buffers: Pair<u64>,
    /// The same of the far end's socket.
    pub remote_buffers: Pair<u64>,
    pub no_delay: bool,
    pub cork: bool,
    /// Requests beyond the first that are under way.
    pub burst: u32,
    pub connects: bool,
    pub calls: Option<Calls>,
    pub transport: Option<Transport>,
    /// Address of the data connections, where it is not that of the control connection.
    pub host: Option<String>,
    pub local: Option<String>,
    pub family: Option<Family>,
    pub ports: Pair<u16>,
    /// First and last port of connection tests.
    pub port_range: Pair<u16>,
    pub congestion_control: Pair<String>,
    pub routing: Option<bool>,
    /// After this time without an answer a datagram counts as lost.
    pub timeout: Option<Duration>,
    pub uuid: Option<String>,
    /// Bytes per second.
    pub pacing_rate: u64,
    pub discovers_mtu: bool,
    pub fast_open: bool,
    pub defers_accept: bool,
    pub mss: Option<u64>,
    pub ttl: Option<u8>,
    /// Buffers used in turn (`-W`).
    pub ring: Option<u64>,
    pub connected: bool,
    pub copy_avoidance: bool,
    /// Lines for standard error.
    pub complaints: Vec<String>,
}

/// Reads the words after `--`. `is_omni`: `-d`, `-m`, `-M` and `-r` choose the direction.
pub fn parse(words: &[String], program: &str, is_omni: bool) -> Result<Specifics, Stop> {
    let mut specifics = Specifics::default();
    let mut reading = Getopt::new(words, LETTERS);
    while let Some(item) = reading.next_item() {
        if let Some(complaint) = complaint(&item) {
            // netperf goes on after it.
            specifics.complaints.push(format!("{program}: {complaint}"));
        }
        let Item::Option(letter, value) = item else { continue };
        let text = value.unwrap_or_default();
        let form = match letter {
            'k' => Form::KeyValue,
            'o' => Form::Csv,
            'O' => Form::Columns,
            'h' => return Err(Stop::TestUsage),
            _ => {
                option(&mut specifics, letter, &text, is_omni).map_err(wrong(letter))?;
                continue;
            }
        };
        let selection = reading.take_if(|word| !word.starts_with('-'));
        if selection.as_deref() == Some("?") {
            return Err(Stop::Names { one_per_line: form == Form::Columns });
        }
        specifics.output = Some((form, selection));
    }
    Ok(specifics)
}

fn option(out: &mut Specifics, letter: char, text: &str, is_omni: bool) -> Result<(), String> {
    let implied = |out: &mut Specifics, calls: Calls| {
        if is_omni {
            out.calls = Some(out.calls.unwrap_or_default().and(calls));
        }
    };
    let names = |text: &str| Ok(text.to_owned());
    match letter {
        '4' => out.family = Some(Family::V4),
        '6' => out.family = Some(Family::V6),
        'a' => out.defers_accept = true,
        'b' => out.burst = u32::try_from(words::number(text)?.max(0)).unwrap_or(u32::MAX - 1),
        'c' => out.connects = true,
        'C' => out.cork = true,
        'd' if is_omni => out.calls = Some(direction(text)?),
        'D' => out.no_delay = true,
        'e' => out.timeout = Some(words::seconds(text)?).filter(|time| !time.is_zero()),
        'f' => out.discovers_mtu = true,
        'F' => out.fast_open = true,
        'G' => out.mss = Some(words::size(text)?),
        'H' | 'L' => {
            let (name, family) = first(text);
            if let Some((_, mask)) = name.and_then(|name| name.split_once('/')) {
                return Err(format!("random addresses (`/{mask}`) are not available: name one address"));
            }
            let place = if letter == 'H' { &mut out.host } else { &mut out.local };
            *place = name.map(str::to_owned).or(place.take());
            if let Some(family) = family {
                out.family = Some(words::family(family)?);
            }
        }
        'i' => out.complaints.push("the option -i of a test has no effect any more".to_owned()),
        'K' => out.congestion_control.set(both(text), names)?,
        'l' => out.ttl = Some(text.parse().map_err(|_| format!("`{text}` is not a time to live: write 1 to 255"))?),
        'm' => {
            out.send_size.set(first(text), words::size)?;
            implied(out, Calls::SEND);
        }
        'M' => {
            // The first value is the far end's.
            let (remote, local) = first(text);
            out.receive_size.set((local, remote), words::size)?;
            implied(out, if local.is_some() { Calls::RECEIVE } else { Calls::NONE });
        }
        'n' => out.connected = true,
        'p' => out.port_range.set(both(text), words::port)?,
        'P' => out.ports.set(both(text), words::port)?,
        'q' => out.pacing_rate = words::size(text)?,
        'r' => {
            out.exchange.set(both(text), words::size)?;
            implied(out, Calls::BOTH);
        }
        'R' => out.routing = Some(words::number(text)? != 0),
        's' => out.local_buffers.set(both(text), words::size)?,
        'S' => out.remote_buffers.set(both(text), words::size)?,
        't' => socket_type(out, text)?,
        'T' => out.transport = Some(protocol(text)?),
        'u' => out.uuid = Some(text.to_owned()),
        'V' => out.copy_avoidance = true,
        'W' => out.ring = Some(words::size(text)?),
        // -B, -g, -I, -j, -N, -U, -w, and -d of a test that has its direction.
        _ => {}
    }
    Ok(())
}

/// `send`, `recv`, `rr`, a number of bits (2 send, 4 receive), or several joined by `|`.
fn direction(text: &str) -> Result<Calls, String> {
    let part = |part: &str| -> Result<Calls, String> {
        let word = part.trim().to_ascii_lowercase();
        Ok(match word.as_str() {
            "send" | "stream" | "transmit" | "xmit" => Calls::SEND,
            "recv" | "receive" | "maerts" => Calls::RECEIVE,
            "rr" => Calls::BOTH,
            bits => {
                let (digits, base) = bits.strip_prefix("0x").map_or((bits, 10), |hex| (hex, 16));
                let bits = u8::from_str_radix(digits, base)
                    .map_err(|_| format!("`{part}` is not a direction: write send, recv or rr"))?;
                Calls { send: bits & 2 != 0, receive: bits & 4 != 0 }
            }
        })
    };
    let mut parts = text.split('|').map(part);
    parts.try_fold(Calls::NONE, |all, one| Ok(all.and(one?)))
}

fn protocol(text: &str) -> Result<Transport, String> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "tcp" => Transport::Tcp,
        "udp" => Transport::Udp,
        "udplite" => Transport::UdpLite,
        "sctp" => Transport::Sctp,
        "dccp" => Transport::Dccp,
        _ => return Err(format!("`{text}` is not a protocol: write tcp, udp, sctp, dccp or udplite")),
    })
}

/// The protocol decides the type; without one, the type decides the protocol.
fn socket_type(out: &mut Specifics, text: &str) -> Result<(), String> {
    let transport = match text.to_ascii_lowercase() {
        word if word.contains("dgram") => Transport::Udp,
        word if word.contains("stream") => Transport::Tcp,
        _ => return Err(format!("`{text}` is not a socket type: write stream or dgram")),
    };
    out.transport = out.transport.or(Some(transport));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Specifics, Stop> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), "netperf", line.contains("-d"))
    }

    #[test]
    fn flents_options_are_read() {
        let specifics = read("-e 2 -m 1400 -M 1400 -L 10.0.0.1,4 -H host -k THROUGHPUT,ELAPSED_TIME -K cubic").unwrap();
        let expected = Specifics {
            output: Some((Form::KeyValue, Some("THROUGHPUT,ELAPSED_TIME".to_owned()))),
            timeout: Some(Duration::from_secs(2)),
            send_size: Pair { local: Some(1400), remote: None },
            receive_size: Pair { local: None, remote: Some(1400) },
            host: Some("host".to_owned()),
            local: Some("10.0.0.1".to_owned()),
            family: Some(Family::V4),
            congestion_control: Pair { local: Some("cubic".to_owned()), remote: Some("cubic".to_owned()) },
            ..Specifics::default()
        };
        assert_eq!(specifics, expected);
    }

    #[test]
    fn a_selection_is_the_next_word_unless_it_is_an_option() {
        assert_eq!(read("-k -P ,7777").unwrap().output, Some((Form::KeyValue, None)));
        assert_eq!(read("-o -O all").unwrap().output, Some((Form::Columns, Some("all".to_owned()))));
        assert_eq!(read("-O ?"), Err(Stop::Names { one_per_line: true }));
        assert_eq!(read("-k ?"), Err(Stop::Names { one_per_line: false }));
    }

    #[test]
    fn unknown_options_are_complained_about_and_skipped() {
        let specifics = read("-x -m 5 -M").unwrap();
        let expected = ["netperf: invalid option -- 'x'", "netperf: option requires an argument -- 'M'"];
        assert_eq!(specifics.complaints, expected);
        assert_eq!(specifics.send_size.local, Some(5));
    }

    #[test]
    fn directions_are_words_and_bits() {
        for (text, calls) in [
            ("send", Calls::SEND),
            ("MAERTS", Calls::RECEIVE),
            ("rr", Calls::BOTH),
            ("send|recv", Calls::BOTH),
            ("0x4", Calls::RECEIVE),
            ("2", Calls::SEND),
            ("0", Calls::NONE),
        ] {
            assert_eq!(direction(text), Ok(calls), "{text}");
        }
        assert!(direction("up").is_err());
        assert_eq!(read("-d send -r 10,20").unwrap().calls, Some(Calls::BOTH));
        assert_eq!(read("-r 10,20").unwrap().calls, None, "only omni takes it from -r");
    }

    #[test]
    fn wrong_values_name_the_option() {
        for (line, part) in [
            ("-T ipx", "-T: `ipx` is not a protocol"),
            ("-H 10.0.0.1/24", "-H: random addresses"),
            ("-t raw", "-t: `raw` is not a socket type"),
            ("-r x", "-r: `x` is not a number"),
        ] {
            assert!(matches!(read(line), Err(Stop::Wrong(why)) if why.starts_with(part)), "{line}");
        }
    }
}
