//! The ceiling of a wire: of the messages of a row, or of messages that have not been sent.

use std::io::Write;

use schemas::columns::number;
use schemas::units::{self, Unit};

use crate::error::Error;
use crate::wire::{Load, Packets, TIMESTAMPS};

/// Headers inside an Ethernet frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Headers {
    /// TCP over IPv4
    Tcp4,
    /// TCP over IPv6
    Tcp6,
    /// UDP over IPv4
    Udp4,
    /// UDP over IPv6
    Udp6,
}

impl Headers {
    /// Those of a row, by its transport; rows do not say the version of IP.
    fn of(transport: &str) -> Self {
        if matches!(transport, "udp" | "udplite") { Self::Udp4 } else { Self::Tcp4 }
    }
}

/// A link.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    pub bits_per_s: f64,
    pub mtu: u64,
    /// `None`: by the rows' transport.
    pub headers: Option<Headers>,
    /// Whether TCP has timestamps.
    pub timestamps: bool,
    pub tags: u64,
}

impl Wire {
    /// Messages of a size; TCP fills its segments, whatever their size.
    fn load(&self, headers: Headers, message_bytes: Option<u64>) -> Result<Load, Error> {
        let ipv6 = matches!(headers, Headers::Tcp6 | Headers::Udp6);
        let packets = Packets { ipv6, mtu: self.mtu, tags: self.tags };
        let load = match headers {
            Headers::Tcp4 | Headers::Tcp6 => packets.tcp(if self.timestamps { TIMESTAMPS } else { 0 }),
            Headers::Udp4 | Headers::Udp6 => {
                message_bytes.or_else(|| packets.largest_message()).and_then(|bytes| packets.udp(bytes))
            }
        };
        load.ok_or_else(|| Error::Usage(format!("an MTU of {} bytes leaves no room beside the headers", self.mtu)))
    }

    /// Payload bits per second of a full link, for messages of that transport and size.
    pub fn carries(&self, transport: &str, message_bytes: Option<u64>) -> Result<f64, Error> {
        let headers = self.headers.unwrap_or_else(|| Headers::of(transport));
        Ok(self.load(headers, message_bytes)?.at(self.bits_per_s))
    }

    /// Messages of these sizes; of the largest that fit a packet, if none is named.
    pub fn loads(&self, sizes: &[u32]) -> Result<Vec<Load>, Error> {
        let headers = self.headers.unwrap_or(Headers::Tcp4);
        if sizes.is_empty() {
            return Ok(vec![self.load(headers, None)?]);
        }
        if matches!(headers, Headers::Tcp4 | Headers::Tcp6) {
            return Err(Error::Usage(
                "--message-size is for datagrams, and TCP fills its segments: name --headers udp4 or udp6".to_owned(),
            ));
        }
        sizes.iter().map(|bytes| self.load(headers, Some((*bytes).into()))).collect()
    }

    pub fn write(&self, loads: &[Load], as_text: bool, output: &mut dyn Write) -> Result<(), Error> {
        if as_text {
            for load in loads {
                writeln!(
                    output,
                    "{} of payload: {} of each {} bytes on the wire, {:.2} %",
                    units::human(Unit::BitsPerSecond, load.at(self.bits_per_s)),
                    load.payload,
                    load.wire,
                    load.at(100.0)
                )?;
            }
            return Ok(());
        }
        let mut writer = csv::Writer::from_writer(output);
        writer.write_record(["payload_bytes", "wire_bytes", "wire_goodput_bits_per_s"])?;
        for load in loads {
            let rate = number(load.at(self.bits_per_s));
            writer.write_record([load.payload.to_string(), load.wire.to_string(), rate])?;
        }
        Ok(writer.flush()?)
    }
}
