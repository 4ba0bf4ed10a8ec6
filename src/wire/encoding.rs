//! Encodes the numbers in records with the crate `bincode`. Only this file uses the crate.

use bincode::config::{Configuration, Fixint, LittleEndian, standard};
use bincode::{Decode, Encode};

use crate::error::{Error, ErrorKind, Result};

/// The encoding of a number has as many bytes as the type of the number, in little-endian order.
const CONFIG: Configuration<LittleEndian, Fixint> = standard().with_fixed_int_encoding();

pub(super) fn put_number<T: Encode>(number: T, out: &mut Vec<u8>) {
    // Writing to a vector never fails.
    let written = bincode::encode_into_std_write(number, out, CONFIG);
    debug_assert!(written.is_ok(), "{written:?}");
}

/// Decodes a number from its bytes.
///
/// # Errors
/// Fails if bytes are missing or left over, or if the bytes do not encode a `T`.
pub(super) fn number<T: Decode<()>>(bytes: &[u8]) -> Result<T> {
    let wrong = |got: String| Error::of(ErrorKind::Format, "stored number", "the bytes of one number", got);
    match bincode::decode_from_slice(bytes, CONFIG) {
        Ok((number, read)) if read == bytes.len() => Ok(number),
        Ok((_, read)) => Err(wrong(format!("{} bytes behind the number", bytes.len() - read))),
        Err(e) => Err(wrong(e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_in_their_own_bytes() {
        let mut out = Vec::new();
        put_number(-2i64, &mut out);
        put_number(0x0102_0304u32, &mut out);
        put_number(true, &mut out);
        assert_eq!(out, [254, 255, 255, 255, 255, 255, 255, 255, 4, 3, 2, 1, 1]);
        assert_eq!(number::<i64>(&out[..8]).unwrap(), -2);
        assert!(number::<i64>(&out[..7]).is_err());
        assert!(number::<u32>(&out[8..]).unwrap_err().to_string().contains("1 bytes behind the number"));
        assert!(number::<bool>(&[2]).is_err());
    }
}
