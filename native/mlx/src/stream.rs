//! Devices, and the streams on which a thread of ours puts work.

use std::marker::PhantomData;

use mlx_ffi as ffi;

use crate::error::{Error, Result, check};
use crate::version;

/// Where arrays are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Device {
    /// The processor.
    Cpu,
    /// The GPU of this index.
    Gpu(u32),
}

impl Device {
    fn raw(self) -> ffi::mlx_device {
        let (kind, index) = match self {
            Self::Cpu => (ffi::MLX_CPU, 0),
            Self::Gpu(index) => (ffi::MLX_GPU, i32::try_from(index).unwrap_or(i32::MAX)),
        };
        // SAFETY: makes a handle from two numbers.
        unsafe { ffi::mlx_device_new_type(kind, index) }
    }

    /// How many GPUs MLX can use here.
    pub fn gpu_count() -> u32 {
        let (mut cuda, mut metal, mut count) = (false, false, 0);
        // SAFETY: each writes to one live place.
        unsafe {
            ffi::mlx_cuda_is_available(&mut cuda);
            ffi::mlx_metal_is_available(&mut metal);
            if cuda || metal {
                ffi::mlx_device_count(&mut count, ffi::MLX_GPU);
            }
        }
        u32::try_from(count).unwrap_or(0)
    }

    /// Whether MLX can compute on it here.
    pub fn is_available(self) -> bool {
        match self {
            Self::Cpu => true,
            Self::Gpu(index) => index < Self::gpu_count(),
        }
    }
}

/// A queue of work of one device. MLX keeps what belongs to a stream per thread, so a stream never
/// leaves the thread that made it.
#[derive(Debug)]
pub struct Stream {
    raw: ffi::mlx_stream,
    /// The device it runs on.
    pub device: Device,
    not_send: PhantomData<*const ()>,
}

impl Stream {
    /// A new stream of this thread.
    pub fn new(device: Device) -> Result<Self> {
        if let Device::Gpu(index) = device
            && !device.is_available()
        {
            let count = Device::gpu_count();
            let message = format!("{{:gpu, {index}}} is not there; MLX finds {count} GPUs here");
            return Err(Error::invalid("device", message));
        }
        let handle = device.raw();
        // SAFETY: the handle is live; it is freed after its last use.
        let raw = unsafe { ffi::mlx_stream_new_device(handle) };
        // SAFETY: as above.
        unsafe { ffi::mlx_device_free(handle) };
        if raw.ctx.is_null() {
            return Err(Error::native("stream"));
        }
        let not_send = PhantomData;
        Ok(Self {
            raw,
            device,
            not_send,
        })
    }

    /// Makes it what MLX uses on this thread where a stream is not named, which evaluation does.
    fn make_default(&self) -> Result<()> {
        // SAFETY: the handle is live.
        check(unsafe { ffi::mlx_set_default_stream(self.raw) }, "stream")
    }

    fn synchronize(&self) {
        // SAFETY: the handle is live. What was computed in vain is of no interest here.
        unsafe { ffi::mlx_synchronize(self.raw) };
    }

    pub(crate) fn raw(&self) -> ffi::mlx_stream {
        self.raw
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the handle is live and used no more.
        unsafe { ffi::mlx_stream_free(self.raw) };
    }
}

/// The streams of a worker: its device's, and the CPU's for what a GPU lacks.
#[derive(Debug)]
pub struct Streams {
    /// The device's own.
    pub main: Stream,
    /// For f64 and linear algebra, where the device is a GPU.
    pub cpu: Option<Stream>,
}

impl Streams {
    /// The streams of a worker of `device`, on this thread.
    pub fn new(device: Device) -> Result<Self> {
        version::check()?;
        let cpu = match device {
            Device::Cpu => None,
            Device::Gpu(_) => Some(Stream::new(Device::Cpu)?),
        };
        if let Some(cpu) = &cpu {
            cpu.make_default()?;
        }
        let main = Stream::new(device)?;
        main.make_default()?;
        Ok(Self { main, cpu })
    }

    /// Waits for what is being computed.
    pub(crate) fn synchronize(&self) {
        self.main.synchronize();
        if let Some(cpu) = &self.cpu {
            cpu.synchronize();
        }
    }

    /// The CPU's stream if `needs_cpu`, else the device's.
    pub fn pick(&self, needs_cpu: bool) -> &Stream {
        match &self.cpu {
            Some(cpu) if needs_cpu => cpu,
            _ => &self.main,
        }
    }
}
