//! The one place that talks to the driver.
//!
//! Launching a kernel is unsafe because nothing checks what it reads and writes. Here each
//! kernel has a function that first asks every buffer for the range that the kernel
//! addresses, by the same sizes that it passes on; a range that does not exist is an error, so
//! that no kernel can leave its buffers whatever it is called with. All work goes through one
//! stream, in order, and buffers are freed in that order too.

// Longer than 700 lines: all unsafe code of the GPU is here, each launch beside the checks that make it
// sound.

use crate::PTX;
use crate::error::{Error, Result};
use cudarc::driver::sys::{CUdevice_attribute, CUevent_flags, CUfunction_attribute};
use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr,
    PinnedHostSlice, ValidAsZeroBits, result, sys,
};
use cudarc::nvrtc::Ptx;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

/// Threads of a block, in every kernel but those that score many sequences.
const THREADS: usize = 256;
/// Threads of a block that scores many sequences.
const MANY_THREADS: usize = 512;
/// Units of a block of the recurrence.
pub(crate) const UNITS: usize = 16;
/// Rows and columns of a tile of a product.
const TILE: usize = 128;

/// A GPU, ready to run the kernels.
#[derive(Debug)]
pub struct Gpu {
    stream: Arc<CudaStream>,
    module: Arc<CudaModule>,
    functions: BTreeMap<String, CudaFunction>,
    name: String,
    /// Multiprocessors.
    pub(crate) blocks: usize,
    /// Shared memory that a block can have, in bytes.
    pub(crate) shared: usize,
}

/// A moment in the stream of work.
#[derive(Debug)]
pub struct Moment(CudaEvent);

impl Moment {
    /// Milliseconds from this moment to a later one, on the GPU's clock.
    pub fn milliseconds_to(&self, later: &Moment) -> Result<f32> {
        Ok(self.0.elapsed_ms(&later.0)?)
    }

    /// Waits until the GPU has come to it.
    pub(crate) fn wait(&self) -> Result<()> {
        Ok(self.0.synchronize()?)
    }
}

/// Numbers on the GPU. When it must grow, it loses its content.
#[derive(Debug)]
pub(crate) struct Buffer<T>(CudaSlice<T>);

impl<T: DeviceRepr + ValidAsZeroBits> Buffer<T> {
    pub(crate) fn zeros(gpu: &Gpu, len: usize) -> Result<Self> {
        let slice = gpu.stream.alloc_zeros(len.max(1));
        Ok(Buffer(slice.map_err(|e| gpu.explain(e))?))
    }

    /// Makes room for `len` numbers.
    pub(crate) fn reserve(&mut self, gpu: &Gpu, len: usize) -> Result<()> {
        if self.0.len() < len {
            // The old one first, so that both need not fit.
            *self = Buffer::zeros(gpu, 1)?;
            *self = Buffer::zeros(gpu, len)?;
        }
        Ok(())
    }

    /// The address of `len` numbers from `start` on.
    fn at(&self, gpu: &Gpu, start: usize, len: usize) -> Result<Argument> {
        let end = start.checked_add(len);
        if end.is_none_or(|end| end > self.0.len()) {
            return Err(Error::Driver(format!(
                "a kernel asked for {len} numbers from {start} on, of {}",
                self.0.len()
            )));
        }
        let (pointer, _) = self.0.device_ptr(&gpu.stream);
        Ok(Argument::Pointer(
            pointer + (start * std::mem::size_of::<T>()) as u64,
        ))
    }

    pub(crate) fn write(&mut self, gpu: &Gpu, values: &[T]) -> Result<()> {
        if values.len() > self.0.len() {
            return Err(Error::Driver(format!(
                "{} numbers do not fit into {}",
                values.len(),
                self.0.len()
            )));
        }
        Ok(gpu.stream.memcpy_htod(values, &mut self.0)?)
    }

    pub(crate) fn read(&self, gpu: &Gpu, values: &mut [T]) -> Result<()> {
        let Some(from) = self.0.try_slice(..values.len()) else {
            return Err(Error::Driver("more was asked for than there is".into()));
        };
        gpu.stream.memcpy_dtoh(&from, values)?;
        Ok(gpu.stream.synchronize()?)
    }

    /// Sets every bit of the first `len` numbers to `bit`.
    pub(crate) fn fill(&mut self, gpu: &Gpu, len: usize, bit: bool) -> Result<()> {
        let Argument::Pointer(pointer) = self.at(gpu, 0, len)? else {
            return Ok(());
        };
        let byte = if bit { 0xff } else { 0 };
        let bytes = len * std::mem::size_of::<T>();
        gpu.stream.context().bind_to_thread()?;
        // SAFETY: `at` checked that the range is ours; any bits are valid numbers.
        unsafe { result::memset_d8_async(pointer, byte, bytes, gpu.stream.cu_stream())? };
        Ok(())
    }
}

/// Where inputs wait on this side until the GPU has copied them, so that the host can go on.
#[derive(Debug)]
pub(crate) struct Waiting {
    slots: [Option<PinnedHostSlice<f32>>; 2],
    /// When the copy from each is done.
    copied: [Option<CudaEvent>; 2],
    next: usize,
}

impl Waiting {
    pub(crate) fn new() -> Self {
        Waiting {
            slots: [None, None],
            copied: [None, None],
            next: 0,
        }
    }

    /// Sends `values` on their way. Waits only where the copy before the last is not done yet.
    pub(crate) fn send(&mut self, gpu: &Gpu, values: &[f32], to: &mut Buffer<f32>) -> Result<()> {
        let (slot, copied) = (&mut self.slots[self.next], &mut self.copied[self.next]);
        self.next ^= 1;
        if let Some(copied) = copied.take() {
            copied.synchronize()?;
        }
        if slot.as_ref().is_none_or(|s| s.len() < values.len()) {
            *slot = None;
            // SAFETY: it is written before it is read; floats have no invalid bits.
            *slot = Some(unsafe { gpu.stream.context().alloc_pinned(values.len())? });
        }
        let Some(slot) = slot else { return Ok(()) };
        let slot = &mut slot.as_mut_slice()?[..values.len()];
        slot.copy_from_slice(values);
        to.reserve(gpu, slot.len())?;
        gpu.stream.memcpy_htod(slot, &mut to.0)?;
        *copied = Some(gpu.stream.record_event(None)?);
        Ok(())
    }
}

impl Drop for Waiting {
    /// What the GPU is still reading must not go.
    fn drop(&mut self) {
        for copied in self.copied.iter().flatten() {
            // It fails only where nothing runs any more.
            let _ = copied.synchronize();
        }
    }
}

/// Where results wait on this side: the GPU copies them here by itself.
#[derive(Debug)]
pub(crate) struct Arriving<T>(Option<PinnedHostSlice<T>>);

impl<T: DeviceRepr + ValidAsZeroBits + Copy + Default + Send + Sync> Arriving<T> {
    pub(crate) fn new() -> Self {
        Arriving(None)
    }

    /// Has the first `len` numbers of `from` copied, once all work before is done.
    pub(crate) fn ask(&mut self, gpu: &Gpu, from: &Buffer<T>, len: usize) -> Result<()> {
        if self.0.as_ref().is_none_or(|s| s.len() < len) {
            self.0 = None;
            // SAFETY: any bits are valid numbers. No flags: the usual ones make reading slow.
            let slot = unsafe {
                gpu.stream
                    .context()
                    .alloc_pinned_with_flags(len.max(1), 0)?
            };
            self.0 = Some(slot);
        }
        match (&mut self.0, from.0.try_slice(..len)) {
            (Some(to), Some(from)) => Ok(gpu.stream.memcpy_dtoh(&from, to)?),
            _ => Err(Error::Driver("more was asked for than there is".into())),
        }
    }

    /// The first `len` numbers. Wait for the copy first.
    pub(crate) fn take(&self, len: usize) -> Result<Vec<T>> {
        match &self.0 {
            Some(slot) if slot.len() >= len => Ok(copied(&slot.as_slice()?[..len])),
            _ => Err(Error::Driver("more was asked for than there is".into())),
        }
    }
}

/// A copy. New memory is slow when it is first touched, so several threads share a large one:
/// otherwise the GPU would wait for it.
fn copied<T: Copy + Default + Send + Sync>(from: &[T]) -> Vec<T> {
    const PART: usize = 1 << 20;
    if from.len() <= PART {
        return from.to_vec();
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = from.len().div_ceil(threads.min(8)).max(PART);
    // Zeros come untouched from the system.
    let mut to = vec![T::default(); from.len()];
    std::thread::scope(|scope| {
        for (to, from) in to.chunks_mut(part).zip(from.chunks(part)) {
            scope.spawn(|| to.copy_from_slice(from));
        }
    });
    to
}

/// What a kernel is given.
#[derive(Clone, Copy, Debug)]
enum Argument {
    Pointer(u64),
    Int(i32),
    Float(f32),
}

impl Argument {
    fn address(&mut self) -> *mut c_void {
        match self {
            Argument::Pointer(v) => std::ptr::from_mut(v).cast(),
            Argument::Int(v) => std::ptr::from_mut(v).cast(),
            Argument::Float(v) => std::ptr::from_mut(v).cast(),
        }
    }
}

/// A size as the kernels take it.
fn int(value: usize) -> Result<Argument> {
    let value = i32::try_from(value)
        .map_err(|_| Error::TooLarge(format!("{value} is more than the kernels can count")))?;
    Ok(Argument::Int(value))
}

/// How a kernel is spread over the GPU.
struct Spread {
    grid: (usize, usize, usize),
    threads: usize,
    shared: usize,
    /// Whether its blocks wait for each other, so that all must run at the same time.
    together: bool,
}

impl Spread {
    /// One thread for each of `n`.
    fn over(n: usize) -> Self {
        Spread::grid(n.div_ceil(THREADS), 1, 1)
    }

    fn grid(x: usize, y: usize, z: usize) -> Self {
        Spread {
            grid: (x, y, z),
            threads: THREADS,
            shared: 0,
            together: false,
        }
    }
}

/// The sizes of a recurrence over some sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recurrence {
    pub(crate) steps: usize,
    pub(crate) hidden: usize,
    /// Sequences of a slice, in eights: 1, 2, 4 or 8 layer by layer, of [`WAVE`] or [`MANY`] else.
    pub(crate) eights: usize,
    pub(crate) slices: usize,
    pub(crate) way: Way,
}

/// How the layers are gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// One after the other, a group of blocks for each slice.
    Layers,
    /// Both of two together, the second a step behind, a group of blocks for each slice.
    Wave,
    /// All by one block for each slice.
    Many,
}

/// Threads of a block of a wave.
const WAVE_THREADS: usize = 512;
/// Units of each layer of a wave.
pub(crate) const WAVE_UNITS: usize = 256;
/// Sequences of a slice of a wave, in eights: the cuts that there are.
pub(crate) const WAVE: [usize; 4] = [1, 2, 4, 8];

/// Sequences of a block that takes them through all layers, in eights: the cuts that there are.
pub(crate) const MANY: [usize; 5] = [2, 3, 4, 6, 9];

impl Recurrence {
    /// Sequences, with those that fill up the last slice.
    pub(crate) fn batch(&self) -> usize {
        self.slices * self.eights * 8
    }

    /// Rows: steps of sequences.
    pub(crate) fn rows(&self) -> usize {
        self.steps * self.batch()
    }

    fn groups(&self) -> usize {
        self.hidden / UNITS
    }

    /// The words of the rings, on the way forward and back.
    pub(crate) fn ring(&self, backward: bool) -> usize {
        let words = 2 * self.batch() * self.hidden;
        if backward {
            words * self.groups()
        } else {
            words
        }
    }

    /// How many blocks of the way forward a multiprocessor runs at the same time.
    pub(crate) fn twice(hidden: usize, eights: usize) -> usize {
        if hidden <= 256 && (eights == 2 || eights == 4) {
            2
        } else {
            1
        }
    }

    fn name(&self, which: &str) -> String {
        let depth = match self.hidden {
            0..=128 => 4,
            129..=256 => 8,
            _ => 16,
        };
        format!("{which}_{depth}_{}", self.eights)
    }

    /// Shared memory that the way forward needs: the states of a slice, and the sums.
    pub(crate) fn shared(hidden: usize, eights: usize) -> usize {
        let sequences = 8 * eights;
        hidden * sequences * 4 + 8 * sequences * (UNITS + 4) * 4
    }

    /// Shared memory of a block that takes this many eights through all layers: the states of each
    /// layer, and of one more.
    pub(crate) fn shared_by_many(hidden: usize, layers: usize, eights: usize) -> usize {
        (layers + 1) * hidden * 8 * eights * 4
    }

    /// Shared memory of a block of a wave: weights, the states of both layers, the cells, and inputs
    /// with their weights.
    pub(crate) fn shared_by_wave(features: usize, eights: usize) -> usize {
        let (states, features) = (
            8 * eights * WAVE_UNITS * 2 * 4,
            features.next_multiple_of(4),
        );
        (64 << 10) + states + (8 << 10) + (features + 2) * UNITS * 16 + 8 * eights * features * 4
    }

    fn spread(&self, shared: usize) -> Spread {
        Spread {
            grid: (self.groups(), self.slices, 1),
            threads: THREADS,
            shared,
            together: true,
        }
    }
}

impl Gpu {
    /// Opens GPU number `ordinal`, counted from 0.
    pub fn open(ordinal: usize) -> Result<Self> {
        // SAFETY: it only tries to load the driver's library, which must be trusted anyway.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoDriver);
        }
        result::init()?;
        let found = usize::try_from(CudaContext::device_count()?).unwrap_or(0);
        if ordinal >= found {
            return Err(Error::NoSuchGpu {
                asked: ordinal,
                found,
            });
        }
        let context = CudaContext::new(ordinal)?;
        let name = context.name()?;
        let (major, minor) = context.compute_capability()?;
        if major < 8 {
            return Err(Error::TooOld { name, major, minor });
        }
        let attribute = |which| -> Result<usize> {
            Ok(usize::try_from(context.attribute(which)?).unwrap_or(0))
        };
        let blocks = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let shared =
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let module = context
            .load_module(Ptx::from_src(PTX))
            .map_err(|e| Error::OldDriver(Error::from(e).to_string()))?;
        Ok(Gpu {
            stream: context.default_stream(),
            module,
            functions: BTreeMap::new(),
            name,
            blocks,
            shared,
        })
    }

    /// What the driver calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Free and total memory in bytes.
    pub(crate) fn memory(&self) -> Result<(usize, usize)> {
        Ok(self.stream.context().mem_get_info()?)
    }

    fn explain(&self, error: cudarc::driver::DriverError) -> Error {
        match (error.0, self.memory()) {
            (sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY, Ok((free, total))) => Error::Full {
                free: free >> 20,
                total: total >> 20,
            },
            _ => error.into(),
        }
    }

    /// Waits until all is done.
    pub fn wait(&self) -> Result<()> {
        Ok(self.stream.synchronize()?)
    }

    /// Marks this moment in the stream of work.
    pub fn moment(&self) -> Result<Moment> {
        let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
        Ok(Moment(self.stream.record_event(flags)?))
    }

    /// # Safety
    ///
    /// The arguments must be those that the kernel `name` takes, and its pointers must lead to
    /// as much memory as it addresses with them and with this spread.
    unsafe fn launch(
        &mut self,
        name: &str,
        spread: &Spread,
        arguments: &mut [Argument],
    ) -> Result<()> {
        if !self.functions.contains_key(name) {
            let function = self.module.load_function(name)?;
            self.functions.insert(name.into(), function);
        }
        let function = &self.functions[name];
        self.stream.context().bind_to_thread()?;
        if spread.shared > 48 << 10 {
            function.set_attribute(
                CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                i32::try_from(spread.shared).unwrap_or(i32::MAX),
            )?;
        }
        let size = |n: usize| {
            u32::try_from(n).map_err(|_| Error::TooLarge(format!("{n} blocks are too many")))
        };
        let (x, y, z) = spread.grid;
        let grid = (size(x)?, size(y)?, size(z)?);
        let mut addresses: Vec<*mut c_void> = arguments.iter_mut().map(Argument::address).collect();
        let (f, stream) = (function.cu_function(), self.stream.cu_stream());
        let (block, shared) = ((size(spread.threads)?, 1, 1), size(spread.shared)?);
        // SAFETY: the caller's promise; the driver has copied the arguments when it returns. A
        // cooperative launch is refused where not all blocks can run at the same time.
        unsafe {
            if spread.together {
                result::launch_cooperative_kernel(f, grid, block, shared, stream, &mut addresses)?;
            } else {
                result::launch_kernel(f, grid, block, shared, stream, &mut addresses)?;
            }
        }
        Ok(())
    }

    /// A layer over all steps.
    #[allow(clippy::too_many_arguments)] // the kernel's own
    pub(crate) fn forward(
        &mut self,
        sizes: Recurrence,
        parameters: &Buffer<f32>,
        weights: usize,
        projected: &Buffer<f32>,
        ring: &mut Buffer<u32>,
        states: &mut Buffer<f32>,
        kept: Option<(&mut Buffer<f32>, &mut Buffer<f32>)>,
    ) -> Result<()> {
        let (rows, hidden) = (sizes.rows(), sizes.hidden);
        ring.fill(self, sizes.ring(false), true)?;
        states.fill(self, sizes.batch() * hidden, false)?;
        let keep = kept.is_some();
        let (gates, cells) = match kept {
            Some((gates, cells)) => {
                cells.fill(self, sizes.batch() * hidden, false)?;
                (
                    gates.at(self, 0, rows * 4 * hidden)?,
                    cells.at(self, 0, (rows + sizes.batch()) * hidden)?,
                )
            }
            None => (Argument::Pointer(0), Argument::Pointer(0)),
        };
        let mut arguments = [
            parameters.at(self, weights, 4 * hidden * hidden)?,
            projected.at(self, 0, rows * 4 * hidden)?,
            ring.at(self, 0, sizes.ring(false))?,
            states.at(self, 0, (rows + sizes.batch()) * hidden)?,
            gates,
            cells,
            Argument::Int(i32::from(keep)),
            int(sizes.steps)?,
            int(hidden)?,
            int(sizes.batch())?,
        ];
        let spread = sizes.spread(Recurrence::shared(hidden, sizes.eights));
        // SAFETY: every range that the kernel addresses was asked for above; gates and
        // cells are not touched without `keep`.
        unsafe { self.launch(&sizes.name("forward"), &spread, &mut arguments) }
    }

    /// The recurrent weights of a layer, `[4 * hidden][hidden]`, as [`Gpu::many`] takes them. The
    /// layer sums over `depth` numbers in all; these are those from `first` on.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn pack_weights(
        &mut self,
        hidden: usize,
        parameters: &Buffer<f32>,
        weights: usize,
        packed: &mut Buffer<u32>,
        start: usize,
        first: usize,
        depth: usize,
    ) -> Result<()> {
        if first + hidden > depth {
            return Err(Error::Driver("weights beyond those of a layer".into()));
        }
        let mut arguments = [
            parameters.at(self, weights, 4 * hidden * hidden)?,
            packed.at(self, start, 4 * hidden * depth)?,
            int(hidden)?,
            int(first / 16)?,
            int(depth / 16)?,
        ];
        let threads = hidden / 8 * (hidden / 16) * 64;
        // SAFETY: every range that the kernel addresses was asked for above: a word per weight.
        unsafe { self.launch("pack_weights", &Spread::over(threads), &mut arguments) }
    }

    /// All layers over all steps, a block for each slice; only the states of the last are kept.
    #[allow(clippy::too_many_arguments)] // the kernel's own
    pub(crate) fn many(
        &mut self,
        sizes: Recurrence,
        (features, layers): (usize, usize),
        parameters: &Buffer<f32>,
        packed: &Buffer<u32>,
        inputs: &Buffer<f32>,
        cells: &mut Buffer<f32>,
        states: &mut Buffer<f32>,
    ) -> Result<()> {
        let (rows, hidden) = (sizes.rows(), sizes.hidden);
        let weights = 4 * hidden * (features + hidden + 1);
        let above = (layers - 1) * 4 * hidden * (2 * hidden + 1);
        let mut arguments = [
            parameters.at(self, 0, weights + above)?,
            packed.at(self, 0, 4 * hidden * hidden * (2 * layers - 1))?,
            inputs.at(self, 0, rows * features)?,
            cells.at(self, 0, sizes.batch() * layers * hidden)?,
            states.at(self, 0, (rows + sizes.batch()) * hidden)?,
            int(sizes.steps)?,
            int(features)?,
            int(hidden)?,
            int(layers)?,
            int(sizes.batch())?,
        ];
        let spread = Spread {
            threads: MANY_THREADS,
            shared: Recurrence::shared_by_many(hidden, layers, sizes.eights),
            ..Spread::grid(sizes.slices, 1, 1)
        };
        // SAFETY: every range that the kernel addresses was asked for above; cells are written at
        // the first step before they are read.
        unsafe { self.launch(&format!("many_{}", sizes.eights), &spread, &mut arguments) }
    }

    /// Two layers over all steps; only the states of the second are kept.
    #[allow(clippy::too_many_arguments)] // the kernel's own
    pub(crate) fn wave(
        &mut self,
        sizes: Recurrence,
        features: usize,
        parameters: &Buffer<f32>,
        inputs: &Buffer<f32>,
        ring: &mut Buffer<u32>,
        states: &mut Buffer<f32>,
    ) -> Result<()> {
        let (rows, hidden) = (sizes.rows(), sizes.hidden);
        if hidden != WAVE_UNITS {
            return Err(Error::Driver("a wave is of layers of 256 units".into()));
        }
        // States of both layers.
        let words = 2 * sizes.ring(false);
        ring.reserve(self, words)?;
        ring.fill(self, words, true)?;
        let weights = 4 * hidden * (features + hidden + 1) + 4 * hidden * (2 * hidden + 1);
        let mut arguments = [
            parameters.at(self, 0, weights)?,
            inputs.at(self, 0, rows * features)?,
            ring.at(self, 0, words)?,
            states.at(self, 0, (rows + sizes.batch()) * hidden)?,
            int(sizes.steps)?,
            int(features)?,
            int(sizes.batch())?,
        ];
        let spread = Spread {
            threads: WAVE_THREADS,
            ..sizes.spread(Recurrence::shared_by_wave(features, sizes.eights))
        };
        // SAFETY: every range that the kernel addresses was asked for above.
        unsafe { self.launch(&format!("wave_{}", sizes.eights), &spread, &mut arguments) }
    }

    /// The way back through a layer: from the gradients of its states to the slopes of its gates.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn backward(
        &mut self,
        sizes: Recurrence,
        parameters: &Buffer<f32>,
        weights: usize,
        above: &Buffer<f32>,
        gates: &Buffer<f32>,
        cells: &Buffer<f32>,
        ring: &mut Buffer<u32>,
        slopes: &mut Buffer<f32>,
    ) -> Result<()> {
        let (rows, hidden) = (sizes.rows(), sizes.hidden);
        ring.fill(self, sizes.ring(true), true)?;
        let mut arguments = [
            parameters.at(self, weights, 4 * hidden * hidden)?,
            above.at(self, 0, rows * hidden)?,
            gates.at(self, 0, rows * 4 * hidden)?,
            cells.at(self, 0, (rows + sizes.batch()) * hidden)?,
            ring.at(self, 0, sizes.ring(true))?,
            slopes.at(self, 0, rows * 4 * hidden)?,
            int(sizes.steps)?,
            int(hidden)?,
            int(sizes.batch())?,
        ];
        // Two operands: four gates of 16 units, four bytes each; and the sums of all teams.
        let operands = 2 * 4 * UNITS * 4 * 8 * sizes.eights;
        let sums = 8 / sizes.eights * 8 * sizes.eights * (UNITS + 4) * 4;
        let spread = sizes.spread(operands + sums);
        // SAFETY: every range that the kernel addresses was asked for above.
        unsafe { self.launch(&sizes.name("backward"), &spread, &mut arguments) }
    }

    fn tiles(m: usize, n: usize, parts: usize) -> Spread {
        Spread {
            grid: (m.div_ceil(TILE), n.div_ceil(TILE), parts),
            threads: THREADS,
            // Two stages of two factors, 32 numbers of four bytes for each row.
            shared: 2 * 2 * TILE * 32 * 4,
            together: false,
        }
    }

    /// `out = states · weightsᵀ + bias`: `[m][k]` by `[n][k]`. The states start at row `first`.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn project(
        &mut self,
        (m, n, k): (usize, usize, usize),
        states: &Buffer<f32>,
        first: usize,
        parameters: &Buffer<f32>,
        weights: usize,
        bias: usize,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let mut arguments = [
            states.at(self, first * k, m * k)?,
            parameters.at(self, weights, n * k)?,
            parameters.at(self, bias, n)?,
            out.at(self, 0, m * n)?,
            int(m)?,
            int(n)?,
            int(k)?,
        ];
        // SAFETY: every range that the kernel addresses was asked for above.
        unsafe { self.launch("project", &Self::tiles(m, n, 1), &mut arguments) }
    }

    /// `out = slopes · weights`: `[m][k]` by `[k][n]`.
    pub(crate) fn project_back(
        &mut self,
        (m, n, k): (usize, usize, usize),
        slopes: &Buffer<f32>,
        parameters: &Buffer<f32>,
        weights: usize,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let mut arguments = [
            slopes.at(self, 0, m * k)?,
            parameters.at(self, weights, n * k)?,
            out.at(self, 0, m * n)?,
            int(m)?,
            int(n)?,
            int(k)?,
        ];
        // SAFETY: every range that the kernel addresses was asked for above.
        unsafe { self.launch("project_back", &Self::tiles(m, n, 1), &mut arguments) }
    }

    /// `to (+)= slopesᵀ · states`: `[k][m]` by `[k][n]`, the states from row `first` on.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn weight_gradient(
        &mut self,
        (m, n, k): (usize, usize, usize),
        slopes: &Buffer<f32>,
        states: &Buffer<f32>,
        first: usize,
        parts: &mut Buffer<f32>,
        to: (&mut Buffer<f32>, usize),
        add: bool,
    ) -> Result<()> {
        // As many parts as fill the GPU, of whole tiles of 32 summed rows.
        let tiles = m.div_ceil(TILE) * n.div_ceil(TILE);
        let wanted = (self.blocks / tiles).max(1);
        let part = k.div_ceil(wanted).next_multiple_of(32);
        let count = k.div_ceil(part);
        parts.reserve(self, count * m * n)?;
        let mut arguments = [
            slopes.at(self, 0, m * k)?,
            states.at(self, first * n, n * k)?,
            parts.at(self, 0, count * m * n)?,
            int(m)?,
            int(n)?,
            int(k)?,
            int(part)?,
        ];
        // SAFETY: every range that the kernel addresses was asked for above.
        unsafe { self.launch("weight_gradient", &Self::tiles(m, n, count), &mut arguments)? };
        let sums = Sums {
            count,
            stride: m * n,
            offset: 0,
            rows: m,
            columns: n,
            steps: (n, 1),
        };
        self.sum_parts(sums, parts, to, add)
    }

    /// `out = inputs · weightsᵀ + bias`, of few inputs.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn project_inputs(
        &mut self,
        (rows, columns, features): (usize, usize, usize),
        inputs: &Buffer<f32>,
        parameters: &Buffer<f32>,
        weights: usize,
        bias: usize,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let mut arguments = [
            inputs.at(self, 0, rows * features)?,
            parameters.at(self, weights, columns * features)?,
            parameters.at(self, bias, columns)?,
            out.at(self, 0, rows * columns)?,
            int(rows)?,
            int(columns)?,
            int(features)?,
        ];
        let spread = Spread {
            shared: 16 * 32 * 4,
            ..Spread::grid(rows.div_ceil(16), columns.div_ceil(THREADS), 1)
        };
        // SAFETY: every range that the kernel addresses was asked for above.
        unsafe { self.launch("project_inputs", &spread, &mut arguments) }
    }

    /// `parts[i][few + 1][wide]`: sums over rows of few ⊗ wide, and of wide. Returns how many
    /// parts there are. `wide` starts at its row `first`.
    pub(crate) fn narrow_gradient(
        &mut self,
        (rows, few_count, wide_count): (usize, usize, usize),
        few: &Buffer<f32>,
        wide: &Buffer<f32>,
        first: usize,
        parts: &mut Buffer<f32>,
    ) -> Result<usize> {
        let blocks = wide_count.div_ceil(THREADS) * (few_count + 1).div_ceil(8);
        let wanted = (4 * self.blocks / blocks).clamp(1, 192);
        let part = rows.div_ceil(wanted).max(16);
        let count = rows.div_ceil(part);
        let size = (few_count + 1) * wide_count;
        parts.reserve(self, count * size)?;
        let mut arguments = [
            few.at(self, 0, rows * few_count)?,
            wide.at(self, first * wide_count, rows * wide_count)?,
            parts.at(self, 0, count * size)?,
            int(rows)?,
            int(few_count)?,
            int(wide_count)?,
            int(part)?,
        ];
        let spread = Spread::grid(
            wide_count.div_ceil(THREADS),
            (few_count + 1).div_ceil(8),
            count,
        );
        // SAFETY: every range that the kernel addresses was asked for above.
        unsafe { self.launch("narrow_gradient", &spread, &mut arguments)? };
        Ok(count)
    }

    pub(crate) fn sum_parts(
        &mut self,
        sums: Sums,
        parts: &Buffer<f32>,
        (to, start): (&mut Buffer<f32>, usize),
        add: bool,
    ) -> Result<()> {
        let Sums {
            count,
            stride,
            offset,
            rows,
            columns,
            steps,
        } = sums;
        if offset + rows * columns > stride || rows * columns == 0 {
            return Err(Error::Driver(
                "a part is smaller than what is summed".into(),
            ));
        }
        let reach = (rows - 1) * steps.0 + (columns - 1) * steps.1 + 1;
        let mut arguments = [
            parts.at(self, 0, count * stride)?,
            int(count)?,
            int(stride)?,
            int(offset)?,
            int(rows)?,
            int(columns)?,
            to.at(self, start, reach)?,
            int(steps.0)?,
            int(steps.1)?,
            Argument::Int(i32::from(add)),
        ];
        // SAFETY: every range that the kernel addresses was asked for above.
        unsafe { self.launch("sum_parts", &Spread::over(rows * columns), &mut arguments) }
    }

    /// The logits of all rows, and their predictions. The states start at row `first`.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn logits(
        &mut self,
        rows: usize,
        sizes: Heads,
        states: &Buffer<f32>,
        first: usize,
        parameters: &Buffer<f32>,
        logits: &mut Buffer<f32>,
        predictions: &mut Buffer<i32>,
    ) -> Result<()> {
        let hidden = sizes.hidden;
        let mut arguments = [
            states.at(self, first * hidden, rows * hidden)?,
            parameters.at(self, sizes.start, sizes.outputs * (hidden + 1))?,
            logits.at(self, 0, rows * sizes.outputs)?,
            predictions.at(self, 0, rows)?,
            int(rows)?,
            int(hidden)?,
            int(sizes.classes)?,
            int(sizes.outputs)?,
        ];
        // SAFETY: every range that the kernel addresses was asked for above.
        unsafe {
            self.launch(
                "logits",
                &Spread::over(32 * rows.div_ceil(4)),
                &mut arguments,
            )
        }
    }

    /// The loss of every row, added to `total`; with `weight`, the logits become their slopes.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn losses(
        &mut self,
        (steps, batch): (usize, usize),
        sizes: Heads,
        logits: &mut Buffer<f32>,
        predictions: &Buffer<i32>,
        targets: &Targets,
        gamma: f32,
        weight: Option<f32>,
        loss: &mut Buffer<f32>,
        total: &mut Buffer<f64>,
    ) -> Result<()> {
        let rows = steps * batch;
        // SAFETY of what follows: a length is at most `steps` and a label below the classes, which
        // `Targets` checks where it is written.
        let shared = [
            predictions.at(self, 0, rows)?,
            targets.lengths.at(self, 0, batch)?,
            targets.labels.at(self, 0, batch)?,
        ];
        targets.check(steps, batch, sizes.classes)?;
        let mut arguments = [
            logits.at(self, 0, rows * sizes.outputs)?,
            shared[0],
            shared[1],
            shared[2],
            loss.at(self, 0, rows)?,
            int(steps)?,
            int(batch)?,
            int(sizes.classes)?,
            int(sizes.outputs)?,
            Argument::Float(gamma),
            Argument::Float(weight.unwrap_or(0.0)),
            Argument::Int(i32::from(weight.is_some())),
        ];
        // SAFETY: every range that the kernel addresses was asked for above.
        unsafe { self.launch("losses", &Spread::over(rows), &mut arguments)? };
        let mut arguments = [
            loss.at(self, 0, rows)?,
            shared[0],
            shared[1],
            shared[2],
            total.at(self, 0, 2)?,
            int(steps)?,
            int(batch)?,
        ];
        let spread = Spread {
            shared: 2 * THREADS * 8,
            ..Spread::grid(1, 1, 1)
        };
        // SAFETY: as above.
        unsafe { self.launch("sum_losses", &spread, &mut arguments) }
    }

    /// The gradients of the top layer's states.
    pub(crate) fn heads_back(
        &mut self,
        rows: usize,
        sizes: Heads,
        slopes: &Buffer<f32>,
        parameters: &Buffer<f32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let hidden = sizes.hidden;
        let mut arguments = [
            slopes.at(self, 0, rows * sizes.outputs)?,
            parameters.at(self, sizes.start, sizes.outputs * (hidden + 1))?,
            out.at(self, 0, rows * hidden)?,
            int(rows)?,
            int(hidden)?,
            int(sizes.classes)?,
            int(sizes.outputs)?,
        ];
        // SAFETY: every range that the kernel addresses was asked for above.
        unsafe {
            self.launch(
                "from_heads",
                &Spread::grid(rows.div_ceil(8), 1, 1),
                &mut arguments,
            )
        }
    }

    /// A step of Adam; `rate` and `scale` are corrected for the first steps.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn adam(
        &mut self,
        count: usize,
        parameters: &mut Buffer<f32>,
        moments: [&mut Buffer<f32>; 2],
        gradients: &Buffer<f32>,
        factors: &Buffer<f32>,
        rate: f32,
        scale: f32,
    ) -> Result<()> {
        let mut arguments = [
            parameters.at(self, 0, count)?,
            moments[0].at(self, 0, count)?,
            moments[1].at(self, 0, count)?,
            gradients.at(self, 0, count)?,
            factors.at(self, 0, count)?,
            int(count)?,
            Argument::Float(rate),
            Argument::Float(scale),
        ];
        // SAFETY: every range that the kernel addresses was asked for above.
        unsafe { self.launch("adam", &Spread::over(count), &mut arguments) }
    }

    /// From logits to what is said about every prefix.
    pub(crate) fn scores(
        &mut self,
        (steps, batch): (usize, usize),
        sizes: Heads,
        logits: &Buffer<f32>,
        predictions: &Buffer<i32>,
        targets: &Targets,
        out: &mut ScoreBuffers,
    ) -> Result<()> {
        let rows = steps * batch;
        targets.check(steps, batch, sizes.classes)?;
        let gap = sizes.outputs > sizes.classes + 1;
        let mut arguments = [
            logits.at(self, 0, rows * sizes.outputs)?,
            targets.lengths.at(self, 0, batch)?,
            predictions.at(self, 0, rows)?,
            out.probabilities.at(self, 0, rows * sizes.classes)?,
            out.predictions.at(self, 0, rows)?,
            out.confidence.at(self, 0, rows)?,
            out.gap.at(self, 0, if gap { rows } else { 0 })?,
            int(steps)?,
            int(batch)?,
            int(sizes.classes)?,
            int(sizes.outputs)?,
            Argument::Int(i32::from(gap)),
        ];
        // SAFETY: every range that the kernel addresses was asked for above.
        unsafe { self.launch("scores", &Spread::over(rows), &mut arguments) }
    }
}

/// What [`Gpu::sum_parts`] adds up, and where it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums {
    pub(crate) count: usize,
    /// From one part to the next.
    pub(crate) stride: usize,
    /// Where in a part the rows begin.
    pub(crate) offset: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// From one row to the next and from one column to the next, where it goes.
    pub(crate) steps: (usize, usize),
}

/// The sizes of the heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) hidden: usize,
    pub(crate) classes: usize,
    pub(crate) outputs: usize,
    /// Their first place among the parameters.
    pub(crate) start: usize,
}

/// Lengths and labels of the sequences. The kernels index by them, so they are looked at here.
#[derive(Debug)]
pub(crate) struct Targets {
    lengths: Buffer<i32>,
    labels: Buffer<i32>,
    count: usize,
    longest: i32,
    largest: i32,
}

impl Targets {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Targets {
            lengths: Buffer::zeros(gpu, 1)?,
            labels: Buffer::zeros(gpu, 1)?,
            count: 0,
            longest: 0,
            largest: 0,
        })
    }

    pub(crate) fn write(&mut self, gpu: &Gpu, lengths: &[i32], labels: &[i32]) -> Result<()> {
        let negative = |values: &[i32]| values.iter().any(|v| *v < 0);
        if lengths.len() != labels.len() || negative(lengths) || negative(labels) {
            return Err(Error::Driver(
                "lengths and labels do not fit together".into(),
            ));
        }
        self.lengths.reserve(gpu, lengths.len())?;
        self.labels.reserve(gpu, labels.len())?;
        self.lengths.write(gpu, lengths)?;
        self.labels.write(gpu, labels)?;
        self.count = lengths.len();
        self.longest = lengths.iter().copied().max().unwrap_or(0);
        self.largest = labels.iter().copied().max().unwrap_or(0);
        Ok(())
    }

    fn check(&self, steps: usize, batch: usize, classes: usize) -> Result<()> {
        let fits = self.longest as usize <= steps && (self.largest as usize) < classes;
        if fits && self.count == batch {
            return Ok(());
        }
        Err(Error::Driver(
            "a length or a label is out of its range".into(),
        ))
    }
}

/// Where scores go.
#[derive(Debug)]
pub(crate) struct ScoreBuffers {
    pub(crate) probabilities: Buffer<f32>,
    pub(crate) predictions: Buffer<i32>,
    pub(crate) confidence: Buffer<f32>,
    pub(crate) gap: Buffer<f32>,
}

impl ScoreBuffers {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self> {
        Ok(ScoreBuffers {
            probabilities: Buffer::zeros(gpu, 1)?,
            predictions: Buffer::zeros(gpu, 1)?,
            confidence: Buffer::zeros(gpu, 1)?,
            gap: Buffer::zeros(gpu, 1)?,
        })
    }
}
