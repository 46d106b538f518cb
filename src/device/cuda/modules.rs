//! vramlab's own kernels, compiled by NVRTC for the current device and kept on disk as machine code.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::{fs, thread};

use cudarc::nvrtc::result as nvrtc;
use cudarc::nvrtc::sys;

use super::cache::{cache_folder, keep};
use super::driver::{Function, Module};
use super::refusal::Refusal;
use crate::DType;

/// The prelude that precedes the source of every unit.
const PRELUDE: &str = include_str!("prelude.cuh");

/// A translation unit, which is compiled separately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TranslationUnit {
    /// Its file name without `.cu`, and the name of its cache file.
    pub name: &'static str,
    /// CUDA C, without the prelude that all units share.
    pub source: &'static str,
}

/// All units, loaded, and the kernels requested so far.
pub(crate) struct Modules {
    modules: Vec<Module>,
    /// The module of each kernel. Requesting a kernel from the wrong module would show as an error in tools that watch
    /// the driver.
    homes: HashMap<String, usize>,
    functions: HashMap<(&'static str, [Option<DType>; 2]), Function>,
    /// Dynamic shared memory that a function may use, if it exceeds the common limit.
    shared: HashMap<Function, u32>,
}

/// Dynamic shared memory that a block may use without permission.
const COMMON_SHARED: u32 = 48 << 10;

impl Modules {
    /// Loads every unit from the cache or compiles it, with one thread for each.
    pub fn load(units: impl Iterator<Item = &'static TranslationUnit>, capability: u32) -> Result<Self, Refusal> {
        let units: Vec<&TranslationUnit> = units.collect();
        let cache = cache_folder();
        let images: Vec<Result<Vec<u8>, Refusal>> = thread::scope(|scope| {
            let cache = cache.as_deref();
            let compile = |&unit: &&'static TranslationUnit| scope.spawn(move || image(unit, capability, cache));
            let threads: Vec<_> = units.iter().map(compile).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
        });
        let (mut modules, mut homes) = (Vec::new(), HashMap::new());
        for (image, unit) in images.into_iter().zip(units) {
            let mut image = image?;
            let module = match Module::load(&image) {
                // A damaged cache file.
                Err(_) if cache.is_some() => {
                    image = self::image(unit, capability, None)?;
                    Module::load(&image)?
                }
                loaded => loaded?,
            };
            homes.extend(kernels_in(&image).map(|kernel| (kernel.to_owned(), modules.len())));
            modules.push(module);
        }
        Ok(Self { modules, homes, functions: HashMap::new(), shared: HashMap::new() })
    }

    /// Permits blocks of `function` to use `bytes` of dynamic shared memory.
    pub fn permit_shared(&mut self, function: Function, bytes: u32) -> Result<(), Refusal> {
        if bytes > COMMON_SHARED && self.shared.get(&function).is_none_or(|&permitted| permitted < bytes) {
            function.permit_shared(bytes)?;
            self.shared.insert(function, bytes);
        }
        Ok(())
    }

    /// The kernel `name_type_type`.
    pub fn function(&mut self, name: &'static str, types: &[DType]) -> Result<Function, Refusal> {
        let key = (name, [types.first().copied(), types.get(1).copied()]);
        if let Some(&function) = self.functions.get(&key) {
            return Ok(function);
        }
        let full = types.iter().fold(name.to_owned(), |full, dtype| full + "_" + suffix(*dtype));
        let home = self.homes.get(&full).and_then(|&home| self.modules.get(home));
        let Some(function) = home.map(|module| module.function(&full)).transpose()?.flatten() else {
            return Err(Refusal::Unsupported(full));
        };
        self.functions.insert(key, function);
        Ok(function)
    }
}

/// Names of the kernels in a cubin: each has a section `.text.NAME`, whose name ends in a zero byte.
fn kernels_in(image: &[u8]) -> impl Iterator<Item = &str> {
    let names = image.split(|&byte| byte == 0).filter_map(|text| text.strip_prefix(b".text."));
    names.filter_map(|name| std::str::from_utf8(name).ok())
}

/// The kernels' name for a type.
const fn suffix(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::Bf16 => "bf16",
        DType::F64 => "f64",
        DType::I64 => "i64",
        DType::I32 => "i32",
        DType::U8 => "u8",
        DType::E4M3 => "e4m3",
        DType::E5M2 => "e5m2",
    }
}

fn panicked() -> Refusal {
    Refusal::Library { library: "NVRTC", status: "nothing: the compiling thread ended".into() }
}

/// Instructions specific to Hopper and later chips require the architecture's own name.
fn target(capability: u32) -> String {
    if capability >= 90 { format!("sm_{capability}a") } else { format!("sm_{capability}") }
}

/// Machine code of one unit.
fn image(unit: &TranslationUnit, capability: u32, cache: Option<&Path>) -> Result<Vec<u8>, Refusal> {
    let TranslationUnit { name: unit, source } = unit;
    let target = target(capability);
    let source = format!("#line 1 \"prelude.cuh\"\n{}\n#line 1 \"{unit}.cu\"\n{source}", PRELUDE);
    let mut hasher = DefaultHasher::new();
    (&source, &target, version()).hash(&mut hasher);
    let path = cache.map(|folder| folder.join(format!("{unit}-{target}-{:016x}.cubin", hasher.finish())));
    if let Some(image) = path.as_ref().and_then(|path| fs::read(path).ok()) {
        return Ok(image);
    }
    let image = compile(&source, unit, &target)?;
    if let Some(path) = path {
        keep(&path, &image);
    }
    Ok(image)
}

/// NVRTC's version, as major and minor.
fn version() -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: NVRTC is loaded and writes two integers.
    let _ = unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    (major, minor)
}

fn refused(status: impl std::fmt::Debug) -> Refusal {
    Refusal::Library { library: "NVRTC", status: format!("{status:?}") }
}

/// A program that is destroyed when dropped.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was made by NVRTC and is not used again.
        let _ = unsafe { nvrtc::destroy_program(self.0) };
    }
}

fn compile(source: &str, unit: &str, target: &str) -> Result<Vec<u8>, Refusal> {
    let (source, name) = (CString::new(source).map_err(refused)?, CString::new(unit).map_err(refused)?);
    let program = Program(nvrtc::create_program(&source, Some(&name)).map_err(refused)?);
    let options = [format!("--gpu-architecture={target}"), "--std=c++17".to_owned(), "-default-device".to_owned()];
    // SAFETY: the program is alive.
    if let Err(error) = unsafe { nvrtc::compile_program(program.0, &options) } {
        // SAFETY: the program is alive.
        let log = unsafe { nvrtc::get_program_log(program.0) }.map(|log| text(&log)).unwrap_or_default();
        return Err(refused(format!("{error:?} for {unit}.cu: {log}")));
    }
    let mut size = 0;
    // SAFETY: the program is compiled; NVRTC writes the size, then as many bytes.
    unsafe {
        sys::nvrtcGetCUBINSize(program.0, &raw mut size).result().map_err(refused)?;
        let mut image = vec![0_u8; size];
        sys::nvrtcGetCUBIN(program.0, image.as_mut_ptr().cast()).result().map_err(refused)?;
        Ok(image)
    }
}

fn text(log: &[c_char]) -> String {
    let bytes: Vec<u8> = log.iter().map(|&c| c.to_ne_bytes()[0]).collect();
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_the_names_of_their_sections() {
        let image = b"\x7fELF\x02\0\0.shstrtab\0.text.gelu_f32\0.nv.info.gelu_f32\0.text.gelu_bf16\0\xff\xfe\0";
        assert_eq!(kernels_in(image).collect::<Vec<_>>(), ["gelu_f32", "gelu_bf16"]);
    }
}
