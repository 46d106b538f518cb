//! cuDNN's recurrent nets: the layout of their weights, and their additional memory.
//!
//! Descriptors are NVIDIA's own and need no device. Functions that take a handle do, so rules answer them here. The
//! layout of the weights is that of an H200 with cuDNN 9.19 in all of 260 nets. The reserve space of training (without
//! dropout) is right to 40 bytes in 6700.
//!
//! No rule was found for the workspace. Half of the workspaces computed here are within 2 % of the card's, and one in
//! ten is off by a quarter or more. The program's end reports them as estimates.

use std::ffi::c_void;
use std::iter::repeat_n;

use crate::foreign::put;
use crate::report;

/// CUDNN_STATUS_BAD_PARAM.
const BAD_PARAM: i32 = 2000;
/// Bytes of the workspace for a layer's products, in each direction.
const OF_LAYER: u64 = 8 << 20;
/// Bytes before what training keeps.
const HEAD: u64 = 256;
/// The most sequences of a batch.
const SEQUENCES: usize = 1 << 16;

/// A net, from its descriptor.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Net {
    /// cudnnRNNMode_t.
    mode: i32,
    biased: bool,
    /// 1 or 2.
    directions: u64,
    /// cudnnDataType_t, and the bytes of an element.
    kind: i32,
    element: u64,
    inputs: u64,
    hidden: u64,
    /// The size of the projection; 0 if there is none.
    projected: u64,
    layers: u64,
}

/// A matrix or a bias: its offset, rows and columns.
type ParameterSlice = (u64, u64, u64);

impl Net {
    fn read(descriptor: u64) -> Option<Self> {
        let mut words = [0_i32; 12];
        let [algorithm, mode, bias, direction, input, kind, precision, math, inputs, hidden, projected, layers] =
            &mut words;
        let (mut dropout, mut flags) = (0_u64, 0_u32);
        let ask = real!(
            c"cudnnGetRNNDescriptor_v8",
            fn(
                u64,
                *mut i32,
                *mut i32,
                *mut i32,
                *mut i32,
                *mut i32,
                *mut i32,
                *mut i32,
                *mut i32,
                *mut i32,
                *mut i32,
                *mut i32,
                *mut i32,
                *mut u64,
                *mut u32,
            ) -> i32
        )?;
        let code = ask(
            descriptor,
            algorithm,
            mode,
            bias,
            direction,
            input,
            kind,
            precision,
            math,
            inputs,
            hidden,
            projected,
            layers,
            &mut dropout,
            &mut flags,
        );
        let size = |number: i32| u64::try_from(number).ok();
        let net = Self {
            mode: *mode,
            biased: *bias != 0,
            directions: if *direction == 0 { 1 } else { 2 },
            kind: *kind,
            // CUDNN_DATA_DOUBLE is 1, CUDNN_DATA_FLOAT 0; the others have two bytes.
            element: match *kind {
                0 => 4,
                1 => 8,
                _ => 2,
            },
            inputs: size(*inputs)?,
            hidden: size(*hidden)?,
            projected: size(*projected).filter(|size| *size != *hidden as u64).unwrap_or(0),
            layers: size(*layers)?,
        };
        (code == 0).then_some(net)
    }

    /// The number of matrices of one kind in a cell.
    fn gates(&self) -> u64 {
        match self.mode {
            2 => 4,
            3 => 3,
            _ => 1,
        }
    }

    fn outputs(&self) -> u64 {
        if self.projected > 0 { self.projected } else { self.hidden }
    }

    /// Rows and columns of the matrices of a pseudo-layer (a layer in one direction), in their order.
    fn matrices(&self, layer: u64) -> impl Iterator<Item = (u64, u64)> {
        let inputs = if layer < self.directions { self.inputs } else { self.outputs() * self.directions };
        let gates = self.gates() as usize;
        let projection = (self.projected > 0).then_some((self.projected, self.hidden));
        repeat_n((self.hidden, inputs), gates).chain(repeat_n((self.hidden, self.outputs()), gates)).chain(projection)
    }

    fn matrix_bytes(&self, layers: u64) -> u64 {
        (0..layers).flat_map(|layer| self.matrices(layer)).map(|(rows, columns)| rows * columns * self.element).sum()
    }

    /// The number of pseudo-layers.
    fn depth(&self) -> u64 {
        self.layers * self.directions
    }

    /// Bytes of the biases of a pseudo-layer.
    fn biases(&self) -> u64 {
        if self.biased { 2 * self.gates() * self.hidden * self.element } else { 0 }
    }

    fn weights(&self) -> u64 {
        self.matrix_bytes(self.depth()) + self.depth() * self.biases()
    }

    /// The matrix with this number in a pseudo-layer, and its bias; all matrices lie before all biases.
    fn part(&self, layer: u64, number: u64) -> (Option<ParameterSlice>, Option<ParameterSlice>) {
        let mut at = self.matrix_bytes(layer);
        let mut matrix = None;
        for (place, (rows, columns)) in (0..).zip(self.matrices(layer)) {
            if place == number {
                matrix = Some((at, rows, columns));
            }
            at += rows * columns * self.element;
        }
        let first = self.matrix_bytes(self.depth()) + layer * self.biases();
        let bias = (self.biased && number < 2 * self.gates()).then_some((
            first + number * self.hidden * self.element,
            self.hidden,
            1,
        ));
        (matrix, bias)
    }

    /// Bytes of the workspace, and of what training keeps; `steps` counts the steps of all sequences together.
    fn scratch(&self, training: bool, steps: u64) -> (u64, u64) {
        let states = steps * self.hidden * self.element * self.directions;
        let kept = match self.mode {
            2 => 6 * self.layers - 1,
            3 => 7 * self.layers - 1,
            _ => 2 * self.layers - 1,
        };
        let work = OF_LAYER * self.depth() + self.matrix_bytes(self.depth()) + (self.gates() + 1) * states;
        if training { (work + states.max(steps * self.inputs * self.element), kept * states + HEAD) } else { (work, 0) }
    }
}

/// The number of steps of all sequences in a batch.
fn steps(data: u64) -> Option<u64> {
    let ask = real!(
        c"cudnnGetRNNDataDescriptor",
        fn(u64, *mut i32, *mut i32, *mut i32, *mut i32, *mut i32, i32, *mut i32, *mut c_void) -> i32
    )?;
    let mut words = [0_i32; 5];
    let [kind, layout, longest, batch, vector] = &mut words;
    let mut fill = [0_u64; 2];
    let fill = fill.as_mut_ptr().cast();
    let code = ask(data, kind, layout, longest, batch, vector, 0, std::ptr::null_mut(), fill);
    let mut lengths = vec![0_i32; usize::try_from(*batch).ok().filter(|_| code == 0)?.min(SEQUENCES)];
    let count = lengths.len() as i32;
    let code = ask(data, kind, layout, longest, batch, vector, count, lengths.as_mut_ptr(), fill);
    // CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED is 1: sequences that have ended take no more room.
    let packed: u64 = lengths.iter().map(|length| u64::from(length.unsigned_abs())).sum();
    let all = u64::from(longest.unsigned_abs()) * u64::from(batch.unsigned_abs());
    (code == 0).then_some(if *layout == 1 { packed } else { all })
}

/// Reports a part of the weights, which begin at `weights`, to the program.
fn tell(part: Option<ParameterSlice>, net: &Net, weights: u64, descriptor: u64, place: *mut u64) -> i32 {
    let Some((at, rows, columns)) = part else {
        put(place, 0);
        return 0;
    };
    put(place, weights + at);
    if descriptor == 0 {
        return 0;
    }
    let set = real!(c"cudnnSetTensorNdDescriptor", fn(u64, i32, i32, *const i32, *const i32) -> i32);
    let (rows, columns) = (rows as i32, columns as i32);
    let (sizes, strides) = ([1, rows, columns], [rows * columns, columns, 1]);
    set.map_or(BAD_PARAM, |set| set(descriptor, net.kind, 3, sizes.as_ptr(), strides.as_ptr()))
}

entries! {
    fn cudnnGetRNNWeightSpaceSize(_handle: u64, descriptor: u64, bytes: *mut u64) -> i32 {
        let Some(net) = Net::read(descriptor) else { return BAD_PARAM };
        put(bytes, net.weights());
        0
    }
    fn cudnnGetRNNTempSpaceSizes(_handle: u64, descriptor: u64, mode: i32, data: u64, work: *mut u64, reserve: *mut u64) -> i32 {
        let (Some(net), Some(steps)) = (Net::read(descriptor), steps(data)) else { return BAD_PARAM };
        let (scratch, kept) = net.scratch(mode != 0, steps);
        report::estimated_workspace();
        put(work, scratch);
        put(reserve, kept);
        0
    }
    fn cudnnGetRNNWeightParams(_handle: u64, descriptor: u64, layer: i32, _size: usize, weights: u64, number: i32, matrix: u64, matrix_at: *mut u64, bias: u64, bias_at: *mut u64) -> i32 {
        let (Some(net), Ok(layer), Ok(number)) = (Net::read(descriptor), u64::try_from(layer), u64::try_from(number)) else { return BAD_PARAM };
        if layer >= net.depth() {
            return BAD_PARAM;
        }
        let (matrix_part, bias_part) = net.part(layer, number);
        match tell(matrix_part, &net, weights, matrix, matrix_at) {
            0 => tell(bias_part, &net, weights, bias, bias_at),
            code => code,
        }
    }
}
