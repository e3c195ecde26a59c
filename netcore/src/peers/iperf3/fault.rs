//! The numbers by which an iperf3 server says why it refuses a test.

/// Why a test is refused: iperf3's number, and our own sentence for logs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Fault {
    pub code: Code,
    pub sentence: String,
}

impl Fault {
    pub fn new(code: Code, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into() }
    }
}

macro_rules! codes {
    ($($name:ident = $number:literal, $sentence:literal;)*) => {
        /// A number that servers send, or that this one does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = $sentence] $name,)*
        }

        impl Code {
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$name),*];

            pub fn number(self) -> i32 {
                match self { $(Self::$name => $number),* }
            }

            fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence),* }
            }

            fn parse(number: i32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

codes! {
    Duration = 5, "it refuses the duration: shorten it";
    Streams = 6, "it refuses the number of streams: use fewer (iperf3 has at most 128)";
    BlockSize = 7, "it refuses the message size";
    BufferSize = 8, "it refuses the size of the socket buffers: ask for less";
    Mss = 10, "it refuses the maximum segment size";
    NoSendfile = 11, "it has no sendfile: use another `io`";
    Omit = 12, "it refuses the warm-up: shorten it";
    Unimplemented = 13, "it does not implement this test";
    Burst = 15, "it refuses the burst: make it smaller";
    NoSctp = 18, "it has no SCTP";
    UdpBlockSize = 20, "it refuses the size of the datagrams";
    Tos = 21, "it refuses the code point";
    TotalRate = 27, "the rate of all streams is over its limit (--server-bitrate-limit): ask for less, or raise the limit there";
    MaxDuration = 37, "the test is longer than it allows (--server-max-duration): shorten it, or raise the limit there";
    UnknownMessage = 110, "it received a message that it does not know";
    Parameters = 114, "it does not accept the parameters of the test";
    Busy = 121, "it is busy with another test: try again later";
    Authentication = 142,
        "it requires authentication, which plumb does not do: start it without --rsa-private-key-path";
    Idle = 144, "it was idle for too long";
    Expired = 160, "the test took longer than it allows (--server-max-duration): shorten it, or raise the limit there";
}

/// The sentence of a server's two numbers: the reason, and the system's error on its host, if there was one.
pub fn sentence(code: i32, errno: i32) -> String {
    let why = match Code::parse(code) {
        Some(code) => code.sentence().to_owned(),
        None => format!("it refuses the test with its error {code}"),
    };
    match errno {
        1.. => format!("{why} ({} there)", nix::errno::Errno::from_raw(errno).desc()),
        _ => why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_sentence() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.number()), Some(*code));
            assert!(sentence(code.number(), 0).starts_with("it ") || sentence(code.number(), 0).starts_with("the "));
        }
        assert!(sentence(142, 0).contains("authentication"));
        assert_eq!(sentence(9999, 0), "it refuses the test with its error 9999");
        assert!(sentence(i32::MIN, i32::MIN).ends_with("-2147483648"));
        assert!(sentence(8, libc::EPERM).contains("not permitted"));
    }
}
