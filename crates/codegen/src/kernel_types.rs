// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The types of one kernel, from its BTF: tracepoints, and the declarations that the C of a schema
//! needs.

mod counts;
mod declarations;
mod enums;
mod formats;
mod functions;
mod iterators;
mod modules;

pub use counts::Counts;
pub use formats::Formats;
pub use functions::{Functions, Prototype};
pub use modules::{AttachType, Modules};

use crate::refusal::Refusal;
use crate::trace_event::{Field, Shape};
use btf_rs::{Btf, BtfType, Type};
use klogger_schema::model::{Param, Schema, Target};
use std::sync::Arc;

/// The longest chain of BTF types that is followed; real ones have fewer than ten links.
const DEPTH_MAX: u32 = 32;

#[derive(Debug)]
pub struct Error(pub String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<btf_rs::Error> for Error {
    fn from(e: btf_rs::Error) -> Error {
        Error(format!("the kernel's type information (BTF) is damaged: {e}"))
    }
}

/// Words of a type that do not change its machine type.
const QUALIFIERS: [&str; 3] = ["const", "volatile", "restrict"];

type Result<T> = std::result::Result<T, Error>;

/// The kernels on which an object will run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runs {
    /// The kernel whose types it is compiled with.
    Here,
    /// Other kernels too, on which sizes may differ and bit fields cannot be found.
    Anywhere,
}

/// The types of one kernel.
pub struct KernelTypes {
    btf: Arc<Btf>,
    formats: Option<Box<dyn Formats>>,
    programs: Option<Box<dyn Programs>>,
    functions: Option<Box<dyn Functions>>,
    counts: Option<Box<dyn Counts>>,
    modules: Option<modules::Loaded>,
}

/// The programs and libraries of the machine.
pub trait Programs: Send + Sync {
    /// Why a probe cannot be where a target says; `None` if it can, or if that is not known yet.
    fn refuse(&self, target: &Target) -> Option<Refusal>;

    /// The places of a target that names several; `None` if they are not known yet.
    fn places(&self, target: &Target) -> std::result::Result<Option<InPrograms>, Refusal>;
}

/// Places that a target with a list or wildcards names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InPrograms {
    /// As a schema would name them, each once.
    pub names: Vec<String>,
    /// Those that match a wildcard, but cannot be probed.
    pub left_out: Vec<String>,
}

impl KernelTypes {
    /// `bytes`: the contents of `/sys/kernel/btf/vmlinux`.
    pub fn new(bytes: &[u8]) -> Result<KernelTypes> {
        Ok(KernelTypes::of(Btf::from_bytes(bytes)?.into()))
    }

    fn of(btf: Arc<Btf>) -> KernelTypes {
        KernelTypes {
            btf,
            formats: None,
            programs: None,
            functions: None,
            counts: None,
            modules: None,
        }
    }

    /// The types alone, without what is known of a machine. They are shared, not copied.
    pub fn alone(&self) -> KernelTypes {
        KernelTypes::of(self.btf.clone())
    }

    /// The same, of a machine whose programs can be read.
    pub fn with_programs(self, programs: impl Programs + 'static) -> KernelTypes {
        KernelTypes { programs: Some(Box::new(programs)), ..self }
    }

    /// Why a probe cannot be at a place in a program. What another machine has is not known.
    pub(crate) fn refuse_in_program(&self, target: &Target) -> Option<Refusal> {
        self.programs.as_deref().and_then(|programs| programs.refuse(target))
    }

    /// The places of a target that names several in programs; `None` if they are not known yet.
    pub(crate) fn places_in_programs(
        &self,
        target: &Target,
    ) -> std::result::Result<Option<InPrograms>, Refusal> {
        self.programs.as_deref().map_or(Ok(None), |programs| programs.places(target))
    }

    /// The parameters of a tracepoint in this kernel, or `None` if it has no such tracepoint.
    pub fn tracepoint(&self, name: &str) -> Result<Option<Vec<String>>> {
        let typedef = format!("btf_trace_{name}");
        let Some(found) = self.named(&typedef, |t| matches!(t, Type::Typedef(_)))? else {
            return self.in_modules(|types| types.tracepoint(name));
        };
        let Type::FuncProto(proto) =
            self.skip(found, |t| matches!(t, Type::Typedef(_) | Type::Ptr(_)))?
        else {
            return Ok(None);
        };
        // The first is the tracepoint's private `void *`.
        let types = proto.parameters.iter().skip(1).map(|p| self.spell(p.get_type_id()));
        types.collect::<Result<_>>().map(Some)
    }

    /// The parameters of a tracepoint as a schema would declare them, types and names, or `None` if
    /// there is no such.
    pub fn parameters(&self, name: &str) -> Result<Option<Vec<Param>>> {
        let Some(types) = self.tracepoint(name)? else { return Ok(None) };
        let names = self.parameter_names(name)?;
        let name_of = |i: usize| {
            names.get(i).filter(|n| !n.is_empty()).cloned().unwrap_or_else(|| format!("arg{i}"))
        };
        Ok(Some(
            types.into_iter().enumerate().map(|(i, ty)| Param { ty, name: name_of(i) }).collect(),
        ))
    }

    /// BTF's type of a tracepoint has no names of parameters; those of the function that calls its
    /// probes are used.
    fn parameter_names(&self, tracepoint: &str) -> Result<Vec<String>> {
        let is_function = |t: &Type| matches!(t, Type::Func(_));
        for prefix in ["__traceiter_", "__bpf_trace_"] {
            let Some(function) = self.named(&format!("{prefix}{tracepoint}"), is_function)? else {
                continue;
            };
            if let Type::FuncProto(proto) = self.target_of(&function)? {
                let named = proto
                    .parameters
                    .iter()
                    .skip(1)
                    .map(|p| self.btf.resolve_name(p).unwrap_or_default());
                return Ok(named.collect());
            }
        }
        let of_module = |types: &KernelTypes| {
            Ok(Some(types.parameter_names(tracepoint)?).filter(|names| !names.is_empty()))
        };
        Ok(self.in_modules(of_module)?.unwrap_or_default())
    }

    /// All tracepoints of this kernel that a program can attach to.
    pub fn tracepoints(&self) -> Vec<String> {
        let mut names = Vec::new();
        for ty in self.all() {
            if let Type::Typedef(t) = &ty
                && let Ok(name) = self.btf.resolve_name(t)
                && let Some(name) = name.strip_prefix("btf_trace_")
            {
                names.push(name.to_string());
            }
        }
        self.and_of_modules(names, KernelTypes::tracepoints)
    }

    /// Whether the kernel has this per-CPU variable; BTF has no others.
    pub fn has_variable(&self, name: &str) -> bool {
        self.named(name, |t| matches!(t, Type::Var(_))).is_ok_and(|found| found.is_some())
    }

    /// Where a per-CPU variable is in the memory of each CPU.
    fn per_cpu(&self, name: &str) -> Option<u64> {
        let ids = self.btf.resolve_ids_by_name(name).ok()?;
        let sections = self.btf.resolve_types_by_name(".data..percpu").ok()?;
        sections.iter().find_map(|section| match section {
            Type::Datasec(section) => section
                .variables
                .iter()
                .find(|v| v.get_type_id().is_some_and(|id| ids.contains(&id)))
                .map(|v| u64::from(v.offset())),
            _ => None,
        })
    }

    /// How far the variable with a CPU's preemption count, or the structure that begins with it, is
    /// from the CPU's run queue; 0 if that is unknown.
    pub fn preempt_count(&self) -> u64 {
        let count = self.per_cpu("__preempt_count").or_else(|| self.per_cpu("pcpu_hot"));
        let distance = |(count, queue): (u64, u64)| count.wrapping_sub(queue);
        count.zip(self.per_cpu("runqueues")).map_or(0, distance)
    }

    /// Bytes of a structure.
    pub fn size_of_struct(&self, name: &str) -> Option<u32> {
        match self.named(name, |t| matches!(t, Type::Struct(_))) {
            Ok(Some(Type::Struct(found))) => Some(found.size() as u32),
            _ => None,
        }
    }

    pub fn has_function(&self, name: &str) -> bool {
        self.named(name, |t| matches!(t, Type::Func(_))).is_ok_and(|found| found.is_some())
    }

    /// Whether programs of tracepoints run under the kind of SRCU that Linux uses for them since 7.
    pub fn has_fast_srcu(&self) -> bool {
        self.has_variable("tracepoint_srcu_srcu_data") && self.has_function("init_srcu_struct_fast")
    }

    /// Whether modules can be loaded into it.
    pub fn takes_modules(&self) -> bool {
        self.has_function("find_module")
    }

    /// `None` if a schema's prototype matches the kernel's: the same types, of which the last ones
    /// may be left out. Otherwise the kernel's prototype as a schema would declare it.
    pub fn mismatch(&self, target: &Target, kernel: &[String]) -> Result<Option<String>> {
        let fits = target.params.len() <= kernel.len()
            && target
                .params
                .iter()
                .zip(kernel)
                .all(|(p, k)| self.canonical(&p.ty) == self.canonical(k));
        Ok(if fits { None } else { Some(format!("{}({})", target.label(), kernel.join(", "))) })
    }

    /// C declarations of all kernel types in the schema's C and in its probes' parameters.
    pub fn header(&self, schema: &Schema, runs: Runs) -> Result<String> {
        declarations::header(self, schema, runs)
    }

    fn all(&self) -> impl Iterator<Item = Type> {
        let (first, last) = self.btf.split().unwrap_or(self.btf.base()).type_id_range();
        (first..=last).filter_map(|id| self.btf.resolve_type_by_id(id).ok())
    }

    fn named(&self, name: &str, wanted: impl Fn(&Type) -> bool) -> Result<Option<Type>> {
        match self.btf.resolve_types_by_name(name) {
            Ok(types) => Ok(types.into_iter().find(wanted)),
            Err(_) => Ok(None),
        }
    }

    fn by_id(&self, id: Option<u32>) -> Result<Type> {
        match id {
            None | Some(0) => Ok(Type::Void),
            Some(id) => Ok(self.btf.resolve_type_by_id(id)?),
        }
    }

    fn target_of(&self, ty: &Type) -> Result<Type> {
        self.by_id(ty.as_btf_type().and_then(|t| t.get_type_id()))
    }

    /// Follows a chain of types while `through` holds.
    fn skip(&self, mut ty: Type, through: impl Fn(&Type) -> bool) -> Result<Type> {
        for _ in 0..DEPTH_MAX {
            if !through(&ty) {
                return Ok(ty);
            }
            ty = self.target_of(&ty)?;
        }
        Err(Error("the kernel's type information (BTF) has a chain of types without end".into()))
    }

    fn name(&self, ty: &Type) -> String {
        ty.as_btf_type().and_then(|t| self.btf.resolve_name(t).ok()).unwrap_or_default()
    }

    /// A parameter's type as C, with the names of typedefs.
    fn spell(&self, id: Option<u32>) -> Result<String> {
        self.spell_type(self.by_id(id)?, 0)
    }

    fn spell_type(&self, ty: Type, depth: u32) -> Result<String> {
        if depth > DEPTH_MAX {
            return Err(Error(
                "the kernel's type information (BTF) has a chain of types without end".into(),
            ));
        }
        let inner = |t: &Type| self.spell_type(self.target_of(t)?, depth + 1);
        Ok(match &ty {
            Type::Void => "void".into(),
            Type::Int(_) | Type::Typedef(_) | Type::Float(_) => self.name(&ty),
            Type::Struct(_) => format!("struct {}", self.name(&ty)),
            Type::Union(_) => format!("union {}", self.name(&ty)),
            Type::Enum(_) | Type::Enum64(_) => format!("enum {}", self.name(&ty)),
            Type::Fwd(f) => {
                format!("{} {}", if f.is_struct() { "struct" } else { "union" }, self.name(&ty))
            }
            Type::Const(_) => {
                let text = inner(&ty)?;
                if text.ends_with('*') { format!("{text}const") } else { format!("const {text}") }
            }
            Type::Volatile(_) | Type::Restrict(_) | Type::TypeTag(_) => inner(&ty)?,
            Type::Ptr(_) => match self.skip(self.target_of(&ty)?, is_modifier)? {
                Type::FuncProto(_) => "void *".into(),
                _ => {
                    let text = inner(&ty)?;
                    if text.ends_with('*') { format!("{text}*") } else { format!("{text} *") }
                }
            },
            _ => "void".into(),
        })
    }

    /// One spelling for types with the same machine type: without qualifiers, and with typedefs of
    /// numbers resolved.
    fn canonical(&self, ty: &str) -> String {
        let words: Vec<&str> = ty.split_whitespace().filter(|w| !QUALIFIERS.contains(w)).collect();
        let stars = words.iter().map(|w| w.matches('*').count()).sum::<usize>();
        let base: Vec<&str> =
            words.iter().map(|w| w.trim_matches('*')).filter(|w| !w.is_empty()).collect();
        let base = match base.as_slice() {
            // Of qualifiers and stars alone, which no compiler takes.
            [] => String::new(),
            [one] => self.number(one).unwrap_or_else(|| one.to_string()),
            more if !matches!(more[0], "struct" | "union" | "enum") => {
                self.number(&more.join(" ")).unwrap_or_else(|| more.join(" "))
            }
            more => more.join(" "),
        };
        format!("{base}{}", "*".repeat(stars))
    }

    /// Bytes of an integer type, and whether it has a sign.
    pub(crate) fn size_and_sign(&self, ty: &str) -> Option<(u32, bool)> {
        let number = self.number(&self.unqualified(ty))?;
        let (sign, bits) = number.split_at_checked(1)?;
        Some((bits.parse::<u32>().ok()? / 8, sign == "s"))
    }

    pub(crate) fn is_bool(&self, ty: &str) -> bool {
        self.canonical(ty) == "bool"
    }

    fn unqualified(&self, ty: &str) -> String {
        let words = ty.split_whitespace().filter(|w| !QUALIFIERS.contains(w));
        words.collect::<Vec<_>>().join(" ")
    }

    /// Whether a parameter has the type of a field of a trace event: its name in the source, or a
    /// number of the same size.
    pub(crate) fn is_of_type(&self, param: &Param, field: &Field) -> bool {
        let (own, theirs) = (self.canonical(&param.ty), self.canonical(&field.ty));
        let sized = format!("{}{}", if field.signed { 's' } else { 'u' }, 8 * field.size);
        match field.shape {
            Shape::Number => own == theirs || own == sized,
            Shape::Pointer => own == "u64" || own.ends_with('*'),
            Shape::Array(_) | Shape::Text => own == format!("{theirs}*"),
            Shape::Other => false,
        }
    }

    /// `u32` for `unsigned int` and its typedefs; `None` if `name` is not an integer type.
    fn number(&self, name: &str) -> Option<String> {
        let spelled = match name {
            "unsigned" | "unsigned int" => return Some("u32".into()),
            "int" | "signed" | "signed int" => return Some("s32".into()),
            "long" | "long int" | "long long" | "long long int" => return Some("s64".into()),
            "unsigned long"
            | "long unsigned int"
            | "unsigned long long"
            | "long long unsigned int" => {
                return Some("u64".into());
            }
            "short" => "short int",
            "unsigned short" => "short unsigned int",
            other => other,
        };
        let found =
            self.named(spelled, |t| matches!(t, Type::Typedef(_) | Type::Int(_))).ok()??;
        match self.skip(found, |t| matches!(t, Type::Typedef(_)) || is_modifier(t)).ok()? {
            Type::Int(i) if i.is_bool() => Some("bool".into()),
            Type::Int(i) => {
                Some(format!("{}{}", if i.is_signed() { 's' } else { 'u' }, i.size() * 8))
            }
            _ => None,
        }
    }
}

fn is_modifier(ty: &Type) -> bool {
    matches!(ty, Type::Const(_) | Type::Volatile(_) | Type::Restrict(_) | Type::TypeTag(_))
}
