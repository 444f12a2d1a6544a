//! Real data: a tar archive of files that every machine has.

use super::role;
use crate::failure::{Exit, Failure};
use crate::recv::hexadecimal;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The archive, in a temporary file without a name: it vanishes with this process, however that ends.
pub struct Input {
    file: File,
    /// What it was made of.
    pub source: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, hexadecimal.
    pub sha256: String,
}

impl Input {
    /// Archives `source` (none: the Rust toolchain, or /usr) up to `bytes_max`.
    pub fn make(source: Option<&Path>, bytes_max: u64) -> Result<Self, Failure> {
        let source = source.map_or_else(source_default, Path::to_path_buf);
        if !source.is_dir() {
            return Err(Failure::new(Exit::Usage, format!("--source {}: is no folder", source.display())));
        }
        let mut input = Input { file: nameless_file()?, source, bytes: 0, sha256: String::new() };
        let mut tar = archive(&input.source)?;
        let filled = input.fill(tar.stdout.take().expect("the output of tar is piped"), bytes_max);
        // Past the limit tar still runs; how it ends does not matter then.
        let _ = tar.kill();
        let _ = tar.wait();
        filled?;
        Ok(input)
    }

    /// A path at which the roles, other processes of the same user, can open it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    fn fill(&mut self, archive: impl Read, bytes_max: u64) -> Result<(), Failure> {
        let named = |error: std::io::Error| Failure::failed(format!("input of the demo: {error}"));
        let mut archive = archive.take(bytes_max);
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            let length = archive.read(&mut buffer).map_err(named)?;
            if length == 0 {
                break;
            }
            digest.update(&buffer[..length]);
            self.file.write_all(&buffer[..length]).map_err(named)?;
            self.bytes += length as u64;
        }
        self.sha256 = hexadecimal(&digest.finalize());
        Ok(())
    }
}

fn nameless_file() -> Result<File, Failure> {
    let path =
        std::env::temp_dir().join(format!("polyrail-demo-{}-{}.tar", std::process::id(), role::now_us()));
    let named = |error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(named)?;
    std::fs::remove_file(&path).map_err(named)?;
    Ok(file)
}

fn archive(source: &Path) -> Result<Child, Failure> {
    // Files that change or may not be read are left out: any bytes will do, so long as they are real.
    let mut tar = Command::new("tar");
    tar.args(["--create", "--ignore-failed-read", "--warning=none", "--file=-", "--directory"])
        .arg(source)
        .arg(".");
    tar.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    tar.spawn().map_err(|error| Failure::new(Exit::Unavailable, format!("tar: {error}")))
}

/// The toolchain that built this program, where it can be found.
fn source_default() -> PathBuf {
    let asked = Command::new("rustc").args(["--print", "sysroot"]).stdin(Stdio::null()).output();
    let sysroot = asked.ok().filter(|output| output.status.success());
    let sysroot = sysroot.and_then(|output| String::from_utf8(output.stdout).ok());
    let sysroot = sysroot.map(|text| PathBuf::from(text.trim()));
    sysroot.filter(|path| path.is_dir() && path != Path::new("/usr")).unwrap_or_else(|| PathBuf::from("/usr"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_limited_hashed_and_can_be_opened_by_its_path() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"));
        let input = Input::make(Some(source), 10_000).unwrap();
        let bytes = std::fs::read(input.path()).unwrap();
        assert_eq!((bytes.len(), input.bytes), (10_000, 10_000));
        assert_eq!(input.sha256, hexadecimal(&Sha256::digest(&bytes)));
    }

    #[test]
    fn a_source_that_is_no_folder_is_refused() {
        let failure = Input::make(Some(Path::new("/no/such")), 1).err().unwrap();
        assert_eq!(failure.exit, Exit::Usage);
    }
}
