//! Records of TLS in the kernel (kTLS): the keys of a handshake are handed to it, and the socket carries plain bytes from then on.
//!
//! The kernel says no close_notify by itself, and it would stop a plain receive at a peer's one. So none is sent: both ends compare
//! their counts, as over TCP. It keeps one key for the whole connection.

use std::{io, os::fd::OwnedFd};

use nix::sys::socket::{
    setsockopt,
    sockopt::{TcpTlsRx, TcpTlsTx, TcpUlp, TlsCryptoInfo},
};
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets};

use super::records::broken;

/// Hands both directions of a connection to the kernel.
pub fn hand_over(socket: &OwnedFd, secrets: &ExtractedSecrets) -> io::Result<()> {
    match setsockopt(socket, TcpUlp::default(), b"tls") {
        Ok(()) => {}
        Err(nix::Error::ENOENT) => {
            let reason = "this kernel knows no records of TLS: modprobe tls (CONFIG_TLS), or leave `tls.records` out";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        Err(error) => return Err(error.into()),
    }
    let ((sent, tx), (received, rx)) = (&secrets.tx, &secrets.rx);
    setsockopt(socket, TcpTlsTx, &key(*sent, tx)?)?;
    setsockopt(socket, TcpTlsRx, &key(*received, rx)?)?;
    Ok(())
}

/// A direction's key, as `linux/tls.h` has it. Of the initialisation vector of AES-GCM, the first four bytes are the salt.
fn key(sequence: u64, secrets: &ConnectionTrafficSecrets) -> io::Result<TlsCryptoInfo> {
    let rec_seq = sequence.to_be_bytes();
    let info = |cipher_type| libc::tls_crypto_info { version: libc::TLS_1_3_VERSION, cipher_type };
    let made = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => aes(key.as_ref(), iv.as_ref()).map(|(key, salt, iv)| {
            let info = info(libc::TLS_CIPHER_AES_GCM_128);
            TlsCryptoInfo::Aes128Gcm(libc::tls12_crypto_info_aes_gcm_128 { info, iv, key, salt, rec_seq })
        }),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => aes(key.as_ref(), iv.as_ref()).map(|(key, salt, iv)| {
            let info = info(libc::TLS_CIPHER_AES_GCM_256);
            TlsCryptoInfo::Aes256Gcm(libc::tls12_crypto_info_aes_gcm_256 { info, iv, key, salt, rec_seq })
        }),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            key.as_ref().try_into().ok().zip(iv.as_ref().try_into().ok()).map(|(key, iv)| {
                let info = info(libc::TLS_CIPHER_CHACHA20_POLY1305);
                let salt = [];
                TlsCryptoInfo::Chacha20Poly1305(libc::tls12_crypto_info_chacha20_poly1305 {
                    info,
                    iv,
                    key,
                    salt,
                    rec_seq,
                })
            })
        }
        _ => None,
    };
    made.ok_or_else(|| broken("the cipher's keys are of another form"))
}

fn aes<const N: usize>(key: &[u8], iv: &[u8]) -> Option<([u8; N], [u8; 4], [u8; 8])> {
    let (salt, rest) = iv.split_first_chunk()?;
    Some((key.try_into().ok()?, *salt, rest.try_into().ok()?))
}
