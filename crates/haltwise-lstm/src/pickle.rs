//! Reads PyTorch's `.pt` files without executing anything.
//!
//! A `.pt` file is a zip: `NAME/data.pkl`, a pickle that describes the tensors, and their
//! bytes, `NAME/data/0`, `1`, …. A pickle is a program for a small stack machine that may
//! call any Python function it names. This machine knows the few instructions that a state
//! dict needs and four names, which it treats as data. Every other name is refused, and
//! nothing is ever called.

use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::io::{Cursor, Read};
use std::rc::Rc;

/// A tensor as it was stored: its shape and its numbers, row by row.
pub(crate) type RawTensor = (Vec<usize>, Vec<f32>);

/// The most values a pickle may leave on its stack or in its memo.
const MAX_VALUES: usize = 1 << 20;
/// The deepest nesting of tuples.
const MAX_DEPTH: u8 = 8;

/// The tensors of a state dict, by name, in the order of the file.
pub(crate) fn read_state_dict(bytes: &[u8]) -> Result<Vec<(String, RawTensor)>> {
    let mut members = Members::new(bytes)?;
    let pickle = members.read("data.pkl")?;
    let mut storages = HashMap::new();
    let mut tensors = Vec::new();
    let mut total = 0;
    for (name, tensor) in Machine::run(&pickle)? {
        let storage = match storages.entry(tensor.storage.key.clone()) {
            std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::hash_map::Entry::Vacant(empty) => {
                let bytes = members.read(&format!("data/{}", empty.key()))?;
                empty.insert(bytes)
            }
        };
        let values = tensor.values(&name, storage)?;
        // Many views of one storage could unpack to far more than the file holds.
        total += values.len();
        if total > bytes.len() {
            return Err(damaged("its tensors overlap"));
        }
        tensors.push((name.to_string(), (tensor.shape, values)));
    }
    Ok(tensors)
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::NotAModel(format!("as PyTorch's file: {what}"))
}

/// The members of the zip. All members that are read are together no longer than the file.
struct Members<'a> {
    archive: zip::ZipArchive<Cursor<&'a [u8]>>,
    folder: String,
    /// How many more bytes they may have.
    left: u64,
}

impl<'a> Members<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self> {
        let archive = zip::ZipArchive::new(Cursor::new(bytes))
            .map_err(|e| damaged(format!("not a readable zip archive ({e})")))?;
        let folder = archive
            .file_names()
            .flatten()
            .find_map(|name| {
                let folder = name.strip_suffix("data.pkl")?;
                (folder.is_empty() || folder.ends_with('/')).then(|| folder.to_owned())
            })
            .ok_or_else(|| damaged("there is no data.pkl in it"))?;
        Ok(Self {
            archive,
            folder,
            left: bytes.len() as u64,
        })
    }

    fn read(&mut self, name: &str) -> Result<Vec<u8>> {
        let name = format!("{}{name}", self.folder);
        let broken = |problem: &dyn std::fmt::Display| damaged(format!("{name}: {problem}"));
        let file = self.archive.by_name(&name).map_err(|e| broken(&e))?;
        // PyTorch never compresses, and a compressed member could unpack to anything.
        if file.compression() != zip::CompressionMethod::Stored {
            return Err(broken(
                &"it is compressed; save the model again with torch.save",
            ));
        }
        if file.size() > self.left {
            return Err(broken(
                &"it is longer than the file; save or copy the file again",
            ));
        }
        let size = file.size();
        self.left -= size;
        let mut bytes = Vec::new();
        file.take(size)
            .read_to_end(&mut bytes)
            .map_err(|e| broken(&e))?;
        Ok(bytes)
    }
}

/// The type of a storage's numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    F32,
    F64,
}

#[derive(Clone, Debug)]
struct Storage {
    kind: Kind,
    key: Rc<str>,
}

/// A tensor as the pickle describes it: a view into a storage.
#[derive(Clone, Debug)]
struct View {
    storage: Storage,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl View {
    /// The numbers of the view, row by row, for any strides.
    fn values(&self, name: &str, storage: &[u8]) -> Result<Vec<f32>> {
        let outside = || damaged(format!("tensor {name} reaches outside its storage"));
        let width = match self.storage.kind {
            Kind::F32 => 4,
            Kind::F64 => 8,
        };
        let available = storage.len() / width;
        let count = self
            .shape
            .iter()
            .try_fold(1usize, |n, d| n.checked_mul(*d))
            .ok_or_else(outside)?;
        // Strides of zero could make a tiny file describe an enormous tensor.
        if count > available {
            return Err(outside());
        }
        let mut values = Vec::with_capacity(count);
        for index in 0..count {
            let (mut rest, mut at) = (index, Some(self.offset));
            for (size, stride) in self.shape.iter().zip(&self.strides).rev() {
                let step = (rest % size).checked_mul(*stride);
                at = at.and_then(|at| step.and_then(|step| at.checked_add(step)));
                rest /= size;
            }
            let start = at
                .and_then(|at| at.checked_mul(width))
                .ok_or_else(outside)?;
            let bytes = storage.get(start..).ok_or_else(outside)?;
            let value = match self.storage.kind {
                Kind::F32 => bytes.first_chunk().map(|b| f32::from_le_bytes(*b)),
                Kind::F64 => bytes.first_chunk().map(|b| f64::from_le_bytes(*b) as f32),
            };
            values.push(value.ok_or_else(outside)?);
        }
        Ok(values)
    }
}

/// A value on the machine's stack. Containers are shared, never copied, because a memo that
/// doubles a tuple repeatedly must not cost memory.
#[derive(Clone, Debug)]
enum Value {
    Mark,
    None,
    Bool,
    Int(i64),
    Text(Rc<str>),
    /// Its items, and how deeply tuples are nested in it.
    Tuple(Rc<[Value]>, u8),
    /// A dict under construction, by its place in [`Machine::dicts`].
    Dict(usize),
    Global(Global),
    Storage(Rc<Storage>),
    Tensor(Rc<View>),
}

impl Value {
    /// A tuple. Nesting is bounded: a state dict needs two levels, and dropping
    /// a million would overflow the stack.
    fn tuple(items: Vec<Value>) -> Result<Value> {
        let depth = |v: &Value| match v {
            Value::Tuple(_, depth) => *depth,
            _ => 0,
        };
        match items.iter().map(depth).max().unwrap_or(0) {
            MAX_DEPTH.. => Err(damaged("tuples are nested too deeply")),
            inner => Ok(Value::Tuple(items.into(), inner + 1)),
        }
    }
}

/// The names that a state dict uses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Global {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    Storage(Kind),
}

impl Global {
    fn named(module: &str, name: &str) -> Result<Self> {
        match (module, name) {
            ("collections", "OrderedDict") => Ok(Global::OrderedDict),
            ("torch._utils", "_rebuild_tensor_v2") => Ok(Global::RebuildTensor),
            ("torch._utils", "_rebuild_parameter") => Ok(Global::RebuildParameter),
            ("torch", "FloatStorage") => Ok(Global::Storage(Kind::F32)),
            ("torch", "DoubleStorage") => Ok(Global::Storage(Kind::F64)),
            _ => Err(Error::ForbiddenGlobal {
                global: format!("{module}.{name}").escape_debug().to_string(),
            }),
        }
    }
}

/// The stack machine.
#[derive(Default)]
struct Machine<'a> {
    code: &'a [u8],
    stack: Vec<Value>,
    memo: HashMap<u32, Value>,
    dicts: Vec<Vec<(Value, Value)>>,
}

impl<'a> Machine<'a> {
    /// Runs a pickle whose result is a dict from names to tensors.
    fn run(code: &'a [u8]) -> Result<Vec<(Rc<str>, View)>> {
        let mut machine = Machine {
            code,
            ..Machine::default()
        };
        while !machine.step()? {
            if machine.stack.len() > MAX_VALUES || machine.memo.len() > MAX_VALUES {
                return Err(damaged("the pickle is far larger than a state dict"));
            }
        }
        let Some(Value::Dict(dict)) = machine.stack.pop() else {
            return Err(not_a_state_dict());
        };
        let items = machine.dicts.swap_remove(dict);
        // A long name that is repeated many times would cost far more than the file.
        let mut names = HashSet::new();
        let tensors = items.into_iter().map(|(key, value)| match (key, value) {
            (Value::Text(name), Value::Tensor(view)) if names.insert(name.clone()) => {
                Ok((name, (*view).clone()))
            }
            (Value::Text(_), Value::Tensor(_)) => Err(damaged("two tensors have one name")),
            _ => Err(not_a_state_dict()),
        });
        tensors.collect()
    }

    /// Executes one instruction; true at the end of the program.
    fn step(&mut self) -> Result<bool> {
        match self.byte()? {
            0x80 => drop(self.byte()?),                  // PROTO
            0x95 => drop(self.bytes(8)?),                // FRAME
            b'.' => return Ok(true),                     // STOP
            b'(' => self.stack.push(Value::Mark),        // MARK
            b'0' => drop(self.pop()?),                   // POP
            b'N' => self.stack.push(Value::None),        // NONE
            0x88 | 0x89 => self.stack.push(Value::Bool), // NEWTRUE, NEWFALSE
            b'K' => self.integer(1)?,                    // BININT1
            b'M' => self.integer(2)?,                    // BININT2
            b'J' => self.integer(4)?,                    // BININT
            0x8a => self.long()?,                        // LONG1
            b'X' => self.text(4)?,                       // BINUNICODE
            0x8c => self.text(1)?,                       // SHORT_BINUNICODE
            b')' => self.tuple(0)?,                      // EMPTY_TUPLE
            0x85 => self.tuple(1)?,                      // TUPLE1
            0x86 => self.tuple(2)?,                      // TUPLE2
            0x87 => self.tuple(3)?,                      // TUPLE3
            b't' => {
                let items = self.since_mark()?; // TUPLE
                self.stack.push(Value::tuple(items)?);
            }
            b'}' => self.new_dict(), // EMPTY_DICT
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?); // SETITEM
                self.set_items(vec![key, value])?;
            }
            b'u' => {
                let items = self.since_mark()?; // SETITEMS
                self.set_items(items)?;
            }
            b'q' => {
                let slot = self.byte()?.into(); // BINPUT
                self.remember(slot)?;
            }
            b'r' => {
                let slot = self.u32()?; // LONG_BINPUT
                self.remember(slot)?;
            }
            0x94 => {
                let slot = self.memo.len() as u32; // MEMOIZE
                self.remember(slot)?;
            }
            b'h' => {
                let slot = self.byte()?.into(); // BINGET
                self.recall(slot)?;
            }
            b'j' => {
                let slot = self.u32()?; // LONG_BINGET
                self.recall(slot)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?); // GLOBAL
                self.stack
                    .push(Value::Global(Global::named(&module, &name)?));
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?); // STACK_GLOBAL
                let (Value::Text(module), Value::Text(name)) = (module, name) else {
                    return Err(damaged("a name that is not text"));
                };
                self.stack
                    .push(Value::Global(Global::named(&module, &name)?));
            }
            b'Q' => self.persistent()?, // BINPERSID
            b'R' => self.reduce()?,     // REDUCE
            b'b' => drop(self.pop()?),  // BUILD: a dict's attributes
            other => {
                return Err(damaged(format!(
                    "the pickle instruction 0x{other:02x} is not one a state dict uses"
                )));
            }
        }
        Ok(false)
    }

    fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self
            .code
            .split_at_checked(n)
            .ok_or_else(|| damaged("the pickle ends too early"))?;
        self.code = tail;
        Ok(head)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.bytes(1)?[0])
    }

    /// A little-endian number of up to eight bytes.
    fn number(&mut self, n: usize) -> Result<u64> {
        let bytes = self.bytes(n)?;
        Ok(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(self.number(4)? as u32)
    }

    fn integer(&mut self, n: usize) -> Result<()> {
        let number = self.number(n)?;
        // Only the four-byte form is signed.
        let value = if n == 4 {
            i64::from(number as u32 as i32)
        } else {
            number as i64
        };
        self.stack.push(Value::Int(value));
        Ok(())
    }

    fn long(&mut self) -> Result<()> {
        let n = self.byte()?.into();
        if n > 7 {
            return Err(damaged("a whole number of more than seven bytes"));
        }
        let value = self.number(n)? as i64;
        self.stack.push(Value::Int(value));
        Ok(())
    }

    fn text(&mut self, width: usize) -> Result<()> {
        let length = self.number(width)? as usize;
        let text = std::str::from_utf8(self.bytes(length)?)
            .map_err(|_| damaged("text that is not UTF-8"))?;
        self.stack.push(Value::Text(text.into()));
        Ok(())
    }

    fn line(&mut self) -> Result<String> {
        let end = self
            .code
            .iter()
            .position(|b| *b == b'\n')
            .ok_or_else(|| damaged("the pickle ends within a name"))?;
        let line = self.bytes(end + 1)?;
        Ok(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    fn pop(&mut self) -> Result<Value> {
        self.stack
            .pop()
            .ok_or_else(|| damaged("the pickle takes more than it gave"))
    }

    fn since_mark(&mut self) -> Result<Vec<Value>> {
        let mark = self
            .stack
            .iter()
            .rposition(|v| matches!(v, Value::Mark))
            .ok_or_else(|| damaged("the pickle misses a mark"))?;
        let items = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(items)
    }

    fn tuple(&mut self, n: usize) -> Result<()> {
        let start = self
            .stack
            .len()
            .checked_sub(n)
            .ok_or_else(|| damaged("the pickle takes more than it gave"))?;
        let items = self.stack.split_off(start);
        self.stack.push(Value::tuple(items)?);
        Ok(())
    }

    fn new_dict(&mut self) {
        self.stack.push(Value::Dict(self.dicts.len()));
        self.dicts.push(Vec::new());
    }

    fn set_items(&mut self, items: Vec<Value>) -> Result<()> {
        let Some(Value::Dict(dict)) = self.stack.last() else {
            return Err(not_a_state_dict());
        };
        let mut items = items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            self.dicts[*dict].push((key, value));
        }
        Ok(())
    }

    fn remember(&mut self, slot: u32) -> Result<()> {
        let value = self.stack.last().cloned();
        let value = value.ok_or_else(|| damaged("the pickle remembers nothing"))?;
        self.memo.insert(slot, value);
        Ok(())
    }

    fn recall(&mut self, slot: u32) -> Result<()> {
        let value = self.memo.get(&slot).cloned();
        let value = value.ok_or_else(|| damaged("the pickle recalls what it never kept"))?;
        self.stack.push(value);
        Ok(())
    }

    /// `("storage", kind, key, device, size)`.
    fn persistent(&mut self) -> Result<()> {
        let Value::Tuple(id, _) = self.pop()? else {
            return Err(damaged("a storage without its description"));
        };
        let [
            Value::Text(_),
            Value::Global(Global::Storage(kind)),
            Value::Text(key),
            ..,
        ] = &*id
        else {
            return Err(damaged("a storage of unknown form"));
        };
        let (kind, key) = (*kind, key.clone());
        self.stack
            .push(Value::Storage(Rc::new(Storage { kind, key })));
        Ok(())
    }

    /// Only these three things may be made from a name and its arguments.
    fn reduce(&mut self) -> Result<()> {
        let (arguments, callable) = (self.pop()?, self.pop()?);
        let (Value::Global(global), Value::Tuple(arguments, _)) = (callable, arguments) else {
            return Err(damaged("a call of something that has no name"));
        };
        match (global, &*arguments) {
            (Global::OrderedDict, []) => self.new_dict(),
            (
                Global::RebuildTensor,
                [
                    Value::Storage(storage),
                    Value::Int(offset),
                    Value::Tuple(shape, _),
                    Value::Tuple(strides, _),
                    ..,
                ],
            ) => {
                let view = View {
                    storage: (**storage).clone(),
                    offset: size(&Value::Int(*offset))?,
                    shape: shape.iter().map(size).collect::<Result<_>>()?,
                    strides: strides.iter().map(size).collect::<Result<_>>()?,
                };
                if view.shape.len() != view.strides.len() || view.shape.len() > 8 {
                    return Err(damaged("a tensor whose shape and strides do not match"));
                }
                self.stack.push(Value::Tensor(Rc::new(view)));
            }
            (Global::RebuildParameter, [Value::Tensor(view), ..]) => {
                self.stack.push(Value::Tensor(view.clone()));
            }
            _ => return Err(damaged("a call that a state dict does not make")),
        }
        Ok(())
    }
}

fn size(value: &Value) -> Result<usize> {
    match value {
        Value::Int(n) => usize::try_from(*n).map_err(|_| damaged("a negative size")),
        _ => Err(damaged("a size that is not a whole number")),
    }
}

fn not_a_state_dict() -> Error {
    damaged(
        "it does not hold a plain state dict; \
         save the model with torch.save(model.state_dict(), path)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    /// A `.pt` file with this pickle and one storage.
    fn archive(pickle: &[u8], storage: &[u8]) -> Vec<u8> {
        archive_by(zip::CompressionMethod::Stored, pickle, storage)
    }

    fn archive_by(method: zip::CompressionMethod, pickle: &[u8], storage: &[u8]) -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        for (name, bytes) in [("m/data.pkl", pickle), ("m/data/0", storage)] {
            zip.start_file(name, options).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    /// A pickle of `{"w": tensor}` with the given offset, shape and strides.
    fn one_tensor(offset: u8, shape: [u8; 2], strides: [u8; 2]) -> Vec<u8> {
        let mut p = b"\x80\x02}(X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((".to_vec();
        p.extend(b"X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x06tQ");
        p.extend([b'K', offset]);
        p.extend([b'K', shape[0], b'K', shape[1], 0x86]);
        p.extend([b'K', strides[0], b'K', strides[1], 0x86]);
        p.extend(b"\x89ccollections\nOrderedDict\n)RtRu.");
        p
    }

    fn six() -> Vec<u8> {
        (0..6u8).flat_map(|i| f32::from(i).to_le_bytes()).collect()
    }

    #[test]
    fn a_tensor_is_read_in_the_order_of_its_strides() {
        let rows = read_state_dict(&archive(&one_tensor(0, [2, 3], [3, 1]), &six())).unwrap();
        assert_eq!(rows[0].1, (vec![2, 3], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
        let turned = read_state_dict(&archive(&one_tensor(0, [3, 2], [1, 3]), &six())).unwrap();
        assert_eq!(
            turned[0].1,
            (vec![3, 2], vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0])
        );
        let part = read_state_dict(&archive(&one_tensor(2, [2, 2], [2, 1]), &six())).unwrap();
        assert_eq!(part[0].1, (vec![2, 2], vec![2.0, 3.0, 4.0, 5.0]));
    }

    #[test]
    fn a_view_outside_its_storage_is_refused() {
        for pickle in [
            one_tensor(1, [2, 3], [3, 1]),
            one_tensor(0, [2, 3], [4, 1]),
            one_tensor(0, [255, 255], [0, 0]),
        ] {
            let error = read_state_dict(&archive(&pickle, &six())).unwrap_err();
            assert!(error.to_string().contains("outside its storage"), "{error}");
        }
    }

    #[test]
    fn a_pickle_that_tries_to_run_code_is_refused_by_name() {
        for (pickle, name) in [
            (
                &b"\x80\x02cposix\nsystem\nX\x02\0\0\0ls\x85R."[..],
                "posix.system",
            ),
            (
                &b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R."[..],
                "builtins.eval",
            ),
            (
                &b"ctorch.serialization\nload\n."[..],
                "torch.serialization.load",
            ),
        ] {
            let error = read_state_dict(&archive(pickle, &[])).unwrap_err();
            assert!(matches!(error, Error::ForbiddenGlobal { .. }), "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn instructions_beyond_a_state_dict_are_refused() {
        for pickle in [
            &b"i"[..],
            b"o.",
            b"\x81.",
            b"P1\n.",
            b"R.",
            b"(",
            b"K",
            b"}.",
            b"N.",
        ] {
            if pickle == b"}." {
                assert!(read_state_dict(&archive(pickle, &[])).unwrap().is_empty());
            } else {
                assert!(read_state_dict(&archive(pickle, &[])).is_err());
            }
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let mut pickle = vec![b')'];
        pickle.resize(1_000_000, 0x85);
        let error = read_state_dict(&archive(&pickle, &[])).unwrap_err();
        assert!(error.to_string().contains("nested"), "{error}");
    }

    #[test]
    fn compressed_members_are_refused_before_they_are_unpacked() {
        // Feature unification lets `zip` read them if another crate enables that.
        let pickle = one_tensor(0, [2, 3], [3, 1]);
        let bytes = archive_by(zip::CompressionMethod::Deflated, &pickle, &vec![0; 1 << 24]);
        assert!(bytes.len() < 1 << 16);
        let error = read_state_dict(&bytes).unwrap_err().to_string();
        assert!(error.contains("m/data.pkl: it is compressed"), "{error}");
        assert!(error.contains("torch.save"), "{error}");
    }

    #[test]
    fn members_that_share_their_bytes_are_refused() {
        // Two entries for the same bytes would read one member twice.
        let pickle = one_tensor(0, [2, 3], [3, 1]);
        let storage: Vec<u8> = six().repeat(1000);
        let bytes = archive(&pickle, &storage);
        let mut members = Members::new(&bytes).unwrap();
        assert_eq!(members.read("data/0").unwrap(), storage);
        let error = members.read("data/0").unwrap_err().to_string();
        assert!(error.contains("m/data/0: it is longer than"), "{error}");
    }

    #[test]
    fn one_name_for_two_tensors_is_refused() {
        let pickle = one_tensor(0, [2, 3], [3, 1]);
        let items = &pickle[4..pickle.len() - 2];
        let twice = [&pickle[..4], items, items, b"u."].concat();
        let error = read_state_dict(&archive(&twice, &six())).unwrap_err();
        assert!(error.to_string().contains("one name"), "{error}");
    }

    #[test]
    fn a_truncated_file_is_refused_at_every_length() {
        let bytes = archive(&one_tensor(0, [2, 3], [3, 1]), &six());
        for end in 0..bytes.len() {
            assert!(read_state_dict(&bytes[..end]).is_err());
        }
    }

    proptest! {
        #[test]
        fn no_pickle_makes_it_panic(code in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Machine::run(&code);
        }

        #[test]
        fn no_damage_makes_it_panic(at in 0usize..2000, byte: u8) {
            let mut bytes = archive(&one_tensor(0, [2, 3], [3, 1]), &six());
            let length = bytes.len();
            bytes[at % length] = byte;
            let _ = read_state_dict(&bytes);
        }
    }
}
