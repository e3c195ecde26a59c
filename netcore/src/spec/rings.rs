//! Memory of submission rings (`io: uring`): each thread receives small messages into buffers of its ring's own.

use super::{Io, Side, TestSpec, shape::shapes};

/// Largest receive that is served from a ring's own buffers, bytes: for a larger one the copy from there costs more than
/// is saved.
pub const LARGEST_RECEIVE: usize = 4096;

/// Alignment of each buffer, bytes: a cache line.
pub const LINE: usize = 64;

/// Buffers per loop, so that a flow which is read late does not take those of the others.
const PER_LOOP: usize = 4;

/// Number of buffers of a thread with so many loops: a power of two, as the kernel asks for.
pub fn buffers(loops: usize) -> u16 {
    let count = loops.saturating_mul(PER_LOOP).clamp(16, 1 << 15).next_power_of_two();
    u16::try_from(count).unwrap_or(1 << 15)
}

/// Bytes of the buffers of all rings of an end.
pub(super) fn bytes(spec: &TestSpec, side: Side) -> u128 {
    if spec.io != Io::Uring {
        return 0;
    }
    let roles = [0, spec.flows().saturating_sub(1)].into_iter().flat_map(|flow| spec.roles(side, flow));
    let receive = roles.map(|role| shapes(spec, side, *role).1.message_bytes).max().unwrap_or(0);
    let bytes = usize::try_from(receive).unwrap_or(usize::MAX);
    if !(1..=LARGEST_RECEIVE).contains(&bytes) {
        return 0;
    }
    let threads = spec.threads.unwrap_or(u32::MAX).min(spec.loops()).max(1);
    let loops = spec.loops().div_ceil(threads) as usize;
    u128::from(threads) * u128::from(buffers(loops)) * bytes.next_multiple_of(LINE) as u128
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Pattern, Transport};

    #[test]
    fn small_messages_have_buffers_of_the_rings() {
        let mut spec = TestSpec::new(Pattern::RequestResponse, Transport::Tcp);
        assert_eq!(bytes(&spec, Side::Far), 0);
        spec.io = Io::Uring;
        assert_eq!(bytes(&spec, Side::Far), 16 * 64, "one thread with the least number");
        spec.streams = 256;
        assert_eq!(bytes(&spec, Side::Far), 256 * 16 * 64);
        spec.threads = Some(2);
        spec.sizes.response_bytes = 100;
        assert_eq!(bytes(&spec, Side::Near), 2 * 512 * 128);
        assert_eq!(bytes(&spec, Side::Far), 2 * 512 * 64);
        spec.sizes.response_bytes = 5000;
        assert_eq!(bytes(&spec, Side::Near), 0, "received into the flow's own buffer");
        assert_eq!((buffers(0), buffers(5), buffers(1 << 20)), (16, 32, 1 << 15));
    }
}
