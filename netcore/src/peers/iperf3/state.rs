//! State bytes, and the numbers of streams.

/// A message of one byte. [`Self::ServerError`] is followed by two numbers of four bytes, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The server's streams are open.
    TestStart,
    /// Data flows from here on.
    TestRunning,
    /// From the client: it has decided that the test is over.
    TestEnd,
    /// The server asks for the parameters.
    ParamExchange,
    /// The server waits for the streams.
    CreateStreams,
    /// The server gives the test up.
    ServerTerminate,
    /// The client gives the test up.
    ClientTerminate,
    /// The server asks for the client's results; its own follow them.
    ExchangeResults,
    /// The server has sent its results.
    DisplayResults,
    /// The client's last word.
    Done,
    /// The server is busy, or a stream has the wrong cookie.
    AccessDenied,
    /// The server refuses the test.
    ServerError,
}

const STATES: [(State, i8); 12] = [
    (State::TestStart, 1),
    (State::TestRunning, 2),
    (State::TestEnd, 4),
    (State::ParamExchange, 9),
    (State::CreateStreams, 10),
    (State::ServerTerminate, 11),
    (State::ClientTerminate, 12),
    (State::ExchangeResults, 13),
    (State::DisplayResults, 14),
    (State::Done, 16),
    (State::AccessDenied, -1),
    (State::ServerError, -2),
];

impl State {
    pub fn parse(byte: u8) -> Option<Self> {
        STATES.iter().find(|(_, number)| *number == byte.cast_signed()).map(|(state, _)| *state)
    }

    pub fn byte(self) -> u8 {
        // The table has every state.
        STATES.iter().find(|(state, _)| *state == self).map_or(0, |(_, number)| number.cast_unsigned())
    }
}

/// The number by which both ends name a stream, from its index in the order of creation: 1, 3, 4, 5, …
pub fn stream_id(index: u32) -> u32 {
    if index == 0 { 1 } else { index.saturating_add(2) }
}

/// The index of a stream with this number.
pub fn stream_index(id: u64) -> Option<u32> {
    match id {
        1 => Some(0),
        3.. => u32::try_from(id - 2).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As recorded from iperf3 3.12.
    #[test]
    fn states_have_recorded_bytes() {
        let recorded = [(b'\t', State::ParamExchange), (b'\n', State::CreateStreams), (1, State::TestStart)];
        for (byte, state) in recorded.into_iter().chain([(0xFF, State::AccessDenied), (0xFE, State::ServerError)]) {
            assert_eq!((State::parse(byte), state.byte()), (Some(state), byte));
        }
        for unused in [0, 3, 5, 8, 15, 17, 127, 128, 253] {
            assert_eq!(State::parse(unused), None, "{unused}");
        }
    }

    #[test]
    fn there_is_no_second_stream() {
        assert_eq!([0, 1, 2, 3].map(stream_id), [1, 3, 4, 5]);
        assert_eq!([0, 2].map(stream_index), [None; 2]);
        assert_eq!(stream_index(u64::MAX), None);
    }

    proptest! {
        #[test]
        fn bytes_and_states_are_one_to_one(byte: u8) {
            if let Some(state) = State::parse(byte) {
                prop_assert_eq!(state.byte(), byte);
            }
        }

        #[test]
        fn numbers_and_indices_are_one_to_one(index in 0..u32::MAX - 2) {
            prop_assert_eq!(stream_index(stream_id(index).into()), Some(index));
        }
    }
}
