//! Encodes protocol buffers: the fields of a message, one after the other.

/// A message with the fields written so far.
#[derive(Debug, Default)]
pub(super) struct ProtoMessage(Vec<u8>);

impl ProtoMessage {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// A non-negative number, an enumerated value, or a flag.
    pub fn varint(&mut self, field: u32, value: u64) {
        self.push(u64::from(field) << 3);
        self.push(value);
    }

    /// A number of the types `int32` and `int64`.
    pub fn int(&mut self, field: u32, value: i64) {
        self.varint(field, value.cast_unsigned());
    }

    pub fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// A message as a field of this one.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// The header of a field that is a text or a message.
    pub fn head(&mut self, field: u32, length: usize) {
        self.push(u64::from(field) << 3 | 2);
        self.push(length as u64);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.head(field, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn push(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_encodings_documentation() {
        let mut message = ProtoMessage::default();
        message.varint(1, 150);
        assert_eq!(message.as_bytes(), b"\x08\x96\x01");
        message.clear();
        message.text(2, "testing");
        assert_eq!(message.as_bytes(), b"\x12\x07testing");
        message.clear();
        message.message(3, |inner| inner.varint(1, 150));
        assert_eq!(message.as_bytes(), b"\x1a\x03\x08\x96\x01");
        message.clear();
        message.int(1, -2);
        assert_eq!(message.as_bytes(), b"\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    }
}
