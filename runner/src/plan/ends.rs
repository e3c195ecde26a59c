//! What one end is asked for: socket options, buffers, CPUs, addresses and ports.

use std::net::IpAddr;

use netcore::spec::{self, Cpus, EndSpec, socket::BufferOptions};

use super::{
    model::{self, Buffers, Host, Socket},
    quantity::{Size, Time},
    spec::{Fault, fault},
};

pub(super) fn end(
    socket: Option<&Socket>,
    remote: Option<&Socket>,
    buffers: Option<&Buffers>,
    remote_buffers: Option<&Buffers>,
    faults: &mut Vec<Fault>,
) -> EndSpec {
    EndSpec {
        socket: socket_options(socket, remote, faults),
        buffers: buffer_options(buffers, remote_buffers, faults),
        ..EndSpec::default()
    }
}

fn socket_options(socket: Option<&Socket>, remote: Option<&Socket>, faults: &mut Vec<Fault>) -> spec::SocketOptions {
    let (base, empty) = (socket.cloned().unwrap_or_default(), Socket::default());
    let (over, section) = match remote {
        Some(remote) => (remote, "remote_socket"),
        None => (&empty, "socket"),
    };
    macro_rules! pick {
        ($field:ident) => {
            over.$field.clone().or_else(|| base.$field.clone())
        };
    }
    let mut small = |key: &str, value: Option<Size>| match value.map(|Size(bytes)| u32::try_from(bytes)) {
        Some(Err(_)) => {
            faults.push(fault(&format!("{section}.{key}"), format!("`{key}` is too large"), "the limit is 4 GiB"));
            None
        }
        other => other.and_then(Result::ok),
    };
    // The kernel counts whole seconds; rounding down could make them 0, which means something else.
    let seconds = |time: Time| {
        let part = u64::from(time.0.subsec_nanos() > 0);
        u32::try_from(time.0.as_secs() + part).unwrap_or(u32::MAX)
    };
    spec::SocketOptions {
        send_buffer: pick!(send_buffer).map(|s| s.0),
        receive_buffer: pick!(receive_buffer).map(|s| s.0),
        no_delay: pick!(no_delay),
        cork: pick!(cork),
        congestion_control: pick!(congestion_control),
        mss: small("mss", pick!(mss)),
        dscp: pick!(dscp).map(|d| d.0),
        priority: pick!(priority),
        keepalive: pick!(keepalive),
        busy_poll: pick!(busy_poll).map(|t| u32::try_from(t.0.as_micros()).unwrap_or(u32::MAX)),
        fastopen: pick!(fastopen),
        defer_accept: pick!(defer_accept).map(seconds),
        notsent_lowat: small("notsent_lowat", pick!(notsent_lowat)),
        ttl: pick!(ttl),
        dont_route: pick!(dont_route),
        mtu_discover: pick!(mtu_discover).map(|m| m.name().to_owned()),
        linger: pick!(linger).map(seconds),
        // An interface has its name on one machine only.
        device: if remote.is_some() { over.device.clone() } else { base.device.clone() },
        no_checksum: pick!(no_checksum),
        checksum_coverage: small("checksum_coverage", pick!(checksum_coverage)),
    }
}

fn buffer_options(buffers: Option<&Buffers>, remote: Option<&Buffers>, faults: &mut Vec<Fault>) -> BufferOptions {
    let (base, over) = (buffers.cloned().unwrap_or_default(), remote.cloned().unwrap_or_default());
    let section = |remote: bool| if remote { "remote_buffers" } else { "buffers" };
    let (ring, alignment) = (section(over.ring.is_some()), section(over.alignment.is_some()));
    let default = BufferOptions::default();
    let buffers = BufferOptions {
        ring: over.ring.or(base.ring).unwrap_or(default.ring),
        alignment: over.alignment.or(base.alignment).map(|s| s.0).or(default.alignment),
        offset: over.offset.or(base.offset).map_or(default.offset, |s| s.0),
        dirty: over.dirty.or(base.dirty).map_or(default.dirty, |s| s.0),
        clean: over.clean.or(base.clean).map_or(default.clean, |s| s.0),
        fill_file: over.fill_file.or(base.fill_file),
    };
    if buffers.ring == 0 {
        faults.push(fault(&format!("{ring}.ring"), "`ring` is 0", "1 buffer or more"));
    }
    if let Some(bytes) = buffers.alignment.filter(|bytes| !bytes.is_power_of_two()) {
        faults.push(fault(
            &format!("{alignment}.alignment"),
            format!("an alignment of {bytes} is no power of two"),
            bytes.checked_next_power_of_two().map_or(String::new(), |n| format!("for example {n}")),
        ));
    }
    buffers
}

pub(super) fn cpus(written: Option<&model::CpuList>, host: Option<&Host>) -> Option<Cpus> {
    written.or_else(|| host.and_then(|h| h.cpus.as_ref())).map(|list| list.0.clone())
}

/// `10.0.0.2%eth1`: an address, and the interface it is on.
pub fn bind_parts(text: &str) -> Result<(IpAddr, Option<&str>), String> {
    let (address, device) = text.split_once('%').map_or((text, None), |(a, d)| (a, Some(d)));
    match address.parse() {
        Ok(address) => Ok((address, device)),
        Err(_) => Err(format!("`{text}` is no address to bind to: write 10.0.0.2 or 10.0.0.2%eth1")),
    }
}

pub(super) fn bind(end: &mut EndSpec, host: Option<&Host>) {
    let Some(list) = host.and_then(|h| h.bind.as_ref()) else { return };
    for (address, device) in list.0.iter().filter_map(|text| bind_parts(text).ok()) {
        end.bind.push(address);
        if let Some(device) = device {
            end.socket.device.get_or_insert_with(|| device.to_owned());
        }
    }
}

pub(super) fn ports(ports: Option<model::Ports>) -> (Option<u16>, Option<u16>) {
    ports.map_or((None, None), |p| (Some(p.first), (p.count > 1).then_some(p.count)))
}
