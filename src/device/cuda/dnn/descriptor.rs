//! The library's descriptors: made, given attributes, finalised, and destroyed when dropped.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use cudarc::cudnn::sys;

use super::handle::{DnnHandle, check};
use crate::cuda::refusal::Refusal;
use vramlab_allocator::units::Address;

pub(super) use sys::cudnnBackendAttributeName_t as Name;
pub(super) use sys::cudnnBackendDescriptorType_t as Kind;

use sys::cudnnBackendAttributeType_t as Type;

/// A type of attribute values.
///
/// # Safety
/// The library reads and writes elements of [`Value::TYPE`] with this type's size and layout.
pub(super) unsafe trait Value: Copy {
    const TYPE: Type;
}

macro_rules! values {
    ($($value:ty => $name:ident,)*) => {$(
        // SAFETY: the library's header says so.
        unsafe impl Value for $value {
            const TYPE: Type = Type::$name;
        }
    )*};
}

values! {
    i64 => CUDNN_TYPE_INT64,
    f32 => CUDNN_TYPE_FLOAT,
    bool => CUDNN_TYPE_BOOLEAN,
    Pointer => CUDNN_TYPE_VOID_PTR,
    sys::cudnnDataType_t => CUDNN_TYPE_DATA_TYPE,
    sys::cudnnConvolutionMode_t => CUDNN_TYPE_CONVOLUTION_MODE,
    sys::cudnnPointwiseMode_t => CUDNN_TYPE_POINTWISE_MODE,
    sys::cudnnReduceTensorOp_t => CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
    sys::cudnnBackendHeurMode_t => CUDNN_TYPE_HEUR_MODE,
    EngineNote => CUDNN_TYPE_NUMERICAL_NOTE,
    Knob => CUDNN_TYPE_KNOB_TYPE,
    sys::cudnnHandle_t => CUDNN_TYPE_HANDLE,
    RawDescriptor => CUDNN_TYPE_BACKEND_DESCRIPTOR,
}

/// A tensor's location: device memory, or one number on the host.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Pointer(*mut c_void);

impl Pointer {
    /// A number that the library reads before [`execute`] returns.
    pub fn host(value: &f32) -> Self {
        Self(ptr::from_ref(value).cast_mut().cast())
    }
}

impl From<Address> for Pointer {
    fn from(address: Address) -> Self {
        Self(ptr::without_provenance_mut(usize::try_from(address.0).unwrap_or_default()))
    }
}

/// An engine's note about its arithmetic, as a number because newer libraries have more notes than the bindings know.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EngineNote(u32);

impl From<sys::cudnnBackendNumericalNote_t> for EngineNote {
    fn from(note: sys::cudnnBackendNumericalNote_t) -> Self {
        Self(note as u32)
    }
}

/// The kind of an engine's setting, as a number because newer libraries have more kinds than the bindings know.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Knob(u32);

#[repr(transparent)]
#[derive(Clone, Copy)]
struct RawDescriptor(sys::cudnnBackendDescriptor_t);

/// An owned descriptor.
pub(super) struct Descriptor {
    raw: RawDescriptor,
    kind: Kind,
}

impl Descriptor {
    pub fn new(kind: Kind) -> Result<Self, Refusal> {
        let mut raw = ptr::null_mut();
        // SAFETY: the library is loaded and writes one descriptor.
        let made = unsafe { sys::cudnnBackendCreateDescriptor(kind, &raw mut raw) };
        check(made, format_args!("creating {kind:?}"))?;
        Ok(Self { raw: RawDescriptor(raw), kind })
    }

    /// Sets an attribute to a list of values.
    pub fn set<T: Value>(self, name: Name, values: &[T]) -> Result<Self, Refusal> {
        let count = i64::try_from(values.len()).unwrap_or(i64::MAX);
        // SAFETY: the descriptor is alive; the library copies `count` values of that type.
        let set = unsafe { sys::cudnnBackendSetAttribute(self.raw.0, name, T::TYPE, count, values.as_ptr().cast()) };
        check(set, format_args!("setting {name:?}"))?;
        Ok(self)
    }

    /// Sets an attribute to the library's handle.
    pub fn of(self, name: Name, handle: &DnnHandle) -> Result<Self, Refusal> {
        self.set(name, &[handle.raw()])
    }

    /// Sets an attribute to other descriptors, which must outlive this one.
    pub fn link(self, name: Name, others: &[&Self]) -> Result<Self, Refusal> {
        let raw: Vec<RawDescriptor> = others.iter().map(|other| other.raw).collect();
        self.set(name, &raw)
    }

    /// Finalises the descriptor, for which the library checks all attributes together. None can be set afterwards.
    pub fn finalise(self) -> Result<Self, Refusal> {
        // SAFETY: the descriptor is alive.
        check(unsafe { sys::cudnnBackendFinalize(self.raw.0) }, format_args!("finalising {:?}", self.kind))?;
        Ok(self)
    }

    /// Reads as many values of an attribute as there are and fit into `values`.
    pub fn get<T: Value>(&self, name: Name, values: &mut [T]) -> Result<usize, Refusal> {
        let (room, mut count) = (i64::try_from(values.len()).unwrap_or(i64::MAX), 0);
        let to = if values.is_empty() { ptr::null_mut() } else { values.as_mut_ptr().cast() };
        // SAFETY: the descriptor is alive; the library writes `room` values of that type at most, and their number.
        let got = unsafe { sys::cudnnBackendGetAttribute(self.raw.0, name, T::TYPE, room, &raw mut count, to) };
        check(got, format_args!("reading {name:?}"))?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    /// Reads an attribute that is one number.
    pub fn number(&self, name: Name) -> Result<i64, Refusal> {
        let mut value = [0_i64];
        self.get(name, &mut value)?;
        Ok(value[0])
    }

    /// Reads an attribute that is a list of descriptors.
    pub fn list(&self, name: Name, kind: Kind) -> Result<Vec<Self>, Refusal> {
        let count = self.get::<RawDescriptor>(name, &mut [])?;
        self.first(name, kind, count)
    }

    /// Reads `count` descriptors of an attribute. The library fills the descriptors that it is given.
    pub fn first(&self, name: Name, kind: Kind, count: usize) -> Result<Vec<Self>, Refusal> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut made: Vec<Self> = (0..count).map(|_| Self::new(kind)).collect::<Result<_, _>>()?;
        let mut raw: Vec<RawDescriptor> = made.iter().map(|descriptor| descriptor.raw).collect();
        let filled = self.get(name, &mut raw)?;
        made.truncate(filled);
        Ok(made)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor came from the library and is not used again.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.raw.0) };
    }
}

/// Queues an execution plan on the handle's stream.
pub(super) fn execute(handle: &DnnHandle, plan: &Descriptor, pack: &Descriptor) -> Result<(), Refusal> {
    // SAFETY: all three are alive and finalised. The caller of `Device::launch` guarantees that the pack's pointers are
    // of live blocks.
    check(unsafe { sys::cudnnBackendExecute(handle.raw(), plan.raw.0, pack.raw.0) }, "executing a plan")
}
