//! Reads the entries of an untrusted zip archive in memory. Supports what GitHub Actions writes: files that are stored or
//! deflated. Names are data and never become paths.

use miniz_oxide::inflate::decompress_to_vec_with_limit;

/// Most entries of an archive.
const MAX_ENTRIES: usize = 10_000;
/// Longest comment at the end of an archive, and the length of the record before it.
const MAX_COMMENT: usize = 0xffff;
const END_LENGTH: usize = 22;

const END: [u8; 4] = *b"PK\x05\x06";
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const LOCAL: [u8; 4] = *b"PK\x03\x04";

/// An archive, and its files in the order of its directory.
pub(super) struct ZipArchive<'a> {
    bytes: &'a [u8],
    pub entries: Vec<ZipEntry>,
}

/// A file of an archive.
pub(super) struct ZipEntry {
    pub name: String,
    method: u16,
    packed: usize,
    /// Position of its local header.
    at: usize,
}

const TRUNCATED: &str = "it is not a complete zip archive";

impl<'a> ZipArchive<'a> {
    /// Reads the directory of an archive.
    ///
    /// # Errors
    /// A sentence, if it is damaged or has a form that GitHub does not write.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let from = bytes.len().saturating_sub(END_LENGTH + MAX_COMMENT);
        let tail = bytes.get(from..).unwrap_or_default();
        let end = tail.windows(4).rposition(|four| four == END);
        let end = tail.get(end.ok_or(TRUNCATED)?..).unwrap_or_default();
        if end.len() < END_LENGTH {
            return Err(TRUNCATED);
        }
        let count = number(end, 10, 2)?;
        if count > MAX_ENTRIES {
            return Err("it has too many entries");
        }
        let mut at = number(end, 16, 4)?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let record = bytes.get(at..).unwrap_or_default();
            if !record.starts_with(&CENTRAL) {
                return Err(TRUNCATED);
            }
            let name_length = number(record, 28, 2)?;
            let name = record.get(46..46 + name_length).ok_or(TRUNCATED)?;
            let flags = number(record, 8, 2)?;
            if flags & 1 == 1 {
                return Err("it is encrypted");
            }
            entries.push(ZipEntry {
                name: String::from_utf8_lossy(name).into_owned(),
                method: u16::try_from(number(record, 10, 2)?).unwrap_or(u16::MAX),
                packed: number(record, 20, 4)?,
                at: number(record, 42, 4)?,
            });
            at += 46 + name_length + number(record, 30, 2)? + number(record, 32, 2)?;
        }
        Ok(Self { bytes, entries })
    }

    /// The content of a file, at most `limit` bytes.
    ///
    /// # Errors
    /// A sentence, if it is damaged, too large, or packed in another way.
    pub(super) fn read(&self, entry: &ZipEntry, limit: usize) -> Result<Vec<u8>, &'static str> {
        let local = self.bytes.get(entry.at..).unwrap_or_default();
        if !local.starts_with(&LOCAL) {
            return Err(TRUNCATED);
        }
        let start = 30 + number(local, 26, 2)? + number(local, 28, 2)?;
        let packed = start.checked_add(entry.packed);
        let packed = packed
            .and_then(|end| local.get(start..end))
            .ok_or(TRUNCATED)?;
        match entry.method {
            0 if packed.len() <= limit => Ok(packed.to_vec()),
            8 => decompress_to_vec_with_limit(packed, limit)
                .map_err(|_| "a file in it is damaged or too large"),
            0 => Err("a file in it is too large"),
            _ => Err("a file in it is neither stored nor deflated"),
        }
    }
}

/// A little-endian number of `length` bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Result<usize, &'static str> {
    let digits = bytes.get(at..at + length).ok_or(TRUNCATED)?;
    Ok(digits
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use miniz_oxide::deflate::compress_to_vec;

    /// An archive with one file.
    fn archive(name: &str, method: u8, packed: &[u8]) -> Vec<u8> {
        let size = u32::try_from(packed.len()).unwrap().to_le_bytes();
        let length = u16::try_from(name.len()).unwrap().to_le_bytes();
        let mut bytes = LOCAL.to_vec();
        bytes.extend([20, 0, 0, 0, method, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(size.iter().chain(&size).chain(&length).chain(&[0, 0]));
        bytes.extend(name.as_bytes().iter().chain(packed));
        let at = u32::try_from(bytes.len()).unwrap().to_le_bytes();
        bytes.extend(CENTRAL);
        bytes.extend([20, 0, 20, 0, 0, 0, method, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(size.iter().chain(&size).chain(&length));
        bytes.extend([0; 16]);
        bytes.extend(name.as_bytes());
        bytes.extend(END);
        bytes.extend([0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0]);
        bytes.extend(at);
        bytes.extend([0, 0]);
        bytes
    }

    #[test]
    fn stored_and_deflated_files_are_read_within_limit() {
        let text = b"abc".repeat(100);
        for (method, packed) in [(0, text.clone()), (8, compress_to_vec(&text, 6))] {
            let bytes = archive("../../t.jsonl", method, &packed);
            let zip = ZipArchive::parse(&bytes).unwrap();
            assert_eq!(zip.entries[0].name, "../../t.jsonl");
            assert_eq!(zip.read(&zip.entries[0], 300).unwrap(), text);
            assert!(
                zip.read(&zip.entries[0], 299)
                    .unwrap_err()
                    .contains("large")
            );
        }
    }

    #[test]
    fn damaged_archives_are_errors() {
        let bytes = archive("t.jsonl", 0, b"text");
        for length in 0..bytes.len() {
            assert!(ZipArchive::parse(&bytes[..length]).is_err(), "{length}");
        }
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 0xff;
            if let Ok(zip) = ZipArchive::parse(&changed) {
                for entry in &zip.entries {
                    // Either is right; it must not panic.
                    let _ = zip.read(entry, 9);
                }
            }
        }
        let odd = archive("t.jsonl", 12, b"text");
        let odd = ZipArchive::parse(&odd).unwrap();
        assert!(odd.read(&odd.entries[0], 9).is_err());
    }
}
