//! Percent-encoding of addresses: bytes outside of the unreserved characters of RFC 3986 become `%XX`.

/// Percent-encodes bytes for an address; `/` stays as it is.
pub fn percent_encoded(bytes: &[u8]) -> String {
    let mut address = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                address.push(char::from(*byte))
            }
            _ => address.push_str(&format!("%{byte:02X}")),
        }
    }
    address
}

/// Decodes escapes such as `%20`. Invalid escapes and invalid UTF-8 remain unchanged.
pub fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escape = tail
            .first_chunk::<2>()
            .filter(|_| first == b'%')
            .and_then(|pair| {
                std::str::from_utf8(pair)
                    .ok()
                    .filter(|hex| !hex.starts_with('+'))
                    .and_then(|hex| u8::from_str_radix(hex, 16).ok())
            });
        bytes.push(escape.unwrap_or(first));
        rest = if escape.is_some() {
            tail.get(2..).unwrap_or_default()
        } else {
            tail
        };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}
