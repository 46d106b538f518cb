//! A file that appears under its name only when it is complete.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};

use super::error::ExportError;

/// A file that is being written and has no name yet: however the program ends, nothing remains of it.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    replaces: bool,
    out: BufWriter<fs::File>,
    /// The file's temporary name, if the file system does not support files without a name.
    meanwhile: Option<Meanwhile>,
}

/// A temporary name that is removed when this is dropped, unless it was released.
#[derive(Debug)]
struct Meanwhile(PathBuf);

impl Drop for Meanwhile {
    fn drop(&mut self) {
        // The file may already have been renamed.
        let _ = fs::remove_file(&self.0);
    }
}

impl AtomicFile {
    /// Starts a file that will be at `path`. An existing file is replaced if `replaces`.
    ///
    /// # Errors
    /// [`ExportError::Exists`], [`ExportError::Unwritable`].
    pub fn create(path: &Path, replaces: bool) -> Result<Self, ExportError> {
        if !replaces && fs::symlink_metadata(path).is_ok() {
            return Err(ExportError::Exists);
        }
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let mode = Mode::from_raw_mode(0o666);
        let (file, meanwhile) = match openat(CWD, folder, OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC, mode) {
            Ok(file) => (fs::File::from(file), None),
            Err(_) => {
                let name = beside(path);
                (fs::File::create_new(&name)?, Some(Meanwhile(name)))
            }
        };
        Ok(Self { path: path.to_owned(), replaces, out: BufWriter::with_capacity(1 << 18, file), meanwhile })
    }

    /// Gives the complete file its name.
    ///
    /// # Errors
    /// [`ExportError::Exists`] if another file has the name by now, [`ExportError::Unwritable`].
    pub fn finish(self) -> Result<(), ExportError> {
        let Self { path, replaces, out, meanwhile } = self;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        let link = |name: &Path| match &meanwhile {
            None => linkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), CWD, name, AtFlags::SYMLINK_FOLLOW),
            Some(Meanwhile(before)) => linkat(CWD, before, CWD, name, AtFlags::empty()),
        };
        match link(&path).map_err(io::Error::from) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
            Err(_) if !replaces => Err(ExportError::Exists),
            Err(_) => {
                let name = Meanwhile(beside(&path).with_extension("new"));
                link(&name.0).map_err(io::Error::from)?;
                Ok(fs::rename(&name.0, &path)?)
            }
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A unique name in the same folder that tells that the file is incomplete.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_there_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.csv");
        let mut file = AtomicFile::create(&path, false).unwrap();
        file.write_all(b"half").unwrap();
        assert!(!path.exists());
        drop(file);
        assert_eq!(names(folder.path()), Vec::<String>::new());
        let mut file = AtomicFile::create(&path, false).unwrap();
        file.write_all(b"whole").unwrap();
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(folder.path()), ["x.csv"]);
    }

    #[test]
    fn a_file_that_is_there_is_replaced_only_where_that_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.csv");
        let late = AtomicFile::create(&path, false).unwrap();
        fs::write(&path, "mine").unwrap();
        assert!(matches!(AtomicFile::create(&path, false), Err(ExportError::Exists)));
        assert!(matches!(late.finish(), Err(ExportError::Exists)), "it came while the export was under way");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        let mut file = AtomicFile::create(&path, true).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["x.csv"]);
    }
}
