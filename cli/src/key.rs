//! Keys as bytes: from the command line, from hexadecimal, from standard input or from a file.
//!
//! Nothing is trimmed, added or normalised: a key with a newline at its end is another key.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use crate::{
    args::KeyArgs,
    exit::{Failure, Result},
};

/// The bytes of the key that the command line names.
///
/// # Errors
/// Usage, if the hexadecimal is none; failed, if standard input cannot be read.
pub fn read(args: &KeyArgs) -> Result<Vec<u8>> {
    if args.stdin {
        let mut key = Vec::new();
        std::io::stdin().lock().read_to_end(&mut key)?;
        return Ok(key);
    }
    from_argument(args.key.as_deref().unwrap_or_default(), args.hex)
}

/// The bytes of an argument, decoded if it is hexadecimal.
///
/// # Errors
/// Usage, if the hexadecimal is none.
pub fn from_argument(argument: &OsStr, hex: bool) -> Result<Vec<u8>> {
    // On Unix these are exactly the bytes that the shell passed.
    let bytes = argument.as_encoded_bytes();
    if !hex {
        return Ok(bytes.to_vec());
    }
    hex::decode(bytes).map_err(|error| {
        Failure::usage(
            format!(
                "{:?} is not hexadecimal: {error}",
                argument.to_string_lossy()
            ),
            "write two digits a byte, such as 00ff, or leave --hex away",
        )
    })
}

/// A key for people: as text if it is printable, else in hexadecimal.
#[must_use]
pub fn show(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) => format!("{text:?}"),
        Err(_) => format!("0x{}", hex::encode(key)),
    }
}

/// Keys of a file, one a line, in the file's order, each once.
#[derive(Debug, Default)]
pub struct KeyFile {
    /// The keys.
    pub keys: Vec<Vec<u8>>,
    /// Lines left out because they are empty.
    pub empty_lines: usize,
    /// Lines left out because the key was there before.
    pub repeated_lines: usize,
}

/// Reads the keys of a file: all bytes of a line but its `\n`.
///
/// # Errors
/// Usage, if the file cannot be read or has no key.
pub fn read_file(path: &Path) -> Result<KeyFile> {
    let shown = path.display();
    let next = "name a readable file with one key a line";
    let file = std::fs::File::open(path)
        .map_err(|error| Failure::usage(format!("keys {shown}: {error}"), next))?;
    let file = read_lines(BufReader::new(file))
        .map_err(|error| Failure::usage(format!("keys {shown}: {error}"), next))?;
    if file.keys.is_empty() {
        return Err(Failure::usage(
            format!("keys {shown}: no line holds a key"),
            next,
        ));
    }
    Ok(file)
}

fn read_lines(mut from: impl BufRead) -> std::io::Result<KeyFile> {
    let mut file = KeyFile::default();
    let mut seen = std::collections::HashSet::new();
    loop {
        let mut line = Vec::new();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Ok(file);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if line.is_empty() {
            file.empty_lines += 1;
        } else if seen.insert(line.clone()) {
            file.keys.push(line);
        } else {
            file.repeated_lines += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_decoded_only_when_asked() {
        assert_eq!(
            from_argument(OsStr::new("00ff"), false).expect("plain"),
            b"00ff"
        );
        assert_eq!(
            from_argument(OsStr::new("00ff"), true).expect("hex"),
            [0, 0xff]
        );
        assert!(from_argument(OsStr::new("0"), true).is_err());
    }

    #[test]
    fn lines_lose_their_newline_and_nothing_else() {
        let file = read_lines(&b" a \r\nb\n\nb\nlast"[..]).expect("bytes");
        assert_eq!(
            file.keys,
            [b" a \r".to_vec(), b"b".to_vec(), b"last".to_vec()]
        );
        assert_eq!((file.empty_lines, file.repeated_lines), (1, 1));
    }
}
