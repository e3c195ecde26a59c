//! Options of TLS.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    Dialect, Io, Pattern, Role, Side, TestSpec, Transport,
    key::{self, Unsupported, refuse_if},
};

/// How `tls` seals its records and `quic` its packets, and how their connections begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TlsOptions {
    /// The cipher of all records or packets; AES-128-GCM by default.
    pub cipher: Cipher,
    /// The place where records are sealed and opened; `user` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<Records>,
    /// The same at `to`; as at `from` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_records: Option<Records>,
    /// The handshakes of a connect pattern; `full` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// A file at `to` in PEM with a chain of certificates, that of `to` first, and its private key; by default one is made for the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
}

/// The place where the records of TLS are sealed and opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Records {
    /// The data threads, by a library.
    #[default]
    User,
    /// The kernel (kTLS).
    Kernel,
}

impl Records {
    /// Name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Kernel => "kernel",
        }
    }
}

/// The handshake of each connection of tls_cc, tls_crr, quic_cc and quic_crr (RFC 8446, section 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Session {
    /// With the certificate.
    #[default]
    Full,
    /// With a ticket of an earlier connection of the flow, in the place of the certificate. A flow's first connection has none.
    Resumed,
    /// The same, with the request in the first flight (0-RTT).
    Early,
}

/// Kinds of the handshakes' durations in reports: what each one was, whatever was asked for.
pub const HANDSHAKES: [&str; 3] = ["full_handshake", "resumed_handshake", "early_handshake"];

/// Largest request in the first flight, bytes: a record.
const MOST_EARLY_BYTES: u64 = 16_384;

/// A cipher of TLS 1.3 (RFC 8446, appendix B.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Cipher {
    #[default]
    #[serde(rename = "aes_128_gcm")]
    Aes128Gcm,
    #[serde(rename = "aes_256_gcm")]
    Aes256Gcm,
    #[serde(rename = "chacha20_poly1305")]
    Chacha20Poly1305,
}

impl Cipher {
    /// Name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes_128_gcm",
            Self::Aes256Gcm => "aes_256_gcm",
            Self::Chacha20Poly1305 => "chacha20_poly1305",
        }
    }
}

impl TlsOptions {
    /// The place of an end's records that was asked for.
    pub fn records_at(&self, side: Side) -> Option<Records> {
        self.remote_records.filter(|_| side == Side::Far).or(self.records)
    }
}

impl TestSpec {
    /// The cipher of its records or packets; `None`: it has no TLS.
    pub fn cipher(&self) -> Option<Cipher> {
        let has_tls = self.transport == Transport::Tls || self.transport.is_quic();
        has_tls.then(|| self.tls.as_ref().map_or_else(Cipher::default, |tls| tls.cipher))
    }

    /// The place of an end's records; `None`: it has none of TLS.
    pub fn records(&self, side: Side) -> Option<Records> {
        let asked = || self.tls.as_ref().and_then(|tls| tls.records_at(side));
        (self.transport == Transport::Tls).then(|| asked().unwrap_or_default())
    }

    /// The ends whose records have this place.
    fn ends_with(&self, records: Records) -> impl Iterator<Item = Side> {
        [Side::Near, Side::Far].into_iter().filter(move |side| self.records(*side) == Some(records))
    }

    /// The handshakes of its connections; `None`: each has one before the load.
    pub fn session(&self) -> Option<Session> {
        self.cipher()?;
        let asked = || self.tls.as_ref().and_then(|tls| tls.session);
        self.pattern.is_connecting().then(|| asked().unwrap_or_default())
    }

    /// The file with the certificate of the far end; `None`: it makes one.
    pub fn certificate(&self) -> Option<&Path> {
        self.tls.as_ref()?.certificate.as_deref()
    }
}

pub(super) fn check(spec: &TestSpec) -> Result<(), Unsupported> {
    refuse_if! {
        spec.tls.is_some() && spec.cipher().is_none() => key::tls,
            "`tls` says how tls_stream, tls_rr and tls_crr seal their records, and this test runs over {}: leave it out",
            spec.transport.name();
        spec.tls.as_ref().is_some_and(|tls| tls.records.or(tls.remote_records).is_some()) && spec.records(Side::Near).is_none() => key::tls,
            "`tls.records` is about TLS over TCP: QUIC has packets in the place of records, which the data threads seal";
        spec.tls.as_ref().is_some_and(|tls| tls.session.is_some()) && !spec.pattern.is_connecting() => key::tls,
            "`tls.session` says how each connection begins, and those of this test have one handshake before the load: use \
             {0}_crr or {0}_cc", spec.transport.name();
        spec.ends_with(Records::Kernel).next().is_some() && spec.pattern.is_connecting() => key::tls,
            "`tls.records: kernel` is for tls_stream, tls_duplex and tls_rr: beside a handshake the records of one request do not show";
        matches!(spec.io, Io::Sendfile | Io::Splice | Io::Vmsplice)
            && spec.ends_with(Records::User).any(|side| spec.has_role(side, Role::Sender)) => key::io,
            "`io: {}` lets the kernel take the data by itself, and they are sealed in the data thread: add `tls: {{records: kernel}}`, or \
             choose blocking, nonblocking or spin",
            spec.io.name();
        spec.session() == Some(Session::Early) && spec.pattern == Pattern::Connect => key::tls,
            "`tls.session: early` sends the request in the first flight, and {0}_cc has none: use {0}_crr", spec.transport.name();
        spec.session() == Some(Session::Early) && spec.sizes.request_bytes > MOST_EARLY_BYTES => key::tls,
            "`tls.session: early` sends requests of at most {} bytes in the first flight, and these have {}",
            MOST_EARLY_BYTES, spec.sizes.request_bytes;
        spec.cipher().is_some() && spec.dialect != Dialect::Plumb => key::workload,
            "a certificate is made for each test and pinned over the control connection, so {} needs plumb at both ends",
            spec.transport.name().to_uppercase();
    }
    Ok(())
}
