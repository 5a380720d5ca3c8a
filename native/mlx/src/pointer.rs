//! Memory that others name: an address of this process, or a segment that processes share.
//!
//! Nobody vouches for what they name. So the kernel does the reading, which answers with an error
//! where touching the memory would end the process, and what is read is a copy.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::raw::{c_int, c_uint};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::stream::Streams;
use crate::worker::Input;

const OP: &str = "from_pointer";

/// The most that is asked of the kernel at once.
const CHUNK: usize = 256 << 20;
/// What a pipe holds where nobody has made it smaller.
const PIPE: usize = 64 << 10;
/// The longest name of a segment, the slash left out.
const NAME: usize = if cfg!(target_os = "macos") { 30 } else { 255 };

/// Computes the array of `input`, makes it contiguous, and answers its address and its size in
/// bytes. The array stays at that address until it is given up. For the worker.
pub fn address(input: &Input, streams: &Streams) -> Result<(usize, usize)> {
    let bytes = input.get()?.bytes(None, streams)?;
    let place = (bytes.as_ptr() as usize, bytes.len());
    input.replace(bytes.into_array());
    Ok(place)
}

/// Copies the array of `input` to a segment of shared memory, which goes when the array is given
/// up, and answers the segment's name and its size in bytes. For the worker.
pub fn share(input: &Input, permissions: u32, streams: &Streams) -> Result<(String, usize)> {
    let bytes = input.get()?.bytes(None, streams)?;
    let segment = Segment::create(&bytes, permissions)?;
    let named = (segment.name().to_owned(), bytes.len());
    input.attach(segment);
    Ok(named)
}

/// An array with a copy of the memory at `address`. For the worker.
pub fn from_address(address: u64, shape: &Shape, dtype: Dtype, streams: &Streams) -> Result<Array> {
    Array::filled(OP, shape, dtype, streams, |bytes| {
        read(bytes, address, peek).map_err(|error| {
            let len = bytes.len();
            refused(format!(
                "the {len} bytes at address {address:#x} cannot be read: {error}. The memory must \
                 belong to this process, and must not have been freed"
            ))
        })
    })
}

/// An array with a copy of the segment that is called `name`, or of its beginning. For the worker.
pub fn from_shared(name: &str, shape: &Shape, dtype: Dtype, streams: &Streams) -> Result<Array> {
    let path = checked(name)?;
    let file = open(&path, libc::O_RDONLY | NONBLOCK, 0).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::NotFound => {
                ". It goes with the tensor that it was made of: hold on to that tensor"
            }
            io::ErrorKind::PermissionDenied => {
                ". Its owner decides who may read it, by the option :permissions of Nx.to_pointer/2"
            }
            _ => "",
        };
        refused(format!(
            "the shared memory {name:?} cannot be opened: {error}{why}"
        ))
    })?;
    let unreadable = |error| {
        refused(format!(
            "the shared memory {name:?} cannot be read: {error}"
        ))
    };
    let found = file.metadata().map_err(unreadable)?;
    // macOS gives a segment no type.
    if cfg!(target_os = "linux") && !found.is_file() {
        return Err(refused(format!("{name:?} is not shared memory")));
    }
    let (has, takes) = (found.len(), shape.size() * dtype.size());
    if has < takes as u64 {
        return Err(refused(format!(
            "the shared memory {name:?} has {has} bytes, and {takes} are asked for"
        )));
    }
    Array::filled(OP, shape, dtype, streams, |bytes| {
        read_open(&file, bytes).map_err(unreadable)
    })
}

fn refused(message: String) -> Error {
    Error::invalid(OP, message)
}

type Peek = fn(usize, &mut [u8]) -> Option<usize>;

/// Copies what is at `address`: by `peek` as far as that goes, and then through a pipe.
fn read(bytes: &mut [u8], address: u64, peek: Peek) -> io::Result<()> {
    let fault = |_| io::Error::from_raw_os_error(libc::EFAULT);
    let address = usize::try_from(address).map_err(fault)?;
    let (mut done, mut pipe) = (0, None::<Pipe>);
    while done < bytes.len() {
        // There is memory up to here, so this is an address too.
        let from = address + done;
        let most = (bytes.len() - done).min(CHUNK);
        let into = &mut bytes[done..done + most];
        let peeked = if pipe.is_none() {
            peek(from, into)
        } else {
            None
        };
        done += match (peeked, &mut pipe) {
            (Some(done), _) => done,
            (None, Some(pipe)) => pipe.carry(from, into)?,
            (None, none) => none.insert(Pipe::new()?).carry(from, into)?,
        };
    }
    Ok(())
}

/// Copies a first part of what is at an address, at the speed of memory. Nothing where the system
/// does not let a process do that, or not with this memory, which need not mean that it is wrong:
/// a sandbox may forbid the call, and the driver of a GPU its pages.
#[cfg(target_os = "linux")]
fn peek(address: usize, into: &mut [u8]) -> Option<usize> {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut _,
        iov_len: into.len(),
    };
    // SAFETY: writes to `into` alone; where `remote` cannot be read, the kernel says so.
    let done = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    usize::try_from(done).ok().filter(|done| *done > 0)
}

#[cfg(not(target_os = "linux"))]
fn peek(_address: usize, _into: &mut [u8]) -> Option<usize> {
    None
}

/// What the kernel copies into a pipe, it has read as the process itself would.
struct Pipe {
    reader: io::PipeReader,
    writer: io::PipeWriter,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        // A pipe may be smaller than its usual size, and nobody else empties this one.
        // SAFETY: sets a flag of a descriptor that is open.
        let set = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { reader, writer })
    }

    /// Copies a first part of what is at `address`.
    fn carry(&mut self, address: usize, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(PIPE);
        let written = retry(|| {
            // SAFETY: where the address cannot be read, the kernel says so.
            unsafe { libc::write(self.writer.as_raw_fd(), address as *const _, most) }
        })?;
        let mut done = 0;
        while done < written {
            let rest = &mut into[done..written];
            done += retry(|| {
                // SAFETY: writes to `rest` alone.
                unsafe {
                    libc::read(
                        self.reader.as_raw_fd(),
                        rest.as_mut_ptr().cast(),
                        rest.len(),
                    )
                }
            })?;
        }
        Ok(done)
    }
}

/// The result of a call that a signal may interrupt.
fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(done) = usize::try_from(call()) {
            return Ok(done);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The segments of this process: a process that ends takes them along.
static SEGMENTS: Mutex<BTreeSet<CString>> = Mutex::new(BTreeSet::new());

fn segments() -> MutexGuard<'static, BTreeSet<CString>> {
    SEGMENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what segments there are. For the end of the process.
pub(crate) fn remove_segments() {
    for name in std::mem::take(&mut *segments()) {
        unlink(&name);
    }
}

/// A segment of shared memory with a copy of some bytes. Its name goes with it; who has opened it
/// by then can still read it.
#[derive(Debug)]
pub struct Segment {
    name: CString,
}

impl Segment {
    /// A segment that only those may open whom `permissions`, the mode of a file, allows to.
    pub fn create(bytes: &[u8], permissions: u32) -> Result<Self> {
        let failed = |error: io::Error| {
            let len = bytes.len();
            let why = match error.kind() {
                io::ErrorKind::StorageFull => {
                    ". Deallocate tensors that are shared, or give the system more, /dev/shm on Linux"
                }
                _ => "",
            };
            Error::invalid(
                "to_pointer",
                format!("no shared memory of {len} bytes can be had: {error}{why}"),
            )
        };
        // Noted first: an exit in between still removes it.
        let segment = Self {
            name: random_name().map_err(failed)?,
        };
        segments().insert(segment.name.clone());
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        let file = open(&segment.name, flags, permissions & 0o777).map_err(failed)?;
        write_open(&file, bytes, permissions & 0o777).map_err(failed)?;
        Ok(segment)
    }

    /// What others open it by.
    pub fn name(&self) -> &str {
        self.name.to_str().unwrap_or_default()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        segments().remove(&self.name);
        unlink(&self.name);
    }
}

fn unlink(name: &CString) {
    // SAFETY: the name is a C string. That somebody else removed it already is no concern here.
    unsafe { libc::shm_unlink(name.as_ptr()) };
}

/// Nobody can guess it, or be there first.
fn random_name() -> io::Result<CString> {
    let mut random = [0u8; 12];
    // SAFETY: writes to the array alone.
    if unsafe { libc::getentropy(random.as_mut_ptr().cast(), random.len()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(CString::new(format!("/mlx-{digits}"))?)
}

/// Other backends leave the slash out, which most systems put up with.
fn checked(name: &str) -> Result<CString> {
    let rest = name.strip_prefix('/').unwrap_or(name);
    let wrong = || {
        refused(format!(
            "{name:?} is not a name of shared memory: a slash and 1 to {NAME} bytes, \
             with neither another slash nor a zero among them"
        ))
    };
    if rest.is_empty() || rest.len() > NAME || rest.contains('/') {
        return Err(wrong());
    }
    CString::new(name).map_err(|_| wrong())
}

fn open(name: &CString, flags: c_int, permissions: u32) -> io::Result<File> {
    // SAFETY: the name is a C string.
    let descriptor = unsafe { libc::shm_open(name.as_ptr(), flags, permissions as c_uint) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and nobody else's.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

// Linux reads and writes segments as files. What a mapping of one answers with a signal, that its
// owner has cut it short or that there is no memory left, is an error there.
#[cfg(target_os = "linux")]
use as_file::{NONBLOCK, read_open, write_open};

#[cfg(target_os = "linux")]
mod as_file {
    use super::c_int;
    use std::fs::{File, Permissions};
    use std::io::{self, Read, Write};
    use std::os::unix::fs::PermissionsExt;

    /// The name may be that of a pipe, whose opening would wait for a writer.
    pub(super) const NONBLOCK: c_int = libc::O_NONBLOCK;

    pub(super) fn read_open(mut file: &File, bytes: &mut [u8]) -> io::Result<()> {
        file.read_exact(bytes)
    }

    pub(super) fn write_open(mut file: &File, bytes: &[u8], permissions: u32) -> io::Result<()> {
        // Those of the opening are cut by the process's mask.
        file.set_permissions(Permissions::from_mode(permissions))?;
        file.write_all(bytes)
    }
}

// Elsewhere only a mapping reaches them. macOS lets a segment's size be set once, so that a mapping
// stays whole.
#[cfg(not(target_os = "linux"))]
use as_mapping::{NONBLOCK, read_open, write_open};

#[cfg(not(target_os = "linux"))]
mod as_mapping {
    use super::c_int;
    use std::ffi::c_void;
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;

    pub(super) const NONBLOCK: c_int = 0;

    struct Mapping {
        data: *mut c_void,
        len: usize,
    }

    impl Mapping {
        fn new(file: &File, len: usize, protection: c_int) -> io::Result<Self> {
            // SAFETY: maps an open descriptor wherever the system likes.
            let data = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    len,
                    protection,
                    libc::MAP_SHARED,
                    file.as_raw_fd(),
                    0,
                )
            };
            if data == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            Ok(Self { data, len })
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: the mapping is this one's, and used no more.
            unsafe { libc::munmap(self.data, self.len) };
        }
    }

    pub(super) fn read_open(file: &File, bytes: &mut [u8]) -> io::Result<()> {
        if !bytes.is_empty() {
            let mapping = Mapping::new(file, bytes.len(), libc::PROT_READ)?;
            // SAFETY: as many bytes are mapped as are copied, and the segment has as many.
            unsafe {
                std::ptr::copy_nonoverlapping(mapping.data.cast(), bytes.as_mut_ptr(), bytes.len())
            };
        }
        Ok(())
    }

    pub(super) fn write_open(file: &File, bytes: &[u8], _permissions: u32) -> io::Result<()> {
        if !bytes.is_empty() {
            file.set_len(bytes.len() as u64)?;
            let mapping = Mapping::new(file, bytes.len(), libc::PROT_READ | libc::PROT_WRITE)?;
            // SAFETY: as many bytes are mapped as are copied, and nobody else has them yet.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), mapping.data.cast(), bytes.len())
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_a_slash_and_a_few_bytes() {
        for good in ["/a", "a", "/mlx-0123456789abcdef01234567"] {
            assert!(checked(good).is_ok(), "{good}");
        }
        let long = "a".repeat(NAME + 1);
        for bad in ["", "/", "//a", "a/b", "/a/", "/a\0b", &long] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel to read memory")]
    fn a_pipe_carries_what_cannot_be_peeked_at() {
        let source: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
        let address = source.as_ptr() as u64;
        let none: Peek = |_, _| None;
        // Half of it goes the fast way, and the rest must not.
        let some: Peek = |from, into| {
            let most = into.len().min(1000);
            peek(from, &mut into[..most]).filter(|_| into.len() > 150_000)
        };
        for peek in [none, some] {
            let mut bytes = vec![0; source.len()];
            assert!(read(&mut bytes, address, peek).is_ok());
            assert_eq!(bytes, source);
            for wrong in [0, 4096, u64::MAX - 10, u64::MAX] {
                let error = read(&mut [0; 100], wrong, peek).err();
                assert_eq!(error.and_then(|e| e.raw_os_error()), Some(libc::EFAULT));
            }
        }
    }
}
