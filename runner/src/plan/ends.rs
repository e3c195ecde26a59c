//! Buffers, addresses and ports of an end.

use std::net::IpAddr;

use netcore::spec::{BufferOptions, EndSpec};

use super::{
    keys::{SpecError, error, key},
    model::{Host, Ports, TestBody},
};

/// The buffers of the near and the far end. A mistake that the far end inherits is reported once, at the near end.
pub(super) fn buffers(body: &TestBody, errors: &mut Vec<SpecError>) -> (BufferOptions, BufferOptions) {
    let default = BufferOptions::default();
    let (near, far) = (body.buffers.clone().unwrap_or_default(), body.remote_buffers.clone().unwrap_or_default());
    for (section, end, known) in [(key::buffers, &near, &default), (key::remote_buffers, &far, &near)] {
        if end.ring == 0 && known.ring != 0 {
            errors.push(error(&format!("{section}.ring"), "`ring` is 0", "1 buffer or more"));
        }
        let alignment = end.alignment.filter(|bytes| !bytes.is_power_of_two() && known.alignment != Some(*bytes));
        if let Some(bytes) = alignment {
            errors.push(error(
                &format!("{section}.alignment"),
                format!("an alignment of {bytes} is not a power of two"),
                bytes.checked_next_power_of_two().map_or(String::new(), |n| format!("for example {n}")),
            ));
        }
    }
    (near, far)
}

/// Splits `10.0.0.2%eth1` into an address and its interface.
pub fn bind_parts(text: &str) -> Result<(IpAddr, Option<&str>), String> {
    let (address, device) = text.split_once('%').map_or((text, None), |(a, d)| (a, Some(d)));
    match address.parse() {
        Ok(address) => Ok((address, device)),
        Err(_) => Err(format!("`{text}` is not an address to bind to: write 10.0.0.2 or 10.0.0.2%eth1")),
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

pub(super) fn ports(ports: Option<Ports>) -> (Option<u16>, Option<u16>) {
    ports.map_or((None, None), |p| (Some(p.first), (p.count > 1).then_some(p.count)))
}
