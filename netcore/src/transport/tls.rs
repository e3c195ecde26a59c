//! TLS 1.3 over the test's TCP connections: the far end's certificate, which is made for one test and pinned by the near end,
//! the handshake of each flow, and the keys that it leaves for the loops ([`super::records`]).
//!
//! The handshake comes after the proof of the session's token, so that no stranger reaches it, and before the load. It is read
//! record by record: what belongs to the load stays in the socket. In a connect pattern each connection has a handshake of its own,
//! within the load ([`Secured::begin`]).

use std::{
    fmt, io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use nix::{
    poll::PollFlags,
    sys::socket::{MsgFlags, recv, send},
};
use rustls::{
    CertificateError, CipherSuite, ClientConfig, ClientConnection, DigitallySignedStruct, Error, ExtractedSecrets,
    ServerConfig, ServerConnection, SignatureScheme, SupportedCipherSuite, Tls13CipherSuite,
    client::{
        ClientConnectionData, Resumption, UnbufferedClientConnection,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{self, CryptoProvider, ring},
    kernel::KernelConnection,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{NoServerSessionStorage, ServerConnectionData, ServerSessionMemoryCache, UnbufferedServerConnection},
    sign::SingleCertAndKey,
    unbuffered::{ConnectionState, EncodeError, UnbufferedConnectionCommon, UnbufferedStatus},
    version::TLS13,
};
use sha2::{Digest, Sha256};

use super::{
    Deadline, Link,
    certificate::{self, NAME},
    ktls,
    records::{Keys, Opener, Sealer, key_of},
};
use crate::{
    error::EndError,
    lock::Lock,
    measure::counters::Published,
    report::{Granted, TlsInfo},
    spec::{Cipher, Records, Session, Side, TestSpec},
    sys,
};

/// The library that seals an end's records or packets, with its version and that of its ciphers, or the kernel. `None`: they are not
/// sealed.
pub fn library(spec: &TestSpec, side: Side) -> Option<&'static str> {
    match spec.records(side) {
        Some(Records::User) => Some(env!("PLUMB_TLS")),
        Some(Records::Kernel) => Some("kernel"),
        None => spec.quic_options().map(|_| env!("PLUMB_QUIC")),
    }
}

/// Tickets of a flow that both ends keep. A connection uses one and brings two.
const TICKETS_PER_FLOW: usize = 16;

/// Longest body of a record that a peer may send in the handshake: RFC 8446, section 5.2.
const LONGEST_RECORD: usize = 16_384 + 256;

/// SHA-256 of a certificate in DER.
pub type Fingerprint = [u8; 32];

/// A certificate of a far end, for one test, with its key.
pub struct Identity {
    pub(crate) config: Arc<ServerConfig>,
    pub fingerprint: Fingerprint,
    /// The kind of its key, and the length of its chain.
    described: String,
}

impl Identity {
    /// Reads the certificate and its key from their file, or makes them. `None`: the test has no TLS.
    pub fn of(spec: &TestSpec, file: Option<(&Path, Vec<u8>)>) -> Result<Option<Self>, EndError> {
        let Some(cipher) = spec.cipher() else { return Ok(None) };
        let provider = provider(cipher);
        let certified = match file {
            Some((path, text)) => certificate::read(path, &text, &provider)?,
            None => certificate::make(&provider)?,
        };
        let bytes: usize = certified.cert.iter().map(|each| each.len()).sum();
        let described = format!("{:?}, a chain of {bytes} bytes", certified.key.algorithm());
        let own = certified.end_entity_cert().map_err(|error| failed("there is no certificate", &error))?;
        let fingerprint = Sha256::digest(own).into();
        let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let config = config.map_err(|error| failed("cannot use the library", &error))?.with_no_client_auth();
        let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        match spec.session() {
            None | Some(Session::Full) => {
                // A ticket would arrive within the load.
                config.send_tls13_tickets = 0;
                config.session_storage = Arc::new(NoServerSessionStorage {});
            }
            Some(session) => {
                config.session_storage = ServerSessionMemoryCache::new(TICKETS_PER_FLOW * spec.flows() as usize);
                if session == Session::Early {
                    // Requests are small: the key is checked.
                    config.max_early_data_size = u32::try_from(spec.sizes.request_bytes.max(1)).unwrap_or(u32::MAX);
                    // The answer to an early request waits for nothing either.
                    config.send_half_rtt_data = true;
                }
            }
        }
        config.enable_secret_extraction = true;
        Ok(Some(Self { config: Arc::new(config), fingerprint, described }))
    }

    /// The certificate that was asked for, and what it is.
    pub fn granted(&self, spec: &TestSpec) -> Option<Granted> {
        let asked = spec.certificate()?.display().to_string();
        Some(Granted::constant(0, "tls.certificate", Some(asked), Some(self.described.clone())))
    }
}

fn failed(what: &str, error: &dyn fmt::Display) -> EndError {
    EndError::Impossible(format!("{what} for TLS: {error}"))
}

/// ring, with one cipher and one key exchange: both ends compute the same, whatever the versions of the library prefer.
fn provider(cipher: Cipher) -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.cipher_suites.retain(|suite| cipher_of(suite.suite()) == Some(cipher));
    provider.kx_groups = vec![ring::kx_group::X25519];
    Arc::new(provider)
}

fn cipher_of(suite: CipherSuite) -> Option<Cipher> {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => Some(Cipher::Aes128Gcm),
        CipherSuite::TLS13_AES_256_GCM_SHA384 => Some(Cipher::Aes256Gcm),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Some(Cipher::Chacha20Poly1305),
        _ => None,
    }
}

/// Accepts one certificate, which the far end named over the control connection.
#[derive(Debug)]
struct Pin {
    fingerprint: Fingerprint,
    /// Set when a certificate is checked.
    checked: Arc<AtomicBool>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pin {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.checked.store(true, Relaxed);
        if <[u8; 32]>::from(Sha256::digest(certificate)) == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    /// TLS 1.2 is not offered.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not offered".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The keys of a connection after its handshake, until its loops take them; of a connect pattern, what its handshakes begin with.
pub struct Secured {
    halves: Lock<(Option<Sealer>, Option<Opener>)>,
    /// The figures of the records of each half; none: the kernel has them, or the library's own connections.
    figures: Vec<Arc<Published<TlsInfo>>>,
    hands: Option<Hands>,
    /// The place of the records at this end, and at the other one.
    records: [Records; 2],
    /// The cipher that both ends agreed on.
    cipher: Cipher,
}

/// An end's part in the handshake of every connection of a flow.
enum Hands {
    Near(Arc<ClientConfig>, ServerName<'static>),
    Far(Arc<ServerConfig>),
}

impl fmt::Debug for Secured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secured").field("cipher", &self.cipher).finish_non_exhaustive()
    }
}

impl Secured {
    /// The cipher that was asked for, and the one that both ends agreed on; and the place of the records.
    pub fn granted(&self, flow: u32, spec: &TestSpec, side: Side) -> [Granted; 2] {
        let of = |option, requested: Option<&str>, granted: &str| {
            Granted::constant(flow, option, requested.map(str::to_owned), Some(granted.to_owned()))
        };
        [
            of("tls.cipher", spec.tls.as_ref().map(|tls| tls.cipher.name()), self.cipher.name()),
            of(
                "tls.records",
                spec.tls.as_ref().and_then(|tls| tls.records_at(side)).map(Records::name),
                self.records[0].name(),
            ),
        ]
    }

    /// The figures of the connection's records: their sum is the connection's.
    pub fn figures(&self) -> Vec<Arc<Published<TlsInfo>>> {
        self.figures.clone()
    }

    /// Begins the handshake of the next connection; `None`: the flow has had its only one.
    pub fn begin(&self) -> Option<Result<rustls::Connection, Error>> {
        Some(match self.hands.as_ref()? {
            Hands::Near(config, name) => ClientConnection::new(config.clone(), name.clone()).map(Into::into),
            Hands::Far(config) => ServerConnection::new(config.clone()).map(Into::into),
        })
    }

    /// Whether a close_notify ends each direction. A kernel says none, and takes a peer's for an error.
    pub fn says_its_end(&self) -> bool {
        self.records == [Records::User; 2]
    }

    /// Takes the half that sends; one loop has it.
    pub fn sealer(&self) -> Option<Sealer> {
        self.halves.lock().0.take()
    }

    /// Takes the half that receives; one loop has it.
    pub fn opener(&self) -> Option<Opener> {
        self.halves.lock().1.take()
    }
}

/// An end's part in the handshakes of a test.
#[derive(Clone, Copy)]
pub enum Part<'a> {
    /// The far end: its certificate.
    Far(&'a Identity),
    /// The near end: the certificate that the far end announced.
    Near(Fingerprint),
}

/// Makes the handshakes of all flows, one after the other, in the same order at both ends; of a connect pattern, prepares them.
pub fn secure(links: &[Arc<Link>], spec: &TestSpec, part: Part<'_>, deadline: &Deadline<'_>) -> Result<(), EndError> {
    let Some(cipher) = spec.cipher() else { return Ok(()) };
    if let Some(session) = spec.session() {
        for link in links {
            let hands = match part {
                Part::Far(identity) => Hands::Far(identity.config.clone()),
                Part::Near(fingerprint) => {
                    let (mut config, name, _) =
                        client(cipher, fingerprint).map_err(|error| failed("cannot begin a handshake", &error))?;
                    if session != Session::Full {
                        config.resumption = Resumption::in_memory_sessions(TICKETS_PER_FLOW);
                        config.enable_early_data = session == Session::Early;
                    }
                    Hands::Near(Arc::new(config), name)
                }
            };
            // No other cipher is offered, so every handshake agrees on it or fails.
            let _ = link.secured.set(Secured {
                halves: Lock::new((None, None)),
                figures: Vec::new(),
                hands: Some(hands),
                records: [Records::User; 2],
                cipher,
            });
        }
        return Ok(());
    }
    let places = [Side::Near, Side::Far].map(|side| spec.records(side).unwrap_or_default());
    match part {
        Part::Far(identity) => {
            let places = [places[1], places[0]];
            each(links, (places, deadline), || UnbufferedServerConnection::new(identity.config.clone()))
        }
        Part::Near(fingerprint) => {
            let (config, name, _) =
                client(cipher, fingerprint).map_err(|error| failed("cannot begin a handshake", &error))?;
            let config = Arc::new(config);
            each(links, (places, deadline), || UnbufferedClientConnection::new(config.clone(), name.clone()))
        }
    }
}

/// The near end's side of a handshake with a far end that has this certificate: its settings, the name to ask for, and a mark that is
/// set when the certificate is checked, which no resumed handshake does.
pub(crate) fn client(
    cipher: Cipher,
    fingerprint: Fingerprint,
) -> Result<(ClientConfig, ServerName<'static>, Arc<AtomicBool>), Error> {
    let provider = provider(cipher);
    let checked = Arc::<AtomicBool>::default();
    let pin = Pin { fingerprint, checked: checked.clone(), provider: provider.clone() };
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
    let mut config = config.dangerous().with_custom_certificate_verifier(Arc::new(pin)).with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.enable_secret_extraction = true;
    let name = ServerName::try_from(NAME).map_err(|error| Error::General(error.to_string()))?;
    Ok((config, name, checked))
}

fn each<C: Connection>(
    links: &[Arc<Link>],
    (records, deadline): ([Records; 2], &Deadline<'_>),
    begin: impl Fn() -> Result<C, Error>,
) -> Result<(), EndError> {
    let done = |link: &Arc<Link>| {
        let secured =
            begin().map_err(Fault::Tls).and_then(|connection| shake_hands(connection, &link.send, records, deadline));
        let secured = secured.map_err(|fault| fault.of(link.flow, (links.len(), deadline)))?;
        // A link has one handshake.
        let _ = link.secured.set(secured);
        Ok(())
    };
    links.iter().try_for_each(done)
}

/// Why a handshake failed.
enum Fault {
    Tls(Error),
    Io(io::Error),
    /// The peer closed the connection.
    Closed,
    /// The time is over, or the test was given up.
    Late,
    /// The peer sent what no handshake has.
    Unexpected(&'static str),
}

impl Fault {
    fn of(self, flow: u32, (flows, deadline): (usize, &Deadline<'_>)) -> EndError {
        let reason = match self {
            Self::Late => {
                let flows = u32::try_from(flows).unwrap_or(u32::MAX);
                return deadline.missed(flow as usize, flows, "a TLS handshake did not end");
            }
            Self::Io(source) => return EndError::System { what: format!("flow {flow}: the TLS handshake"), source },
            Self::Tls(error) => because(&error),
            Self::Closed => "the other end closed the connection; its own report says why".to_owned(),
            Self::Unexpected(what) => what.to_owned(),
        };
        EndError::Impossible(format!("flow {flow}: the TLS handshake failed: {reason}"))
    }
}

/// Why a handshake failed.
pub fn because(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
            "the certificate is not the one that the far end announced over the control connection: something between the two ends \
             answers in its place"
                .to_owned()
        }
        Error::AlertReceived(alert) => format!("the other end refused it ({alert:?})"),
        error => error.to_string(),
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Tls(error)
    }
}

/// The library's two kinds of connection as one.
trait Connection: Sized {
    type Data: Send + 'static;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn suite(&self) -> Option<SupportedCipherSuite>;

    fn into_kernel(self) -> Result<(ExtractedSecrets, KernelConnection<Self::Data>), Error>;
}

macro_rules! connection {
    ($connection:ty, $data:ty) => {
        impl Connection for $connection {
            type Data = $data;

            fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, $data> {
                UnbufferedConnectionCommon::<$data>::process_tls_records(self, input)
            }

            fn suite(&self) -> Option<SupportedCipherSuite> {
                self.negotiated_cipher_suite()
            }

            fn into_kernel(self) -> Result<(ExtractedSecrets, KernelConnection<$data>), Error> {
                self.dangerous_into_kernel_connection()
            }
        }
    };
}

connection!(UnbufferedClientConnection, ClientConnectionData);
connection!(UnbufferedServerConnection, ServerConnectionData);

fn shake_hands<C: Connection>(
    mut connection: C,
    socket: &OwnedFd,
    records: [Records; 2],
    deadline: &Deadline<'_>,
) -> Result<Secured, Fault> {
    let (mut input, mut output) = (Vec::new(), Vec::new());
    loop {
        let (mut used, mut is_done) = (0, false);
        loop {
            let UnbufferedStatus { discard, state, .. } = connection.process(&mut input[used..]);
            match state? {
                ConnectionState::EncodeTlsData(mut data) => encode(&mut output, |room| data.encode(room))?,
                ConnectionState::TransmitTlsData(data) => {
                    send_all(socket, &output, deadline)?;
                    output.clear();
                    data.done();
                }
                ConnectionState::BlockedHandshake => {
                    used += discard;
                    break;
                }
                ConnectionState::WriteTraffic(_) => {
                    (used, is_done) = (used + discard, true);
                    break;
                }
                ConnectionState::PeerClosed | ConnectionState::Closed => return Err(Fault::Closed),
                _ => return Err(Fault::Unexpected("the other end sent data before it had ended")),
            }
            used += discard;
        }
        input.drain(..used);
        if is_done {
            break;
        }
        receive_record(socket, &mut input, deadline)?;
    }
    if !input.is_empty() {
        return Err(Fault::Unexpected("the other end sent more than a handshake has"));
    }
    let suite = connection.suite().and_then(|suite| suite.tls13());
    let suite = suite.ok_or(Fault::Unexpected("no cipher of TLS 1.3 was agreed on"))?;
    let cipher = cipher_of(suite.common.suite).ok_or(Fault::Unexpected("another cipher was agreed on"))?;
    let (secrets, kernel) = connection.into_kernel()?;
    let mut halves = match records[0] {
        Records::User => halves(suite, secrets, Arc::new(Lock::new(kernel)))?,
        Records::Kernel => {
            ktls::hand_over(socket, &secrets).map_err(Fault::Io)?;
            (None, None)
        }
    };
    if let (Some(sealer), Records::Kernel) = (&mut halves.0, records[1]) {
        // It takes no other key in the middle of a connection.
        sealer.records_per_key = u64::MAX;
    }
    let figures = [halves.0.as_ref().map(Sealer::figures), halves.1.as_ref().map(Opener::figures)];
    let figures = figures.into_iter().flatten().collect();
    Ok(Secured { halves: Lock::new(halves), figures, hands: None, records, cipher })
}

/// Appends what `data` encodes.
fn encode(output: &mut Vec<u8>, mut data: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) -> Result<(), Fault> {
    let (before, mut room) = (output.len(), 1024);
    loop {
        output.resize(before + room, 0);
        match data(&mut output[before..]) {
            Ok(length) => {
                output.truncate(before + length);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(needed)) => room = needed.required_size,
            Err(EncodeError::AlreadyEncoded) => return Err(Fault::Unexpected("a record was encoded twice")),
        }
    }
}

fn halves(
    suite: &'static Tls13CipherSuite,
    secrets: ExtractedSecrets,
    keys: Arc<Lock<dyn Keys>>,
) -> Result<(Option<Sealer>, Option<Opener>), Fault> {
    let key = |secrets| key_of(secrets).ok_or(Fault::Unexpected("the cipher's keys are of another form"));
    let ((sent, tx), (received, rx)) = (secrets.tx, secrets.rx);
    let sealer = Sealer::new(suite.aead_alg, key(tx)?, sent, keys.clone());
    let opener = Opener::new(suite.aead_alg, key(rx)?, received, keys);
    Ok((Some(sealer), Some(opener)))
}

fn send_all(socket: &OwnedFd, mut bytes: &[u8], deadline: &Deadline<'_>) -> Result<(), Fault> {
    while !bytes.is_empty() {
        match send(socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => wait(socket, PollFlags::POLLOUT, deadline)?,
            Err(error) => return Err(Fault::Io(error.into())),
        }
    }
    Ok(())
}

/// Appends one record.
fn receive_record(socket: &OwnedFd, input: &mut Vec<u8>, deadline: &Deadline<'_>) -> Result<(), Fault> {
    let mut header = [0; 5];
    receive_all(socket, &mut header, deadline)?;
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if length > LONGEST_RECORD {
        return Err(Fault::Unexpected("the other end speaks no TLS"));
    }
    let start = input.len() + header.len();
    input.extend_from_slice(&header);
    input.resize(start + length, 0);
    receive_all(socket, &mut input[start..], deadline)
}

fn receive_all(socket: &OwnedFd, mut bytes: &mut [u8], deadline: &Deadline<'_>) -> Result<(), Fault> {
    while !bytes.is_empty() {
        match recv(socket.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return Err(Fault::Closed),
            Ok(got) => bytes = &mut bytes[got..],
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => wait(socket, PollFlags::POLLIN, deadline)?,
            Err(error) => return Err(Fault::Io(error.into())),
        }
    }
    Ok(())
}

fn wait(socket: &OwnedFd, events: PollFlags, deadline: &Deadline<'_>) -> Result<(), Fault> {
    if deadline.left().is_zero() {
        return Err(Fault::Late);
    }
    sys::wait_for(socket, events, deadline.slice()).map(drop).map_err(Fault::Io)
}
