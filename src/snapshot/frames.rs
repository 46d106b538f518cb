//! The frames of stacks: what their texts say, and which of them tells most of who asked for a block.
//!
//! A frame's text is `path/model.py:88 forward`; code that torch.compile made has no line: `<eval_with_key>.1: call`.

/// A frame as its text tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameText<'a> {
    /// The file's path.
    pub file: &'a str,
    /// The line, from 1 on; `None` where it is not known.
    pub line: Option<u32>,
    /// The function.
    pub function: &'a str,
}

/// What machine code runs, under the names that PyTorch gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeCode<'a> {
    /// A node of the graph, in backward.
    Node(&'a str),
    /// An operator.
    Operator(&'a str),
}

/// How names of files end whose code is compiled: PyTorch records frames of C++ and of the interpreter, too, unless it is told to
/// leave them out (`stacks="python"`).
const COMPILED: [&str; 12] = [".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".S", ".so", ".pyx", ".rs"];

/// Parts of functions' names that machinery has.
const FUNCTIONS: [&str; 9] = [
    "unwind::unwind",
    "CapturedTraceback::gather",
    "gather_with_cpp",
    "CUDACachingAllocator::",
    "_start",
    "__libc_start_main",
    "PyEval_",
    "PyObject_",
    "PyFunction_",
];

/// Parts of files' names that machinery has.
const FILES: [&str; 11] = [
    "core/boxing",
    "/Register",
    "/Redispatch",
    "pythonrun.c",
    "Modules/main.c",
    "Objects/call.c",
    "Objects/methodobject.c",
    "Objects/typeobject.c",
    "pycore_",
    "ceval.c",
    "cpython/abstract.h",
];

/// Who wrote the code of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// PyTorch itself, Python's own library, machine code, code that was generated: who calls it says more.
    Plumbing,
    /// Another package.
    Library,
    /// The program's author.
    Own,
}

impl<'a> FrameText<'a> {
    /// Takes a text apart; `None` where it is no frame's.
    #[must_use]
    pub fn of(text: &'a str) -> Option<Self> {
        for (at, _) in text.match_indices(':') {
            let rest = &text[at + 1..];
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if let Some(function) = rest[digits..].strip_prefix(' ') {
                return Some(Self { file: &text[..at], line: rest[..digits].parse().ok(), function });
            }
        }
        None
    }

    /// The text that [`FrameText::of`] takes apart.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { file, line, function } = self;
        line.map_or_else(|| format!("{file}: {function}"), |line| format!("{file}:{line} {function}"))
    }

    /// The same with the file's name alone: `model.py:88 forward`.
    #[must_use]
    pub fn short(&self) -> String {
        Self { file: self.file_name(), ..*self }.text()
    }

    /// The file's name.
    #[must_use]
    pub fn file_name(&self) -> &'a str {
        self.file.rsplit(['/', '\\']).next().unwrap_or(self.file)
    }

    /// Python's name of the file: from the packages' folder on (`transformers.models.llama.modeling_llama`), or the file's
    /// own.
    #[must_use]
    pub fn module(&self) -> String {
        let inner = packaged(self.file).unwrap_or_else(|| self.file_name());
        let inner = inner.strip_suffix(".py").unwrap_or(inner);
        inner.strip_suffix("/__init__").unwrap_or(inner).replace('/', ".")
    }

    /// Machine code, of PyTorch's C++ or of the interpreter: no line of a Python program.
    #[must_use]
    pub fn is_compiled(&self) -> bool {
        self.file.is_empty() || self.file.starts_with('?') || COMPILED.iter().any(|ending| self.file.ends_with(ending))
    }

    /// It says nothing of who asked: how the stack itself was taken, the allocator, and how the interpreter calls. PyTorch's own
    /// viewer leaves most of these out, too (`_frame_filter` in `torch/cuda/_memory_viz.py`).
    #[must_use]
    pub fn is_machinery(&self) -> bool {
        self.is_compiled()
            && (FUNCTIONS.iter().any(|part| self.function.contains(part))
                || FILES.iter().any(|part| self.file.contains(part)))
    }

    /// What a frame of machine code runs, as PyTorch calls it: a node of the graph under way (`AddmmBackward0`), or an operator
    /// (`mm`). `None` where it is neither.
    #[must_use]
    pub fn runs(&self) -> Option<NativeCode<'a>> {
        let identifier = |text: &'a str| {
            let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
            Some(&text[..end]).filter(|name| !name.is_empty())
        };
        if let Some(operator) = self.function.strip_prefix("at::_ops::") {
            return identifier(operator).map(NativeCode::Operator);
        }
        let node = self.function.strip_prefix("torch::autograd::")?;
        let node = node.strip_prefix("generated::").unwrap_or(node);
        let name = identifier(node)?;
        // `Node` is what all of them are, `Engine` what runs them.
        let is_node = node[name.len()..].starts_with("::apply(") && !matches!(name, "Node" | "Engine");
        is_node.then_some(NativeCode::Node(name))
    }

    /// It is of what watches the program: kernels that stand in front of PyTorch's. Without watching it is not there.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.file.contains("/vramlab_watch/_")
    }

    /// Who wrote it.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match packaged(self.file) {
            Some(path) if path.starts_with("torch/") => Origin::Plumbing,
            Some(_) => Origin::Library,
            None => {
                let typed = ["<ipython-input", "<stdin"].iter().any(|cell| self.file.starts_with(cell));
                let generated = !typed && self.file.starts_with('<');
                let compiled = self.is_compiled();
                let interpreter = self.file.contains("/lib/python3");
                if generated || compiled || interpreter { Origin::Plumbing } else { Origin::Own }
            }
        }
    }
}

/// What follows the folder of installed packages.
fn packaged(path: &str) -> Option<&str> {
    ["/site-packages/", "/dist-packages/"].iter().find_map(|folder| path.rsplit_once(folder)).map(|(_, inner)| inner)
}

/// The place of the frame that tells most of who asked, among the origins of a stack's frames from the innermost on: the
/// program's own innermost line; where all are of packages the innermost of one that is not PyTorch; else the innermost.
#[must_use]
pub fn telling(origins: impl Iterator<Item = Origin>) -> usize {
    let mut best = (Origin::Plumbing, 0);
    for (index, origin) in origins.enumerate() {
        if origin > best.0 {
            best = (origin, index);
        }
        if origin == Origin::Own {
            break;
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_frames_are_taken_apart() {
        for (text, file, line, function) in [
            ("/home/a b/model.py:88 forward", "/home/a b/model.py", Some(88), "forward"),
            ("<eval_with_key>.1: call", "<eval_with_key>.1", None, "call"),
            (r"C:\train.py:7 <module>", r"C:\train.py", Some(7), "<module>"),
            ("??: at::native::f(int, bool)", "??", None, "at::native::f(int, bool)"),
        ] {
            let frame = FrameText { file, line, function };
            assert_eq!(FrameText::of(text), Some(frame));
            assert_eq!(frame.text(), text);
        }
        assert_eq!(FrameText::of("blocks.3.fc output"), None);
        assert_eq!(FrameText::of("/x/model.py:88 forward").unwrap().short(), "model.py:88 forward");
    }

    #[test]
    fn files_are_told_apart_by_who_wrote_them() {
        for (file, origin, module) in [
            ("/home/me/job/train.py", Origin::Own, "train"),
            ("/v/lib/python3.12/site-packages/torch/nn/functional.py", Origin::Plumbing, "torch.nn.functional"),
            ("/v/lib/python3.12/site-packages/timm/models/__init__.py", Origin::Library, "timm.models"),
            ("/usr/lib/python3.12/contextlib.py", Origin::Plumbing, "contextlib"),
            ("<frozen runpy>", Origin::Plumbing, "<frozen runpy>"),
            ("/pytorch/aten/src/ATen/Functions.cpp", Origin::Plumbing, "Functions.cpp"),
            ("/usr/local/src/conda/python-3.11.4/Objects/methodobject.c", Origin::Plumbing, "methodobject.c"),
            ("./nptl/pthread_create.c", Origin::Plumbing, "pthread_create.c"),
            ("./sysdeps/unix/sysv/linux/x86_64/clone3.S", Origin::Plumbing, "clone3.S"),
            ("<ipython-input-3-abc>", Origin::Own, "<ipython-input-3-abc>"),
            ("/tmp/ipykernel_71/2034.py", Origin::Own, "2034"),
        ] {
            let frame = FrameText { file, line: Some(1), function: "f" };
            assert_eq!((frame.origin(), frame.module().as_str()), (origin, module), "{file}");
        }
    }

    #[test]
    fn machine_code_goes_by_the_names_that_pytorch_gives_it() {
        for (function, runs) in [
            (
                "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)",
                Some(NativeCode::Node("AddmmBackward0")),
            ),
            (
                "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)",
                Some(NativeCode::Node("AccumulateGrad")),
            ),
            ("at::_ops::mm::redispatch(c10::DispatchKeySet, at::Tensor const&)", Some(NativeCode::Operator("mm"))),
            ("at::_ops::sum_dim_IntList::call(at::Tensor const&)", Some(NativeCode::Operator("sum_dim_IntList"))),
            ("torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)", None),
            ("torch::autograd::Node::operator()(std::vector<at::Tensor>&&)", None),
            ("torch::unwind::unwind()", None),
        ] {
            let frame = FrameText { file: "??", line: None, function };
            assert_eq!(frame.runs(), runs, "{function}");
            assert_eq!(frame.is_machinery(), function.contains("unwind"), "{function}");
        }
        let python = FrameText { file: "/job/hooks.py", line: Some(3), function: "on_train_start" };
        assert!(!python.is_machinery() && !python.is_compiled());
    }

    #[test]
    fn frames_of_what_watches_are_told_from_the_programs() {
        let is_watching = |file| FrameText { file, line: Some(1), function: "kernel" }.is_watching();
        assert!(is_watching("/run/user/1/vramlab-watch/7/package/vramlab_watch/_kernels.py"));
        assert!(is_watching("/v/lib/python3.12/site-packages/vramlab_watch/_threads.py"));
        assert!(!is_watching("/home/me/vramlab_watch.py") && !is_watching("/home/me/train.py"));
    }

    #[test]
    fn the_programs_innermost_line_tells_most_then_a_packages() {
        use Origin::{Library, Own, Plumbing};
        assert_eq!(telling([Plumbing, Library, Own, Plumbing, Own].into_iter()), 2);
        assert_eq!(telling([Plumbing, Plumbing, Library, Library].into_iter()), 2);
        assert_eq!(telling([Plumbing, Plumbing].into_iter()), 0);
        assert_eq!(telling(std::iter::empty()), 0);
    }
}
