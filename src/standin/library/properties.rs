//! cudaDeviceProp, in the layouts of CUDA 12 and 13.

use crate::attributes::value;
use crate::card::Card;
use crate::codes::{Code, INVALID_VALUE, NO_DEVICE, SUCCESS};
use crate::context::noted;
use crate::foreign::{copy, zero};
use crate::real;
use crate::store::{self, checked};

/// The two layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PropertiesLayout {
    Twelve,
    Thirteen,
}

/// A field of the structure: its size, and the attribute that fills it; without one it stays zero.
enum Field {
    /// An `int` with the value of an attribute.
    Attribute(i32),
    /// A `size_t` with the value of an attribute.
    Long(i32),
    /// A `size_t` with this value.
    Is(u64),
    /// This many `int`s of zero.
    Nothing(usize),
    /// An `int` that only CUDA 12 has.
    Old(i32),
    /// A text in this many bytes.
    Text(Vec<u8>),
}

use Field::{Attribute, Is, Long, Nothing, Old, Text};

/// The fields in their order, up to the last that is not zero.
fn fields(card: &Card, device: usize) -> Vec<Field> {
    let mut name = card.title.clone().into_bytes();
    name.truncate(255);
    name.resize(256, 0);
    vec![
        Text(name),
        Text(store::uuid(store::place(device)).to_vec()),
        // luid and its mask.
        Nothing(3),
        Is(card.memory),
        Long(8),
        Attribute(12),
        Attribute(10),
        Long(11),
        Attribute(1),
        Attribute(2),
        Attribute(3),
        Attribute(4),
        Attribute(5),
        Attribute(6),
        Attribute(7),
        Old(13),
        Long(9),
        Attribute(75),
        Attribute(76),
        Long(14),
        Long(51),
        // Copies at the same time as kernels.
        Old(15),
        Attribute(16),
        // Whether kernels have a time limit.
        Old(17),
        // Integrated.
        Nothing(1),
        Attribute(15),
        // The compute mode.
        Old(20),
        // Textures and surfaces: CUDA 12 has one number more.
        Nothing(2),
        Old(0),
        Nothing(2 + 2 + 3 + 2 + 3 + 3 + 1 + 2 + 3 + 2 + 1 + 2 + 3 + 2 + 3 + 1 + 2),
        Long(30),
        Attribute(31),
        Attribute(32),
        Attribute(33),
        // Its number and domain on the bus, and whether its driver is for computing alone.
        Nothing(3),
        Attribute(40),
        Attribute(41),
        Old(36),
        Attribute(37),
        Attribute(38),
        Attribute(108),
        Attribute(39),
        Attribute(78),
        Attribute(79),
        Attribute(80),
        Long(81),
        Attribute(82),
        Attribute(83),
        Attribute(84),
        Attribute(85),
        Attribute(86),
        Old(87),
        Attribute(88),
        Attribute(89),
        Attribute(90),
        Attribute(91),
        Attribute(95),
        Old(96),
        Long(97),
        Attribute(100),
        Attribute(101),
        Attribute(106),
        Attribute(109),
        Long(111),
        Attribute(99),
        Attribute(112),
        Attribute(113),
        Attribute(114),
        Attribute(115),
        Attribute(116),
        Attribute(117),
        Attribute(118),
        Attribute(119),
        Attribute(121),
        Attribute(125),
        Attribute(120),
        Attribute(129),
    ]
}

/// The whole structure; its length is the least of all versions of its layout.
fn written(card: &Card, device: usize, layout: PropertiesLayout) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1032);
    for field in fields(card, device) {
        let aligned = match &field {
            Long(_) | Is(_) => 8,
            Text(_) => 1,
            _ => 4,
        };
        bytes.resize(bytes.len().next_multiple_of(aligned), 0);
        let of = |attribute: i32| value(card, attribute, device);
        match field {
            Attribute(attribute) => bytes.extend(of(attribute).to_ne_bytes()),
            Old(attribute) if layout == PropertiesLayout::Twelve => bytes.extend(of(attribute).to_ne_bytes()),
            Old(_) => {}
            Long(attribute) => bytes.extend(i64::from(of(attribute)).to_ne_bytes()),
            Is(number) => bytes.extend(number.to_ne_bytes()),
            Nothing(ints) => bytes.resize(bytes.len() + 4 * ints, 0),
            Text(text) => bytes.extend(text),
        }
    }
    bytes
}

/// Bytes of the structure in both layouts, from NVIDIA's headers of 12.8 and 13.0.
const SIZES: [usize; 2] = [1032, 1008];

fn give(place: *mut u8, device: i32, layout: PropertiesLayout) -> Code {
    if place.is_null() {
        return INVALID_VALUE;
    }
    let Some(card) = Card::get() else { return NO_DEVICE };
    match checked(device) {
        Err(code) => code,
        Ok(device) => {
            let bytes = written(card, device, layout);
            let size = SIZES[usize::from(layout == PropertiesLayout::Thirteen)];
            zero(place, size);
            copy(place, bytes.as_ptr(), bytes.len().min(size));
            SUCCESS
        }
    }
}

entries! {
    /// CUDA 13's name for its own layout.
    fn cudaGetDeviceProperties(place: *mut u8, device: i32) -> Code {
        let layout = if real::runtime_version() >= 13000 { PropertiesLayout::Thirteen } else { PropertiesLayout::Twelve };
        noted(give(place, device, layout))
    }
    /// CUDA 12's.
    fn cudaGetDeviceProperties_v2(place: *mut u8, device: i32) -> Code { noted(give(place, device, PropertiesLayout::Twelve)) }
}
