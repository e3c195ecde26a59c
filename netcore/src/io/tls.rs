//! Records of TLS 1.3 over a stream of bytes: sealed before they are sent, opened where they arrived, with the keys of a
//! handshake ([`crate::transport::tls`]). These are the library's record functions, which its connections use, too: a connection
//! of the library would copy every byte twice more and read 4 KiB a call.
//!
//! A record of data has at most 16 KiB. Sealing allocates each record, and both functions are called through a table: at most
//! once per 16 KiB, beside which neither shows.

use std::{
    io::{self, IoSlice},
    ops::Range,
    os::fd::AsRawFd,
    sync::{Arc, Mutex, PoisonError},
};

use nix::sys::socket::{MsgFlags, recv, sendmsg};
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion,
    crypto::cipher::{
        AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundPlainMessage,
        Tls13AeadAlgorithm,
    },
    kernel::KernelConnection,
};

use super::{Channel, retry, wait::Wait};
use crate::{
    measure::clock::monotonic_ns,
    spec::memory::RECORDS_BYTES,
    transport::{Link, listener::Event, tls},
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

/// A key update that asks for none in turn: RFC 8446, section 4.6.3.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// Longest wait for input while sealed records wait for room, nanoseconds.
const BOTH_NS: u64 = 1_000_000;

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

type Algorithm = &'static dyn Tls13AeadAlgorithm;

fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn key(secrets: Result<ConnectionTrafficSecrets, Error>) -> io::Result<(AeadKey, Iv)> {
    tls::key(secrets.map_err(broken)?).ok_or_else(|| broken("the next key is of another cipher"))
}

/// The half of a connection that sends.
pub struct Sealer {
    algorithm: Algorithm,
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
    records_per_key: u64,
    keys: Arc<Mutex<dyn Keys>>,
    /// Sealed records that the kernel has not taken, and how much of the first one it has.
    sealed: Vec<Vec<u8>>,
    at: usize,
}

impl Sealer {
    pub fn new(algorithm: Algorithm, (key, iv): (AeadKey, Iv), sequence: u64, keys: Arc<Mutex<dyn Keys>>) -> Self {
        let encrypter = algorithm.encrypter(key, iv);
        Self { algorithm, encrypter, sequence, records_per_key: RECORDS_PER_KEY, keys, sealed: Vec::new(), at: 0 }
    }

    /// Seals data; returns the number of bytes.
    fn data(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(CALL_BYTES)];
        for part in bytes.chunks(RECORD_BYTES) {
            if self.sequence >= self.records_per_key {
                self.record(ContentType::Handshake, &KEY_UPDATE)?;
                let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
                let (key, iv) = key(keys.next_to_send())?;
                (self.encrypter, self.sequence) = (self.algorithm.encrypter(key, iv), 0);
            }
            self.record(ContentType::ApplicationData, part)?;
        }
        Ok(bytes.len())
    }

    fn record(&mut self, typ: ContentType, bytes: &[u8]) -> io::Result<()> {
        let payload = OutboundChunks::Single(bytes);
        let plain = OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_2, payload };
        let record = self.encrypter.encrypt(plain, self.sequence).map_err(broken)?;
        self.sequence += 1;
        self.sealed.push(record.encode());
        Ok(())
    }

    /// Hands sealed records to the kernel in one call.
    fn send(&mut self, fd: i32, flags: MsgFlags) -> nix::Result<()> {
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
    sequence: u64,
    keys: Arc<Mutex<dyn Keys>>,
    input: Vec<u8>,
    /// Received bytes of records that are not opened.
    begin: usize,
    end: usize,
    /// Data of the last opened record that nobody has taken.
    plain: Range<usize>,
    is_closed: bool,
}

impl Opener {
    pub fn new(algorithm: Algorithm, (key, iv): (AeadKey, Iv), sequence: u64, keys: Arc<Mutex<dyn Keys>>) -> Self {
        let decrypter = algorithm.decrypter(key, iv);
        let input = vec![0; RECORDS_BYTES];
        Self { algorithm, decrypter, sequence, keys, input, begin: 0, end: 0, plain: 0..0, is_closed: false }
    }

    /// Copies data to the buffer as far as it has come: 0 is the peer's end. `None`: more must be received.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
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
        let plain = self.decrypter.decrypt(record, self.sequence).map_err(broken)?;
        self.sequence += 1;
        self.begin = body + length;
        match (plain.typ, plain.payload) {
            (ContentType::ApplicationData, data) => self.plain = body..body + data.len(),
            (ContentType::Alert, [_, description]) => match AlertDescription::from(*description) {
                AlertDescription::CloseNotify => self.is_closed = true,
                alert => return Err(broken(format!("the other end sent an alert of TLS: {alert:?}"))),
            },
            (ContentType::Handshake, message) if message == KEY_UPDATE => {
                let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
                let (key, iv) = key(keys.next_to_receive())?;
                (self.decrypter, self.sequence) = (self.algorithm.decrypter(key, iv), 0);
            }
            (kind, _) => return Err(broken(format!("the other end sent a record of another kind: {kind:?}"))),
        }
        Ok(true)
    }

    /// Room for what is received next.
    fn room(&mut self) -> &mut [u8] {
        self.input.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        &mut self.input[self.end..]
    }
}

fn truncated() -> io::Error {
    let reason = "the stream ended without TLS's own end (close_notify): something on the way cut it off";
    io::Error::new(io::ErrorKind::UnexpectedEof, reason)
}

/// `sendmsg` of sealed records, and `recv`.
pub struct Records<W> {
    link: Arc<Link>,
    wait: W,
    sealer: Option<Sealer>,
    opener: Option<Opener>,
}

impl<W: Wait> Records<W> {
    /// Takes the halves of the link's connection that a loop uses.
    pub fn new(link: Arc<Link>, wait: W, sends: bool, receives: bool) -> Self {
        let session = link.session.get();
        let sealer = session.filter(|_| sends).and_then(tls::Session::sealer);
        let opener = session.filter(|_| receives).and_then(tls::Session::opener);
        Self { link, wait, sealer, opener }
    }

    fn sealer(&mut self) -> io::Result<&mut Sealer> {
        self.sealer.as_mut().ok_or_else(|| broken("another loop sends on this connection"))
    }

    fn opener(&mut self) -> io::Result<&mut Opener> {
        self.opener.as_mut().ok_or_else(|| broken("another loop receives on this connection"))
    }

    /// Hands all sealed records to the kernel.
    fn flush(&mut self) -> io::Result<()> {
        let (fd, flags) = (self.link.send.as_raw_fd(), MsgFlags::MSG_NOSIGNAL | self.wait.flags());
        while let Some(sealer) = self.sealer.as_mut().filter(|sealer| !sealer.sealed.is_empty()) {
            match sealer.send(fd, flags) {
                Ok(()) => self.wait.succeeded(Event::Room),
                Err(nix::Error::EAGAIN) => self.wait.for_room(&self.link, u64::MAX)?,
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Hands sealed records to the kernel as far as it has room. Whether none is left.
    fn try_flush(&mut self) -> io::Result<bool> {
        let fd = self.link.send.as_raw_fd();
        while let Some(sealer) = self.sealer.as_mut().filter(|sealer| !sealer.sealed.is_empty()) {
            match retry(|| sealer.send(fd, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl<W: Wait> Channel for Records<W> {
    type Wait = W;

    #[inline]
    fn wait(&self) -> &W {
        &self.wait
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait.turn();
        self.flush()?;
        let sealed = self.sealer()?.data(bytes)?;
        self.flush()?;
        Ok(sealed)
    }

    /// What the kernel has no room for waits here, and goes before anything else.
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        if !self.try_flush()? {
            return Ok(None);
        }
        let sealed = self.sealer()?.data(bytes)?;
        self.try_flush()?;
        Ok(Some(sealed))
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait.turn();
        loop {
            if let Some(n) = self.opener()?.take(buffer)? {
                return Ok(n);
            }
            // The peer may wait for room, too, until this end reads.
            while !self.try_flush()? && !self.wait.for_input(&self.link, monotonic_ns() + BOTH_NS)? {}
            let (fd, flags) = (self.link.receive.as_raw_fd(), self.wait.flags());
            match recv(fd, self.opener()?.room(), flags) {
                Ok(0) => return Err(truncated()),
                Ok(n) => {
                    self.wait.succeeded(Event::Input);
                    self.opener()?.end += n;
                }
                Err(nix::Error::EAGAIN) => {
                    self.wait.after_nothing(&self.link, u64::MAX)?;
                }
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn receive_by(&mut self, buffer: &mut [u8], until_ns: u64) -> io::Result<Option<usize>> {
        self.try_flush()?;
        if let Some(n) = self.opener()?.take(buffer)? {
            return Ok(Some(n));
        }
        if !self.wait.for_input(&self.link, until_ns)? {
            return Ok(None);
        }
        let fd = self.link.receive.as_raw_fd();
        match recv(fd, self.opener()?.room(), MsgFlags::MSG_DONTWAIT) {
            Ok(0) => Err(truncated()),
            Ok(n) => {
                self.wait.succeeded(Event::Input);
                let opener = self.opener()?;
                opener.end += n;
                opener.take(buffer)
            }
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Says that no more comes, which a stream that was cut off does not. It fails if the peer has gone.
    fn finish(&mut self) {
        if let Some(sealer) = &mut self.sealer
            && sealer.record(ContentType::Alert, &[1, 0]).is_ok()
        {
            let _ = self.flush();
        }
    }
}

#[cfg(test)]
mod tests;
