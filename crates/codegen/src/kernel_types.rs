// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Types of the kernel for the C in a schema, from BTF: only the structures that it reaches, and of these only the
//! members whose names it mentions. CO-RE finds members by name when the object is loaded, so that what is left out
//! does not matter, and compiling takes milliseconds instead of the second that a whole `vmlinux.h` takes.

use btf_rs::{Btf, BtfType, Member, Type};
use klogger_schema::model::{Param, Schema, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Deepest chain of BTF types that is followed; real ones have fewer than ten links.
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

type Result<T> = std::result::Result<T, Error>;

/// The types of one kernel.
pub struct KernelTypes {
    btf: Btf,
}

impl KernelTypes {
    /// `bytes`: the contents of `/sys/kernel/btf/vmlinux`.
    pub fn new(bytes: &[u8]) -> Result<KernelTypes> {
        Ok(KernelTypes { btf: Btf::from_bytes(bytes)? })
    }

    /// The parameters of a tracepoint as the kernel has them, or `None` if it has no such tracepoint.
    pub fn tracepoint(&self, name: &str) -> Result<Option<Vec<String>>> {
        let typedef = format!("btf_trace_{name}");
        let Some(found) = self.named(&typedef, |t| matches!(t, Type::Typedef(_)))? else { return Ok(None) };
        let Type::FuncProto(proto) = self.skip(found, |t| matches!(t, Type::Typedef(_) | Type::Ptr(_)))? else {
            return Ok(None);
        };
        // The first is the tracepoint's private `void *`.
        let types = proto.parameters.iter().skip(1).map(|p| self.spell(p.get_type_id()));
        types.collect::<Result<_>>().map(Some)
    }

    /// The parameters of a tracepoint as a schema would declare them, types and names, or `None` if there is no such.
    pub fn parameters(&self, name: &str) -> Result<Option<Vec<Param>>> {
        let Some(types) = self.tracepoint(name)? else { return Ok(None) };
        let names = self.parameter_names(name)?;
        let name_of = |i: usize| names.get(i).filter(|n| !n.is_empty()).cloned().unwrap_or_else(|| format!("arg{i}"));
        Ok(Some(types.into_iter().enumerate().map(|(i, ty)| Param { ty, name: name_of(i) }).collect()))
    }

    /// The type of a tracepoint has no names of parameters; the function that calls its probes has them.
    fn parameter_names(&self, tracepoint: &str) -> Result<Vec<String>> {
        let is_function = |t: &Type| matches!(t, Type::Func(_));
        for prefix in ["__traceiter_", "__bpf_trace_"] {
            let Some(function) = self.named(&format!("{prefix}{tracepoint}"), is_function)? else { continue };
            if let Type::FuncProto(proto) = self.target_of(&function)? {
                let named = proto.parameters.iter().skip(1).map(|p| self.btf.resolve_name(p).unwrap_or_default());
                return Ok(named.collect());
            }
        }
        Ok(Vec::new())
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
        names.sort();
        names
    }

    /// `None` if a schema's prototype fits the kernel's: the same types, of which the last may be left out.
    /// Else the kernel's prototype as a schema would write it.
    pub fn mismatch(&self, target: &Target, kernel: &[String]) -> Result<Option<String>> {
        let fits = target.params.len() <= kernel.len()
            && target.params.iter().zip(kernel).all(|(p, k)| self.canonical(&p.ty) == self.canonical(k));
        Ok(if fits { None } else { Some(format!("tracepoint {}({})", target.name, kernel.join(", "))) })
    }

    /// C declarations of every kernel type that the schema's C and its probes' parameters use.
    pub fn header(&self, schema: &Schema) -> Result<String> {
        let mut words = Words::of(schema);
        let mut out = Declarations { types: self, words: &mut words, done: BTreeMap::new(), text: String::new() };
        out.run()?;
        let (before, after) = match out.done.is_empty() {
            // The attribute would have nothing to apply to, of which clang would complain.
            true => ("", ""),
            false => (PUSH, POP),
        };
        Ok(format!("{HEAD}{before}{}{after}", out.text))
    }

    fn all(&self) -> impl Iterator<Item = Type> {
        let (first, last) = self.btf.base().type_id_range();
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

    /// A parameter's type as C, names of typedefs kept.
    fn spell(&self, id: Option<u32>) -> Result<String> {
        self.spell_type(self.by_id(id)?, 0)
    }

    fn spell_type(&self, ty: Type, depth: u32) -> Result<String> {
        if depth > DEPTH_MAX {
            return Err(Error("the kernel's type information (BTF) has a chain of types without end".into()));
        }
        let inner = |t: &Type| self.spell_type(self.target_of(t)?, depth + 1);
        Ok(match &ty {
            Type::Void => "void".into(),
            Type::Int(_) | Type::Typedef(_) | Type::Float(_) => self.name(&ty),
            Type::Struct(_) => format!("struct {}", self.name(&ty)),
            Type::Union(_) => format!("union {}", self.name(&ty)),
            Type::Enum(_) | Type::Enum64(_) => format!("enum {}", self.name(&ty)),
            Type::Fwd(f) => format!("{} {}", if f.is_struct() { "struct" } else { "union" }, self.name(&ty)),
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

    /// One spelling for types that are the same to the machine: without qualifiers, typedefs of numbers resolved.
    fn canonical(&self, ty: &str) -> String {
        let words: Vec<&str> =
            ty.split_whitespace().filter(|w| !matches!(*w, "const" | "volatile" | "restrict")).collect();
        let stars = words.iter().map(|w| w.matches('*').count()).sum::<usize>();
        let base: Vec<&str> = words.iter().map(|w| w.trim_matches('*')).filter(|w| !w.is_empty()).collect();
        let base = match base.as_slice() {
            [one] => self.number(one).unwrap_or_else(|| one.to_string()),
            more if !matches!(more[0], "struct" | "union" | "enum") => {
                self.number(&more.join(" ")).unwrap_or_else(|| more.join(" "))
            }
            more => more.join(" "),
        };
        format!("{base}{}", "*".repeat(stars))
    }

    /// `u32` for `unsigned int` and all typedefs of it; `None` if `name` is no number.
    fn number(&self, name: &str) -> Option<String> {
        let spelled = match name {
            "unsigned" | "unsigned int" => return Some("u32".into()),
            "int" | "signed" | "signed int" => return Some("s32".into()),
            "long" | "long int" | "long long" | "long long int" => return Some("s64".into()),
            "unsigned long" | "long unsigned int" | "unsigned long long" | "long long unsigned int" => {
                return Some("u64".into());
            }
            "short" => "short int",
            "unsigned short" => "short unsigned int",
            other => other,
        };
        let found = self.named(spelled, |t| matches!(t, Type::Typedef(_) | Type::Int(_))).ok()??;
        match self.skip(found, |t| matches!(t, Type::Typedef(_)) || is_modifier(t)).ok()? {
            Type::Int(i) if i.is_bool() => Some("bool".into()),
            Type::Int(i) => Some(format!("{}{}", if i.is_signed() { 's' } else { 'u' }, i.size() * 8)),
            _ => None,
        }
    }
}

fn is_modifier(ty: &Type) -> bool {
    matches!(ty, Type::Const(_) | Type::Volatile(_) | Type::Restrict(_) | Type::TypeTag(_))
}

/// The names that a schema's C mentions.
struct Words {
    all: BTreeSet<String>,
    /// Those behind `struct` or `union`.
    tags: Vec<String>,
    /// Those behind `enum`.
    enums: BTreeSet<String>,
}

impl Words {
    fn of(schema: &Schema) -> Words {
        let mut words = Words { all: BTreeSet::new(), tags: Vec::new(), enums: BTreeSet::new() };
        let params = schema.probes.iter().flat_map(|p| &p.targets).flat_map(|t| &t.params);
        for Param { ty, .. } in params {
            words.add(ty);
        }
        for block in schema.code.iter().chain(schema.probes.iter().map(|p| &p.body)) {
            words.add(&block.text);
        }
        words
    }

    fn add(&mut self, c: &str) {
        let mut before = "";
        for word in c.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| !w.is_empty()) {
            if matches!(before, "struct" | "union") {
                self.tags.push(word.to_string());
            }
            if before == "enum" {
                self.enums.insert(word.to_string());
            }
            self.all.insert(word.to_string());
            before = word;
        }
    }
}

#[derive(PartialEq)]
enum Progress {
    Begun,
    Done,
}

struct Declarations<'a> {
    types: &'a KernelTypes,
    words: &'a mut Words,
    /// Structures, and enumerators.
    done: BTreeMap<String, Progress>,
    text: String,
}

const HEAD: &str = "\
/* SPDX-License-Identifier: GPL-2.0-only */
/* Types of the kernel that the schema uses; members that it does not use are left out. */
";
const PUSH: &str = "#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)\n";
const POP: &str = "#pragma clang attribute pop\n";

/// Names that the runtime or the compiler defines.
const OWN: &[&str] =
    &["bool", "true", "false", "NULL", "size_t", "int", "char", "long", "short", "unsigned", "signed", "void"];

impl Declarations<'_> {
    fn run(&mut self) -> Result<()> {
        // size_t and bool are always at hand, as in the kernel.
        self.text += "typedef _Bool bool;\ntypedef unsigned long size_t;\n";
        for tag in std::mem::take(&mut self.words.enums) {
            // The type alone; of its constants only those that the schema mentions are declared.
            let _ = writeln!(self.text, "enum {tag} {{ klogger_enum_{tag} }};");
        }
        self.enumerators()?;
        let words: Vec<String> = self.words.all.iter().cloned().collect();
        for word in words.iter().filter(|w| !OWN.contains(&w.as_str()) && !w.starts_with("__")) {
            self.typedef(word)?;
        }
        while let Some(tag) = self.words.tags.pop() {
            self.aggregate_by_name(&tag)?;
        }
        Ok(())
    }

    /// `typedef` for names like pid_t, sector_t, atomic_t.
    fn typedef(&mut self, name: &str) -> Result<()> {
        let Some(found) = self.types.named(name, |t| matches!(t, Type::Typedef(_)))? else { return Ok(()) };
        let target = self.types.target_of(&found)?;
        let declaration = self.declare(target, name, 0)?;
        let _ = writeln!(self.text, "typedef {declaration};");
        Ok(())
    }

    /// Constants of the kernel's enums, by the value that they have where the object is loaded.
    fn enumerators(&mut self) -> Result<()> {
        let looks = |w: &&String| w.chars().any(|c| c.is_ascii_uppercase()) && !OWN.contains(&w.as_str());
        let wanted: BTreeSet<String> = self.words.all.iter().filter(looks).cloned().collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for ty in self.types.all() {
            let Type::Enum(e) = &ty else { continue };
            let tag = self.types.name(&ty);
            for member in &e.members {
                let Ok(name) = self.types.btf.resolve_name(member) else { continue };
                if !wanted.contains(&name) || self.done.insert(name.clone(), Progress::Done).is_some() {
                    continue;
                }
                let value = if e.is_signed() { (member.val() as i32).to_string() } else { member.val().to_string() };
                if tag.is_empty() {
                    let _ = writeln!(self.text, "enum {{ {name} = {value} }};");
                } else {
                    let _ = writeln!(
                        self.text,
                        "enum {tag}___{name} {{ {name} = {value} }};\n#define {name} __builtin_preserve_enum_value(*(enum {tag}___{name} *){name}, 1)"
                    );
                }
            }
        }
        Ok(())
    }

    fn aggregate_by_name(&mut self, tag: &str) -> Result<()> {
        if let Some(found) = self.types.named(tag, |t| matches!(t, Type::Struct(_) | Type::Union(_)))? {
            self.aggregate(&found, tag, 0)?;
        }
        Ok(())
    }

    /// Defines a named structure, after all that it holds by value.
    fn aggregate(&mut self, ty: &Type, tag: &str, depth: u32) -> Result<()> {
        if self.done.contains_key(tag) || depth > DEPTH_MAX {
            return Ok(());
        }
        self.done.insert(tag.to_string(), Progress::Begun);
        let body = self.members(ty, depth)?;
        let _ = writeln!(self.text, "{} {tag} {{\n{body}}};", keyword(ty));
        self.done.insert(tag.to_string(), Progress::Done);
        Ok(())
    }

    /// The members that the schema mentions; of anonymous ones, what is left of them.
    fn members(&mut self, ty: &Type, depth: u32) -> Result<String> {
        let (Type::Struct(s) | Type::Union(s)) = ty else { return Ok(String::new()) };
        let mut body = String::new();
        for member in &s.members {
            let name = self.types.btf.resolve_name(member).unwrap_or_default();
            let declaration = if name.is_empty() {
                let inner = self.types.skip(self.types.by_id(member.get_type_id())?, is_modifier)?;
                let text = self.members(&inner, depth + 1)?;
                if text.is_empty() { continue } else { format!("{} {{\n{text}}}", keyword(&inner)) }
            } else if self.words.all.contains(&name) {
                self.member(member, &name, depth)?
            } else {
                continue;
            };
            let _ = writeln!(body, "\t{declaration};");
        }
        Ok(body)
    }

    fn member(&mut self, member: &Member, name: &str, depth: u32) -> Result<String> {
        let ty = self.types.by_id(member.get_type_id())?;
        let declaration = self.declare(ty, name, depth + 1)?;
        Ok(match member.bitfield_size() {
            Some(bits) if bits > 0 => format!("{declaration} : {bits}"),
            _ => declaration,
        })
    }

    /// A C declaration of `name` with this type.
    fn declare(&mut self, ty: Type, name: &str, depth: u32) -> Result<String> {
        if depth > DEPTH_MAX {
            return Err(Error(format!("the type of {name} in the kernel's type information has no end")));
        }
        let ty = self.types.skip(ty, |t| is_modifier(t) || matches!(t, Type::Typedef(_)))?;
        let tag = self.types.name(&ty);
        Ok(match &ty {
            Type::Int(i) if i.is_bool() => format!("_Bool {name}"),
            // The kernel's plain char is unsigned; C here wants the plain one all the same.
            Type::Int(_) if tag == "char" => format!("char {name}"),
            Type::Int(i) => format!("{} {name}", int_type(i.size(), i.is_signed())),
            Type::Enum(e) => format!("{} {name}", int_type(e.size(), e.is_signed())),
            Type::Enum64(e) => format!("{} {name}", int_type(e.size(), e.is_signed())),
            Type::Ptr(_) => {
                let target = self.types.target_of(&ty)?;
                self.pointer(target, &format!("*{name}"), depth + 1)?
            }
            Type::Array(a) => {
                let element = self.types.by_id(ty.as_btf_type().and_then(|t| t.get_type_id()))?;
                self.declare(element, &format!("{name}[{}]", a.len()), depth + 1)?
            }
            Type::Struct(_) | Type::Union(_) if tag.is_empty() => {
                format!("{} {{\n{}}} {name}", keyword(&ty), self.members(&ty, depth + 1)?)
            }
            Type::Struct(_) | Type::Union(_) => {
                self.aggregate(&ty, &tag, depth + 1)?;
                format!("{} {tag} {name}", keyword(&ty))
            }
            _ => format!("void *{name}"),
        })
    }

    /// Behind a pointer a structure need not be complete yet; it is put on the list.
    fn pointer(&mut self, target: Type, name: &str, depth: u32) -> Result<String> {
        let target = self.types.skip(target, |t| is_modifier(t) || matches!(t, Type::Typedef(_)))?;
        let tag = self.types.name(&target);
        Ok(match &target {
            Type::Struct(_) | Type::Union(_) if !tag.is_empty() => {
                self.words.tags.push(tag.clone());
                format!("{} {tag} {name}", keyword(&target))
            }
            Type::Fwd(f) => format!("{} {tag} {name}", if f.is_struct() { "struct" } else { "union" }),
            Type::Void | Type::FuncProto(_) => format!("void {name}"),
            Type::Array(_) => self.declare(target, &format!("({name})"), depth)?,
            _ => self.declare(target, name, depth)?,
        })
    }
}

fn keyword(ty: &Type) -> &'static str {
    if matches!(ty, Type::Union(_)) { "union" } else { "struct" }
}

fn int_type(size: usize, signed: bool) -> &'static str {
    match (size, signed) {
        (1, true) => "signed char",
        (1, false) => "unsigned char",
        (2, true) => "short",
        (2, false) => "unsigned short",
        (4, true) => "int",
        (4, false) => "unsigned int",
        (_, true) => "long long",
        (_, false) => "unsigned long long",
    }
}
