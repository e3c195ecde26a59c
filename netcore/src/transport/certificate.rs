//! The certificate of a far end of TLS or QUIC: made for one test, or read from a file of this host.
//!
//! No file and no key crosses the wire. The near end pins the certificate, whichever it is, so neither its name nor its issuer matters:
//! one of one's own is for the cost of its key and the length of its chain.

use std::path::Path;

use rustls::{
    CertificateError, Error, InconsistentKeys, RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer, UnixTime,
        pem::{self, PemObject},
    },
    server::ParsedCertificate,
    sign::CertifiedKey,
};

use crate::error::EndError;

/// The name in certificates that are made. Nothing depends on it: the certificate itself is pinned.
pub const NAME: &str = "plumb";

/// Longest file, bytes.
pub const MOST_BYTES: usize = 64 << 10;

/// Makes a key on the curve P-256 and a certificate with it.
pub fn make(provider: &CryptoProvider) -> Result<CertifiedKey, EndError> {
    let failed =
        |error: &dyn std::fmt::Display| EndError::Impossible(format!("cannot make a certificate for TLS: {error}"));
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(|error| failed(&error))?;
    let certificate = rcgen::CertificateParams::new(vec![NAME.to_owned()]).and_then(|all| all.self_signed(&key));
    let certificate = certificate.map_err(|error| failed(&error))?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    CertifiedKey::from_der(vec![certificate.der().clone()], key, provider).map_err(|error| failed(&error))
}

/// Reads certificates, that of this end first, and a private key.
pub fn read(path: &Path, text: &[u8], provider: &CryptoProvider) -> Result<CertifiedKey, EndError> {
    let refused = |reason| format!("cannot use the certificate {} (`tls.certificate`): {reason}", path.display());
    parse(text, provider, UnixTime::now()).map_err(|reason| EndError::Impossible(refused(reason)))
}

fn parse(text: &[u8], provider: &CryptoProvider, now: UnixTime) -> Result<CertifiedKey, String> {
    if text.len() > MOST_BYTES {
        return Err(format!("it is longer than {} KiB: leave only the chain and the key in it", MOST_BYTES >> 10));
    }
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(text).collect();
    let chain = chain.map_err(|error| format!("it is no PEM: {error}"))?;
    let Some(own) = chain.first() else {
        let reason = "it has no certificate in PEM (-----BEGIN CERTIFICATE-----): `openssl x509 -inform der -in FILE` converts DER";
        return Err(reason.to_owned());
    };
    let key = PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            "it has no private key that can be read: append the key of its first certificate in PEM, without a password \
             (`openssl pkey -in KEY >>FILE`)"
                .to_owned()
        }
        error => format!("its private key is no PEM: {error}"),
    })?;
    check_time(own, provider, now)?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "its private key is not that of its first certificate: put the certificate of the key before those of its issuers".to_owned()
        }
        error => format!("{error}: keys may be RSA of 2048 to 4096 bits, ECDSA on P-256 or P-384, and Ed25519"),
    })
}

/// Refuses a certificate that clients would refuse by their clocks. Nothing else of it is checked: the near end pins it.
fn check_time(certificate: &CertificateDer<'_>, provider: &CryptoProvider, now: UnixTime) -> Result<(), String> {
    let parsed = ParsedCertificate::try_from(certificate).map_err(|error| error.to_string())?;
    let algorithms = provider.signature_verification_algorithms.all;
    // The times are checked first. Without any issuer to trust, the rest fails.
    match verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], now, algorithms) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { time, not_after })) => Err(format!(
            "its first certificate expired {} ago by the clock of this host: renew it, or set the clock",
            days(time.as_secs().saturating_sub(not_after.as_secs()))
        )),
        Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { time, not_before })) => Err(format!(
            "its first certificate is valid in {} by the clock of this host: wait, or set the clock",
            days(not_before.as_secs().saturating_sub(time.as_secs()))
        )),
        _ => Ok(()),
    }
}

fn days(seconds: u64) -> String {
    match seconds {
        1..172_800 => format!("{seconds} s"),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base64::{Engine, engine::general_purpose::STANDARD};
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A certificate with its key, in PEM.
    fn made() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut all = CertificateParams::new(vec!["host".to_owned()]).unwrap();
        (all.not_before, all.not_after) = (rcgen::date_time_ymd(2025, 3, 1), rcgen::date_time_ymd(2035, 3, 1));
        let pem = |label: &str, der: &[u8]| {
            let text = STANDARD.encode(der);
            format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
        };
        (pem("CERTIFICATE", all.self_signed(&key).unwrap().der()), pem("PRIVATE KEY", &key.serialize_der()))
    }

    /// At the begin of a year.
    fn parsed(text: &str, year: u64) -> Result<usize, String> {
        let now = Duration::from_hours((year - 1970) * 8766);
        parse(text.as_bytes(), &rustls::crypto::ring::default_provider(), UnixTime::since_unix_epoch(now))
            .map(|key| key.cert.len())
    }

    #[test]
    fn a_chain_and_a_key_in_any_order_are_taken() {
        let ((own, key), (issuer, _)) = (made(), made());
        assert_eq!(parsed(&format!("{own}{key}"), 2030), Ok(1));
        assert_eq!(parsed(&format!("words\n{key}\n{own}\r\n{issuer}{issuer}"), 2030), Ok(3));
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_remedy() {
        let ((own, key), (issuer, other)) = (made(), made());
        let both = format!("{own}{key}");
        let locked = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        let long = format!("{both}{}", " ".repeat(MOST_BYTES));
        for (text, year, words) in [
            ("", 2030, "no certificate in PEM"),
            ("\u{0}\u{1}", 2030, "no certificate in PEM"),
            (&*key, 2030, "no certificate in PEM"),
            ("-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n", 2030, "it is no PEM: "),
            (&*own, 2030, "append the key"),
            (&*format!("{own}{locked}"), 2030, "without a password"),
            (&*format!("{own}{other}"), 2030, "is not that of its first certificate"),
            (&*format!("{issuer}{own}{key}"), 2030, "is not that of its first certificate"),
            (&*both, 2036, "expired 30"),
            (&*both, 2025, "is valid in 5"),
            (&*long, 2030, "longer than 64 KiB"),
        ] {
            let refused = parsed(text, year).unwrap_err();
            assert!(refused.contains(words), "{words}: {refused}");
        }
    }
}
