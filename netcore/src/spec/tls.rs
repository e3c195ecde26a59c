//! Options of TLS.

use serde::{Deserialize, Serialize};

use super::{
    Dialect, TestSpec, Transport,
    key::{self, Unsupported, refuse_if},
};

/// How the records of `tls` are sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TlsOptions {
    /// The cipher of all records; AES-128-GCM by default.
    pub cipher: Cipher,
}

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

impl TestSpec {
    /// The cipher of its records; `None`: it has no TLS.
    pub fn cipher(&self) -> Option<Cipher> {
        (self.transport == Transport::Tls).then(|| self.tls.unwrap_or_default().cipher)
    }
}

pub(super) fn check(spec: &TestSpec) -> Result<(), Unsupported> {
    refuse_if! {
        spec.tls.is_some() && spec.transport != Transport::Tls => key::tls,
            "`tls` says how tls_stream and tls_rr seal their records, and this test runs over {}: leave it out",
            spec.transport.name();
        spec.transport == Transport::Tls && spec.dialect != Dialect::Plumb => key::workload,
            "a certificate is made for each test and pinned over the control connection, so TLS needs plumb at both ends";
    }
    Ok(())
}
