//! Reads a shared library: the names that it defines, and its own. 64 bits, in this machine's byte order.

/// A section of a file: type, link to another section, offset, bytes, bytes of an entry.
struct Section {
    kind: u32,
    link: usize,
    offset: usize,
    size: usize,
    entry: usize,
}

const DYNAMIC: u32 = 6;
const DYNAMIC_SYMBOLS: u32 = 11;

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(number)
}

fn sections(library: &[u8]) -> Vec<Section> {
    assert_eq!(&library[..6], b"\x7fELF\x02\x01", "a library of 64 bits");
    let (start, size, count) = (number::<8>(library, 40), number::<2>(library, 58), number::<2>(library, 60));
    let section = |at: u64| {
        let at = (start + at * size) as usize;
        Section {
            kind: number::<4>(library, at + 4) as u32,
            link: number::<4>(library, at + 40) as usize,
            offset: number::<8>(library, at + 24) as usize,
            size: number::<8>(library, at + 32) as usize,
            entry: number::<8>(library, at + 56) as usize,
        }
    };
    (0..count).map(section).collect()
}

fn text(library: &[u8], names: &Section, at: u64) -> String {
    let bytes = &library[names.offset + at as usize..];
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap()).into_owned()
}

/// The names of the functions that it exports.
pub fn defined(library: &[u8]) -> Vec<String> {
    let sections = sections(library);
    let symbols = sections.iter().find(|section| section.kind == DYNAMIC_SYMBOLS).unwrap();
    let at = (0..symbols.size / symbols.entry).map(|symbol| symbols.offset + symbol * symbols.entry);
    // Defined in some section, and visible: global or weak.
    let here = at.filter(|at| number::<2>(library, at + 6) != 0 && number::<1>(library, at + 4) >> 4 != 0);
    here.map(|at| text(library, &sections[symbols.link], number::<4>(library, at))).collect()
}

/// The name by which other libraries refer to it.
pub fn soname(library: &[u8]) -> Option<String> {
    let sections = sections(library);
    let dynamic = sections.iter().find(|section| section.kind == DYNAMIC)?;
    let mut entries = (0..dynamic.size / 16).map(|entry| dynamic.offset + entry * 16);
    let at = entries.find(|at| number::<8>(library, *at) == 14)?;
    Some(text(library, &sections[dynamic.link], number::<8>(library, at + 8)))
}
