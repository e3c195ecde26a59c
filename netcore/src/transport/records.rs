//! Records of TLS 1.3: sealed, and opened where they lie, with the keys of a handshake ([`super::tls`]). These are the library's record
//! functions, which its connections use, too: a connection of the library would copy every byte twice more and read 4 KiB a call.
//!
//! A record of data has at most 16 KiB. Sealing allocates each record, and both functions are called through a table: at most
//! once per 16 KiB, beside which neither shows.

use std::{
    io::{self, IoSlice},
    ops::Range,
    sync::Arc,
};

use nix::sys::socket::{MsgFlags, sendmsg};
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion,
    crypto::cipher::{
        AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundPlainMessage,
        Tls13AeadAlgorithm,
    },
    kernel::KernelConnection,
};

use crate::{
    lock::Lock,
    measure::{clock::thread_ns, counters::Published},
    report::TlsInfo,
    spec::memory::RECORDS_BYTES,
};

/// Most bytes of data in a record: RFC 8446, section 5.1.
const RECORD_BYTES: usize = 16_384;

/// Length of a record's header, bytes.
const HEADER_BYTES: usize = 5;

/// Longest body of a record: RFC 8446, section 5.2.
const LONGEST_BODY: usize = RECORD_BYTES + 256;

/// Most bytes of data that are sealed for one call.
const CALL_BYTES: usize = 8 * RECORD_BYTES;

/// Records that one key seals. RFC 8446, section 5.5, allows 2^24.5 of AES-GCM.
const RECORDS_PER_KEY: u64 = 1 << 23;

/// One record of so many is timed: reading the thread's clock takes as long as sealing a small record. A prime: the records of a
/// message differ in length, and each of them must have its turn.
const TIMED: u64 = 61;

/// The alert that ends the data of one direction: RFC 8446, section 6.1.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// A key update that asks for none in turn: RFC 8446, section 4.6.3.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// The next keys of both directions.
pub trait Keys: Send {
    fn next_to_send(&mut self) -> Result<ConnectionTrafficSecrets, Error>;
    fn next_to_receive(&mut self) -> Result<ConnectionTrafficSecrets, Error>;
}

impl<D: Send> Keys for KernelConnection<D> {
    fn next_to_send(&mut self) -> Result<ConnectionTrafficSecrets, Error> {
        self.update_tx_secret().map(|(_, secrets)| secrets)
    }

    fn next_to_receive(&mut self) -> Result<ConnectionTrafficSecrets, Error> {
        self.update_rx_secret().map(|(_, secrets)| secrets)
    }
}

/// The key and the initialisation vector of one direction; `None`: of a cipher that is not offered.
pub fn key_of(secrets: ConnectionTrafficSecrets) -> Option<(AeadKey, Iv)> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Some((key, iv)),
        _ => None,
    }
}

type Algorithm = &'static dyn Tls13AeadAlgorithm;

/// The stream cannot go on.
pub fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn key(secrets: Result<ConnectionTrafficSecrets, Error>) -> io::Result<(AeadKey, Iv)> {
    key_of(secrets.map_err(broken)?).ok_or_else(|| broken("the next key is of another cipher"))
}

/// Seals or opens the record of this number, and adds to the CPU time that all of them take.
fn timed<T>(sequence: u64, total_ns: &mut u64, work: impl FnOnce() -> T) -> T {
    if !sequence.is_multiple_of(TIMED) {
        return work();
    }
    let before = thread_ns();
    let began = thread_ns();
    let done = work();
    // Both differences have the time of one reading.
    *total_ns += (thread_ns() - began).saturating_sub(began - before) * TIMED;
    done
}

/// The half of a connection that sends.
pub struct Sealer {
    algorithm: Algorithm,
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
    pub(crate) records_per_key: u64,
    keys: Arc<Lock<dyn Keys>>,
    sent: TlsInfo,
    /// The sampler reads them there.
    figures: Arc<Published<TlsInfo>>,
    /// Sealed records that the kernel has not taken, and how much of the first one it has.
    sealed: Vec<Vec<u8>>,
    at: usize,
}

impl Sealer {
    pub fn new(algorithm: Algorithm, (key, iv): (AeadKey, Iv), sequence: u64, keys: Arc<Lock<dyn Keys>>) -> Self {
        let encrypter = algorithm.encrypter(key, iv);
        let (sent, figures) = (TlsInfo::default(), Arc::default());
        let (records_per_key, sealed) = (RECORDS_PER_KEY, Vec::new());
        Self { algorithm, encrypter, sequence, records_per_key, keys, sent, figures, sealed, at: 0 }
    }

    /// The figures of the connection.
    pub fn figures(&self) -> Arc<Published<TlsInfo>> {
        self.figures.clone()
    }

    /// Seals data; returns the number of bytes.
    pub fn data(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(CALL_BYTES)];
        for part in bytes.chunks(RECORD_BYTES) {
            if self.sequence >= self.records_per_key {
                self.record(ContentType::Handshake, &KEY_UPDATE)?;
                let mut keys = self.keys.lock();
                let (key, iv) = key(keys.next_to_send())?;
                (self.encrypter, self.sequence) = (self.algorithm.encrypter(key, iv), 0);
            }
            self.record(ContentType::ApplicationData, part)?;
            self.sent.records += 1;
        }
        self.sent.bytes += bytes.len() as u64;
        self.figures.write(self.sent);
        Ok(bytes.len())
    }

    pub(crate) fn record(&mut self, typ: ContentType, bytes: &[u8]) -> io::Result<()> {
        let payload = OutboundChunks::Single(bytes);
        let plain = OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_2, payload };
        let seal = || self.encrypter.encrypt(plain, self.sequence);
        let record = timed(self.sequence, &mut self.sent.encryption_ns, seal).map_err(broken)?;
        self.sequence += 1;
        self.sealed.push(record.encode());
        Ok(())
    }

    /// Whether the kernel has taken all sealed records.
    pub fn is_empty(&self) -> bool {
        self.sealed.is_empty()
    }

    /// Seals the end of the data.
    pub fn end(&mut self) -> io::Result<()> {
        self.record(ContentType::Alert, &CLOSE_NOTIFY)
    }

    /// Hands sealed records to the kernel in one call.
    pub fn send(&mut self, fd: i32, flags: MsgFlags) -> nix::Result<()> {
        let mut parts: Vec<IoSlice<'_>> = self.sealed.iter().map(|record| IoSlice::new(record)).collect();
        if let (Some(first), Some(record)) = (parts.first_mut(), self.sealed.first()) {
            *first = IoSlice::new(&record[self.at..]);
        }
        let mut sent = self.at + sendmsg::<()>(fd, &parts, &[], flags, None)?;
        let whole = self.sealed.iter().take_while(|record| {
            let is_sent = record.len() <= sent;
            sent -= if is_sent { record.len() } else { 0 };
            is_sent
        });
        let whole = whole.count();
        self.sealed.drain(..whole);
        self.at = sent;
        Ok(())
    }
}

/// The half of a connection that receives.
pub struct Opener {
    algorithm: Algorithm,
    decrypter: Box<dyn MessageDecrypter>,
    pub(crate) sequence: u64,
    keys: Arc<Lock<dyn Keys>>,
    encryption_ns: u64,
    /// The sampler reads them there.
    figures: Arc<Published<TlsInfo>>,
    input: Vec<u8>,
    /// Received bytes of records that are not opened.
    begin: usize,
    end: usize,
    /// Data of the last opened record that are still to be taken.
    plain: Range<usize>,
    is_closed: bool,
}

impl Opener {
    pub fn new(algorithm: Algorithm, (key, iv): (AeadKey, Iv), sequence: u64, keys: Arc<Lock<dyn Keys>>) -> Self {
        let decrypter = algorithm.decrypter(key, iv);
        let (encryption_ns, figures) = (0, Arc::default());
        let (input, begin, end, plain) = (vec![0; RECORDS_BYTES], 0, 0, 0..0);
        Self {
            algorithm,
            decrypter,
            sequence,
            keys,
            encryption_ns,
            figures,
            input,
            begin,
            end,
            plain,
            is_closed: false,
        }
    }

    /// The time that opening took.
    pub fn figures(&self) -> Arc<Published<TlsInfo>> {
        self.figures.clone()
    }

    /// Copies data to the buffer as far as it has come: 0 is the peer's end. `None`: more must be received.
    pub fn take(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut got = 0;
        loop {
            let length = self.plain.len().min(buffer.len() - got);
            buffer[got..got + length].copy_from_slice(&self.input[self.plain.start..self.plain.start + length]);
            self.plain.start += length;
            got += length;
            if got == buffer.len() || self.is_closed {
                return Ok(Some(got));
            }
            if !self.open()? {
                return Ok((got > 0).then_some(got));
            }
        }
    }

    /// Opens the next record. `false`: it is not there as a whole.
    fn open(&mut self) -> io::Result<bool> {
        let [kind, _, _, high, low, ..] = self.input[self.begin..self.end] else { return Ok(false) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > LONGEST_BODY || kind != u8::from(ContentType::ApplicationData) {
            return Err(broken("what arrived is no record of TLS"));
        }
        let body = self.begin + HEADER_BYTES;
        if self.end < body + length {
            return Ok(false);
        }
        let version = ProtocolVersion::TLSv1_2;
        let record =
            InboundOpaqueMessage::new(ContentType::ApplicationData, version, &mut self.input[body..body + length]);
        let before_ns = self.encryption_ns;
        let open = || self.decrypter.decrypt(record, self.sequence);
        let plain = timed(self.sequence, &mut self.encryption_ns, open).map_err(broken)?;
        if self.encryption_ns > before_ns {
            self.figures.write(TlsInfo { encryption_ns: self.encryption_ns, ..TlsInfo::default() });
        }
        self.sequence += 1;
        self.begin = body + length;
        match (plain.typ, plain.payload) {
            (ContentType::ApplicationData, data) => self.plain = body..body + data.len(),
            (ContentType::Alert, [_, description]) => match AlertDescription::from(*description) {
                AlertDescription::CloseNotify => self.is_closed = true,
                alert => return Err(broken(format!("the other end sent an alert of TLS: {alert:?}"))),
            },
            (ContentType::Handshake, message) if message == KEY_UPDATE => {
                let mut keys = self.keys.lock();
                let (key, iv) = key(keys.next_to_receive())?;
                (self.decrypter, self.sequence) = (self.algorithm.decrypter(key, iv), 0);
            }
            (kind, _) => return Err(broken(format!("the other end sent a record of another kind: {kind:?}"))),
        }
        Ok(true)
    }

    /// Whether a part of a record has come.
    pub fn has_part(&self) -> bool {
        self.begin < self.end
    }

    /// So many bytes have been received there.
    pub fn came(&mut self, bytes: usize) {
        self.end += bytes;
    }

    /// Room for what is received next.
    pub fn room(&mut self) -> &mut [u8] {
        self.input.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        &mut self.input[self.end..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_of_a_message_is_timed_in_its_turn() {
        for records in 2..TIMED {
            let mut in_turn: Vec<u64> = (0..records).map(|turn| turn * TIMED % records).collect();
            in_turn.sort_unstable();
            assert!(in_turn.into_iter().eq(0..records), "{records}");
        }
    }
}
