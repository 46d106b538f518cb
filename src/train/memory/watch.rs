//! Checks that kernels and copies stay within live blocks. A device takes raw addresses, and a GPU does not detect a use
//! of freed memory.

use std::cell::RefCell;
use std::collections::BTreeMap;

use vramlab_allocator::units::{Address, Bytes};
use vramlab_device::{DeviceError, Span};

/// The live blocks, by address, with the bytes that were requested.
#[derive(Default)]
pub(super) struct Watch(RefCell<BTreeMap<Address, Bytes>>);

impl Watch {
    pub fn taken(&self, address: Address, requested: Bytes) {
        self.0.borrow_mut().insert(address, requested);
    }

    pub fn given_back(&self, address: Address) {
        self.0.borrow_mut().remove(&address);
    }

    /// # Errors
    /// [`DeviceError::Failed`] unless all of `span` lies within one live block.
    pub fn check(&self, operation: &'static str, device: &str, span: Span) -> Result<(), DeviceError> {
        let Span { start, bytes } = span;
        let blocks = self.0.borrow();
        let block = blocks.range(..=start).next_back();
        let within = block.is_some_and(|(block, &requested)| {
            start.0 - block.0 <= requested.get() && bytes.get() <= requested.get() - (start.0 - block.0)
        });
        if within || bytes == Bytes::ZERO {
            return Ok(());
        }
        let reason = format!("{bytes} at {start} are in no live block, which is a bug of vramlab");
        Err(DeviceError::Failed { operation, device: device.to_owned(), reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_within_one_live_block_passes() {
        let watch = Watch::default();
        watch.taken(Address(0x1000), Bytes(100));
        watch.taken(Address(0x1200), Bytes(512));
        let check =
            |start, bytes| watch.check("fill", "cpu", Span { start: Address(start), bytes: Bytes(bytes) }).is_ok();
        assert!(check(0x1000, 100) && check(0x1040, 36) && check(0x1200, 512));
        assert!(!check(0x1000, 101), "beyond its end");
        assert!(!check(0xFFF, 2), "before its beginning");
        assert!(!check(0x1000, 0x300), "from one block into the next");
        assert!(check(0xDEAD, 0), "nothing is touched");
        watch.given_back(Address(0x1200));
        let refused = watch.check("fill", "cuda:0", Span { start: Address(0x1200), bytes: Bytes(4) });
        let sentence = refused.map_err(|error| error.to_string());
        assert!(sentence.is_err_and(|text| text.contains("no live block")), "use after free");
    }
}
