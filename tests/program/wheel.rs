//! The Python package and its wheel: installed into a clean environment, offline, and used there. Skipped without
//! Python.
//!
//! The wheel is packed here from the binary under test (`tests/wheel/pack.py`); `VRAMLAB_TEST_WHEEL` names another one
//! to test. Estimates need PyTorch: that of the Python in `VRAMLAB_TEST_PYTHON`, else of `python3`.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// No command here takes nearly this long, however busy the machine is.
const DEADLINE: Duration = Duration::from_secs(900);

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The result of a command: whether it succeeded, and its output.
fn ended(command: &mut Command) -> (bool, String) {
    let (mut reader, writer) = std::io::pipe().unwrap();
    command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
    for name in ["PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"] {
        if !command.get_envs().any(|(given, _)| given == name) {
            command.env_remove(name);
        }
    }
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("XDG_CONFIG_HOME", "/nonexistent");
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return (false, error.to_string()),
    };
    // The command object holds the pipe's other end, too.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let said = std::thread::spawn(move || {
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    let until = Instant::now() + DEADLINE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("{command:?} still runs after {DEADLINE:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    (status.success(), said.join().unwrap())
}

fn run(program: impl AsRef<OsStr>, arguments: &[&OsStr]) -> (bool, String) {
    ended(Command::new(program).args(arguments))
}

/// A Python that the package supports; says so if there is none.
fn python() -> Option<PathBuf> {
    let given = std::env::var_os("VRAMLAB_TEST_PYTHON").filter(|path| !path.is_empty());
    let path = given.map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let asks = "import sys; sys.exit('it is older than 3.9' if sys.version_info < (3, 9) else 0)";
    let (is_one, why) = run(&path, &["-c".as_ref(), asks.as_ref()]);
    if !is_one {
        eprintln!("SKIPPED: no Python to test the package with: {}: {}", path.display(), why.trim());
    }
    is_one.then_some(path)
}

#[test]
fn the_package_says_what_it_should() {
    let Some(python) = python() else { return };
    let mut tests = Command::new(python);
    tests.args(["-m", "unittest", "discover", "--pattern", "test_*.py", "--start-directory"]).arg(file("tests/wheel"));
    let (passed, said) = ended(tests.env("PYTHONPATH", file("lab/python")));
    assert!(passed, "{said}");
    assert!(!said.contains("Ran 0 tests"), "{said}");
}

/// A clean environment with the wheel in it; says so if there can't be one. PyTorch and cloudpickle come from `python`,
/// if it has them.
fn environment(python: &Path, folder: &Path) -> Option<PathBuf> {
    let place = folder.join("environment");
    let (made, why) = run(python, &["-m".as_ref(), "venv".as_ref(), place.as_ref()]);
    if !made {
        eprintln!("SKIPPED: this Python makes no environments: {}", why.trim());
        return None;
    }
    let own = place.join("bin/python");
    let (has_pip, why) = run(&own, &["-m".as_ref(), "pip".as_ref(), "--version".as_ref()]);
    if !has_pip {
        eprintln!("SKIPPED: there is no pip in a new environment: {}", why.trim());
        return None;
    }
    let wheel = match std::env::var_os("VRAMLAB_TEST_WHEEL").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => packed(&own, folder),
    };
    let mut install = Command::new(&own);
    install
        .args(["-m", "pip", "install", "--no-index", "--no-deps", "--quiet", "--disable-pip-version-check"])
        .arg(&wheel);
    let (installed, said) = ended(&mut install);
    assert!(installed, "{}: {said}", wheel.display());
    lend(python, &own);
    Some(own)
}

fn packed(python: &Path, folder: &Path) -> PathBuf {
    let mut pack = Command::new(python);
    pack.arg(file("tests/wheel/pack.py")).arg(file("lab/python/pyproject.toml"));
    pack.args([env!("CARGO_BIN_EXE_vramlab"), env!("CARGO_PKG_VERSION")]).arg(folder);
    let (is_packed, said) = ended(&mut pack);
    assert!(is_packed, "{said}");
    PathBuf::from(said.trim())
}

/// Makes the packages of `python` available to the environment, after its own.
fn lend(python: &Path, own: &Path) {
    let asks = "import site, sys; print('\\n'.join(path for path in sys.path if path.endswith('-packages')))";
    let (known, folders) = run(python, &["-c".as_ref(), asks.as_ref()]);
    assert!(known, "{folders}");
    let asks = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let (known, place) = run(own, &["-c".as_ref(), asks.as_ref()]);
    assert!(known, "{place}");
    std::fs::write(Path::new(place.trim()).join("lent.pth"), folders).unwrap();
}

#[test]
fn the_wheel_is_installed_and_used_in_a_clean_environment() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(own) = environment(&python, folder.path()) else { return };
    let mut uses = Command::new(own);
    uses.arg(file("tests/wheel/installed.py")).arg(env!("CARGO_PKG_VERSION")).current_dir(&folder);
    let [scratch, runtime] = ["scratch", "runtime"].map(|name| folder.path().join(name));
    for place in [&scratch, &runtime] {
        std::fs::create_dir(place).unwrap();
    }
    let (works, said) = ended(uses.env("TMPDIR", &scratch).env("XDG_RUNTIME_DIR", &runtime));
    assert!(works, "{said}");
    for line in said.lines().filter(|line| line.starts_with("SKIPPED") || line.starts_with("estimated")) {
        eprintln!("{line}");
    }
    let entries = [scratch, runtime.join("vramlab-watch")].map(|place| std::fs::read_dir(place).into_iter().flatten());
    let names = entries.into_iter().flatten().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    // PyTorch keeps folders of its own there.
    let left: Vec<_> = names.filter(|name| !name.starts_with("torch")).collect();
    assert!(left.is_empty(), "estimates leave {left:?} behind");
}
