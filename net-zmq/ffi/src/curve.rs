//! CURVE keys: 32 bytes, or 40 characters of Z85 text in files.

use std::ffi::{CStr, CString, c_char};
use std::fmt;

use crate::{Error, sys};

/// A public or secret CURVE key.
pub type Key = [u8; 32];

/// Characters of a key's Z85 text, without the NUL.
const TEXT: usize = 40;

/// A secret key and the public key that belongs to it. The secret is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// What others may know.
    pub public: Key,
    /// What nobody else may know.
    pub secret: Key,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPair {{ public: {}, .. }}", key_to_z85(&self.public))
    }
}

impl KeyPair {
    /// A fresh pair.
    ///
    /// # Errors
    /// Where the linked libzmq has no CURVE.
    pub fn generate() -> Result<Self, Error> {
        let (mut public, mut secret) = ([0u8; TEXT + 1], [0u8; TEXT + 1]);
        // SAFETY: two places for 41 bytes each, which is what the function writes.
        let rc = unsafe {
            sys::zmq_curve_keypair(public.as_mut_ptr().cast::<c_char>(), secret.as_mut_ptr().cast::<c_char>())
        };
        if rc != 0 {
            return Err(Error::last("zmq_curve_keypair"));
        }
        Ok(Self { public: from_text(&public)?, secret: from_text(&secret)? })
    }

    /// The pair of a secret key.
    ///
    /// # Errors
    /// As [`public_key`].
    pub fn from_secret(secret: Key) -> Result<Self, Error> {
        Ok(Self { public: public_key(&secret)?, secret })
    }
}

fn from_text(text: &[u8]) -> Result<Key, Error> {
    let text = CStr::from_bytes_until_nul(text).map_err(|_| Error::Argument("a key text without an end"))?;
    decode(text)
}

fn decode(text: &CStr) -> Result<Key, Error> {
    if text.count_bytes() != TEXT {
        return Err(Error::Argument("expected a Z85 key of 40 characters"));
    }
    let mut key = [0u8; 32];
    // SAFETY: 40 characters decode to 32 bytes, the room there is; the text ends with NUL.
    let done = unsafe { sys::zmq_z85_decode(key.as_mut_ptr(), text.as_ptr()) };
    if done.is_null() { Err(Error::Argument("a key text with a character outside Z85")) } else { Ok(key) }
}

/// The key written as 40 characters of Z85.
///
/// # Errors
/// [`Error::Argument`] on another length or alphabet.
pub fn key_from_z85(text: &str) -> Result<Key, Error> {
    let text = CString::new(text).map_err(|_| Error::Argument("a key text with NUL inside"))?;
    decode(&text)
}

/// A key as 40 characters of Z85.
#[must_use]
pub fn key_to_z85(key: &Key) -> String {
    let mut text = [0u8; TEXT + 1];
    // SAFETY: 32 bytes encode to 40 characters and a NUL, the room there is.
    unsafe { sys::zmq_z85_encode(text.as_mut_ptr().cast::<c_char>(), key.as_ptr(), key.len()) };
    text.iter().take(TEXT).map(|byte| char::from(*byte)).collect()
}

/// The public key that belongs to a secret key.
///
/// # Errors
/// Where the linked libzmq has no CURVE.
pub fn public_key(secret: &Key) -> Result<Key, Error> {
    let secret =
        CString::new(key_to_z85(secret)).map_err(|_| Error::Argument("a key text with NUL inside"))?;
    let mut public = [0u8; TEXT + 1];
    // SAFETY: a NUL-terminated text of 40 characters in, a place for 41 bytes out.
    let rc = unsafe { sys::zmq_curve_public(public.as_mut_ptr().cast::<c_char>(), secret.as_ptr()) };
    if rc == 0 { from_text(&public) } else { Err(Error::last("zmq_curve_public")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_their_text_and_bad_texts_are_refused() {
        let pair = KeyPair::generate().unwrap();
        assert_ne!(pair.public, pair.secret);
        assert_eq!(public_key(&pair.secret).unwrap(), pair.public);
        assert_eq!(key_from_z85(&key_to_z85(&pair.public)).unwrap(), pair.public);
        assert_eq!(KeyPair::from_secret(pair.secret).unwrap(), pair);
        assert_ne!(KeyPair::generate().unwrap(), pair);
        for bad in ["", "short", &"~".repeat(40), &"0".repeat(41), "a\0b"] {
            assert!(key_from_z85(bad).is_err(), "{bad:?}");
        }
        assert!(!format!("{pair:?}").contains(&key_to_z85(&pair.secret)));
    }
}
