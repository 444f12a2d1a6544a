//! Files that results go to, such as that of `--csv`: found out before anything is measured whether it can be written, written whole or not
//! at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::args::{BenchArgs, KeepArgs};
use crate::report::Report;

/// Where the CSV form goes.
#[derive(Debug)]
pub(super) enum Csv {
    /// Nowhere.
    Unwanted,
    /// To standard output, instead of the table.
    Output,
    /// To this file, what links to it followed.
    File(PathBuf),
}

impl Csv {
    /// What the arguments ask for; the error is one line for the user.
    pub(super) fn prepare(args: &BenchArgs) -> Result<Self, String> {
        let KeepArgs { csv, journal } = &args.keep;
        let path = match csv {
            None => return Ok(Self::Unwanted),
            Some(_) if to_output(&args.keep) && args.json => {
                return Err("--csv - and --json both want standard output: give --csv a file".to_owned());
            }
            Some(_) if to_output(&args.keep) => return Ok(Self::Output),
            Some(path) => path,
        };
        let target = prepared("--csv", path)?;
        if let Some(journal) = journal
            && self::target(journal).is_ok_and(|journal| journal == target)
        {
            return Err(format!("--csv and --journal both name {}: give each its own", path.display()));
        }
        Ok(Self::File(target))
    }

    /// Writes the samples, if a file is to have them.
    pub(super) fn write(&self, report: &Report) -> Result<(), String> {
        match self {
            Self::File(path) => {
                replace(path, &report.csv()).map_err(|error| format!("--csv {}: {error}", path.display()))
            }
            Self::Unwanted | Self::Output => Ok(()),
        }
    }
}

/// Whether standard output is to have the CSV form.
pub(super) fn to_output(keep: &KeepArgs) -> bool {
    keep.csv.as_deref() == Some(Path::new("-"))
}

/// What is to be written in the end, if it can be.
pub(super) fn prepared(flag: &str, path: &Path) -> Result<PathBuf, String> {
    let told = |error: io::Error| format!("{flag} {}: {error}", path.display());
    let target = target(path).map_err(told)?;
    try_beside(&target).map_err(told)?;
    Ok(target)
}

/// Whether a file can be put there.
pub(super) fn is_writable(path: &Path) -> io::Result<()> {
    try_beside(&target(path)?)
}

/// Only trying says whether a file can be made there. It does not stay: a run may take hours and be killed.
fn try_beside(target: &Path) -> io::Result<()> {
    let (file, name) = beside(target)?;
    drop(file);
    fs::remove_file(name)
}

/// The file itself behind any links, so that renaming replaces it and no link or device.
pub(super) fn target(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Ok(target) if target.is_file() => Ok(target),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "is no ordinary file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Ok(fs::canonicalize(folder.unwrap_or(Path::new(".")))?.join(name))
        }
        Err(error) => Err(error),
    }
}

/// Puts `text` in the place of the file: a reader sees the old one or the new one, never a part.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let (mut file, name) = beside(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let renamed = written.and_then(|()| fs::rename(&name, path));
    if renamed.is_err() {
        // What failed is told; that its remains could not be removed would say no more.
        let _ = fs::remove_file(&name);
    }
    renamed
}

/// A new file in the same folder.
fn beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let name = path.with_file_name(name);
    // One of this name can only be left over from a process that had this number before.
    Ok((File::create(&name)?, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::tests::parse;

    /// A folder that vanishes with the value.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("polyrail-keep-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
        fn file(&self, name: &str) -> String {
            self.0.join(name).to_str().unwrap().to_owned()
        }
        fn names(&self) -> Vec<String> {
            let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
            names.map(|name| name.into_string().unwrap()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn prepare(rest: &str) -> Result<Csv, String> {
        Csv::prepare(&parse(&format!("stream {rest}")).unwrap())
    }

    #[test]
    fn what_cannot_be_written_is_found_out_before_measuring() {
        let folder = Folder::new("before");
        for wrong in
            [folder.file("none/out.csv"), folder.file(""), "/dev/null".to_owned(), "/proc/x".to_owned()]
        {
            let said = prepare(&format!("--csv {wrong}")).unwrap_err();
            assert!(said.starts_with(&format!("--csv {wrong}: ")) && said.lines().count() == 1, "{said}");
        }
        assert!(prepare("--csv - --json").unwrap_err().contains("--json"));
        let both = folder.file("x");
        assert!(prepare(&format!("--csv {both} --journal {both}")).unwrap_err().contains("--journal"));
        assert!(prepare(&format!("--csv {both}")).is_ok());
        assert_eq!(folder.names().len(), 0, "trying leaves nothing");
    }

    #[test]
    fn a_file_is_replaced_whole_also_behind_a_link() {
        let folder = Folder::new("whole");
        let (real, link) = (folder.file("real.csv"), folder.file("link.csv"));
        fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink("real.csv", &link).unwrap();
        prepare(&format!("--csv {link}")).unwrap().write(&Report::new()).unwrap();
        assert!(fs::read_to_string(&real).unwrap().starts_with("workload,protocol,"));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(folder.names().len(), 2);
    }

    #[test]
    fn a_folder_that_vanished_meanwhile_is_told() {
        let folder = Folder::new("vanished");
        let csv = prepare(&format!("--csv {}", folder.file("out.csv"))).unwrap();
        drop(folder);
        assert!(csv.write(&Report::new()).unwrap_err().starts_with("--csv "));
    }
}
