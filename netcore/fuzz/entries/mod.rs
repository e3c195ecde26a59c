//! Bytes of a stranger through the code that reads them: the entries of `netcore/fuzz`. A panic is a finding.
//!
//! A module of the crate `netcore`, since it reads what the crate keeps to itself. Built for the fuzzers and for the crate's own
//! tests, which run every entry on random bytes and on the inputs of `netcore/fuzz/found`.

mod handshake;
mod messages;
mod peers;
mod preambles;
pub mod variants;

pub use crate::peers::iperf3::fuzz::iperf3_sessions;
pub use handshake::handshake;
pub use messages::{replies, requests};
pub use peers::{iperf3, netperf, stamp};
pub use preambles::preambles;

use crate::control::frame::{Decoder, FrameError, encode};

/// Frames: the cut of the stream must not matter, and the decoder keeps no more than a frame and what it was given.
pub fn frames(bytes: &[u8]) {
    let [bound, piece, stream @ ..] = bytes else { return };
    let bound = usize::from(*bound) * 8;
    let piece = usize::from(*piece) + 1;
    let whole = decoded(stream, bound, stream.len().max(1));
    assert_eq!(whole, decoded(stream, bound, piece), "pieces of {piece} bytes");
    let (bodies, _) = whole;
    let again: Vec<u8> = bodies.iter().flat_map(|body| encode(body, bound).expect("it was within the bound")).collect();
    assert!(stream.starts_with(&again));
}

fn decoded(stream: &[u8], bound: usize, piece: usize) -> (Vec<Vec<u8>>, Option<FrameError>) {
    let mut decoder = Decoder::new(bound);
    let mut bodies = Vec::new();
    for piece in stream.chunks(piece) {
        decoder.push(piece);
        loop {
            match decoder.take() {
                Ok(Some(body)) => bodies.push(body),
                Ok(None) => break,
                Err(error) => return (bodies, Some(error)),
            }
        }
        assert!(decoder.pending_bytes() < 4 + bound, "a whole frame stays behind");
    }
    (bodies, None)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    type Entry = (&'static str, fn(&[u8]));

    const ENTRIES: [Entry; 9] = [
        ("frames", frames),
        ("netperf", netperf),
        ("iperf3", iperf3),
        ("handshake", handshake),
        ("requests", requests),
        ("replies", replies),
        ("preambles", preambles),
        ("iperf3_sessions", iperf3_sessions),
        ("stamp", stamp),
    ];

    /// Inputs that once were findings: files of `netcore/fuzz/found`, in a folder by entry.
    #[test]
    fn findings_stay_mended() {
        let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/found");
        for (name, entry) in ENTRIES {
            let Ok(files) = found.join(name).read_dir() else { continue };
            for file in files {
                let path = file.unwrap().path();
                println!("{}", path.display());
                entry(&std::fs::read(path).unwrap());
            }
        }
    }

    #[test]
    fn each_target_has_an_entry() {
        let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets").read_dir().unwrap();
        let mut targets: Vec<String> =
            targets.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        targets.sort();
        let mut entries = ENTRIES.map(|(name, _)| name);
        entries.sort_unstable();
        assert_eq!(targets, entries);
    }

    proptest! {
        // A finding becomes a file of `netcore/fuzz/found`.
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn no_bytes_make_an_entry_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for (_, entry) in ENTRIES {
                entry(&bytes);
            }
        }
    }
}
