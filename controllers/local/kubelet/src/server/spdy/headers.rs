//! Blocks of headers of SPDY/3: pairs of texts with lengths before them, in one zlib stream for all blocks of a
//! connection, which begins with a dictionary that both sides have (draft-mbelshe-httpbis-spdy-00, section 2.6.10).

use std::collections::BTreeMap;

use flate2::{Decompress, FlushDecompress, Status};

/// Largest block, in bytes.
const LIMIT: usize = 64 << 10;

/// Words of the dictionary; each has its length before it, in four bytes.
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host if-match \
    if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200|OK version HTTP/1.1 url public set-cookie \
    keep-alive origin";
/// What follows the words.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
    Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 \
    Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept \
    Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8\
    charset=iso-8859-1,utf-,*,enq=0.";

fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in WORDS.split(' ').map(|word| word.replace('|', " ")) {
        bytes.extend(u32::try_from(word.len()).unwrap_or(0).to_be_bytes());
        bytes.extend(word.as_bytes());
    }
    bytes.extend(TAIL.as_bytes());
    bytes
}

/// Reads blocks of headers, in order.
pub(super) struct Headers(Decompress);

impl Default for Headers {
    fn default() -> Self {
        Self(Decompress::new(true))
    }
}

impl Headers {
    pub(super) fn read(&mut self, block: &[u8]) -> Result<BTreeMap<String, String>, String> {
        parse(&self.inflate(block)?).ok_or_else(|| "a block of headers that is none".to_owned())
    }

    fn inflate(&mut self, block: &[u8]) -> Result<Vec<u8>, String> {
        let (before, mut plain) = (self.0.total_in(), Vec::with_capacity(4096));
        loop {
            let done = usize::try_from(self.0.total_in() - before).unwrap_or(usize::MAX);
            let rest = block.get(done..).unwrap_or_default();
            match self.0.decompress_vec(rest, &mut plain, FlushDecompress::Sync) {
                Ok(status) => {
                    let done = usize::try_from(self.0.total_in() - before).unwrap_or(usize::MAX);
                    let is_full = plain.len() == plain.capacity();
                    if status == Status::StreamEnd || (done >= block.len() && !is_full) {
                        return Ok(plain);
                    }
                    if !is_full && status == Status::BufError {
                        return Err("a block of headers that is cut short".to_owned());
                    }
                }
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&dictionary()).map_err(|error| error.to_string())?;
                }
                Err(error) => return Err(error.to_string()),
            }
            if plain.len() > LIMIT {
                return Err("a block of headers that is too large".to_owned());
            }
            plain.reserve(4096);
        }
    }
}

fn parse(plain: &[u8]) -> Option<BTreeMap<String, String>> {
    let mut rest = plain;
    let number = |rest: &mut &[u8]| -> Option<usize> {
        let (head, tail) = rest.split_at_checked(4)?;
        *rest = tail;
        usize::try_from(u32::from_be_bytes(head.try_into().ok()?)).ok()
    };
    let count = number(&mut rest)?;
    let mut headers = BTreeMap::new();
    for _ in 0..count {
        let mut text = || -> Option<String> {
            let length = number(&mut rest)?;
            let (head, tail) = rest.split_at_checked(length)?;
            rest = tail;
            Some(String::from_utf8_lossy(head).into_owned())
        };
        let (name, value) = (text()?, text()?);
        headers.insert(name.to_lowercase(), value);
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use flate2::{Compress, Compression, FlushCompress};

    use super::*;

    #[test]
    fn the_dictionary_is_the_known_one() {
        let (mut a, mut b) = (1_u32, 0_u32);
        for byte in dictionary() {
            a = (a + u32::from(byte)) % 65521;
            b = (b + a) % 65521;
        }
        assert_eq!(dictionary().len(), 1423);
        assert_eq!(b << 16 | a, 0xe3c6_a7c2);
    }

    #[test]
    fn blocks_are_read_one_after_the_other() {
        let mut compress = Compress::new(Compression::default(), true);
        compress.set_dictionary(&dictionary()).unwrap();
        let mut headers = Headers::default();
        for (name, value) in [("Port", "8080"), ("streamType", "data"), ("port", "8080")] {
            let mut plain = 1_u32.to_be_bytes().to_vec();
            for text in [name, value] {
                plain.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
                plain.extend(text.as_bytes());
            }
            let mut block = Vec::with_capacity(1000);
            compress.compress_vec(&plain, &mut block, FlushCompress::Sync).unwrap();
            assert_eq!(headers.read(&block).unwrap(), [(name.to_lowercase(), value.to_owned())].into());
        }
        assert!(Headers::default().read(b"nonsense").is_err());
    }
}
