// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Declarations of kernel types for the C of a schema: only the structures that it uses, and of
//! these only the members whose names it mentions. So compiling takes milliseconds instead of the
//! second that a whole `vmlinux.h` takes. What is left out is replaced by gaps of its size. So
//! sizes, offsets and pointer arithmetic are those of the kernel that the types are from. On other
//! kernels, CO-RE finds members by name when the object is loaded; nothing else is relocated.
//!
//! CO-RE relocates the bytes of a bit field, but the compiler may read others. So structures with a
//! bit field that a schema mentions have no CO-RE relocations, and an object for several kernels
//! does not have these bit fields.

mod enums;
mod scalars;

use super::{DEPTH_MAX, Error, KernelTypes, Result, Runs, is_modifier};
use btf_rs::{Array, BtfType, Struct, Type};
use klogger_schema::model::{Param, Schema};
use scalars::{Declared, crosses, declared, keyword, number};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

pub fn header(types: &KernelTypes, schema: &Schema, runs: Runs) -> Result<String> {
    let mut words = Words::of(schema);
    let mut out = Declarations {
        all: types.nameable(schema),
        types,
        runs,
        words: &mut words,
        enumerators: BTreeSet::new(),
        aligned: BTreeMap::new(),
        gaps: 0,
        text: String::new(),
    };
    out.run()?;
    Ok(format!("{HEAD}{}", out.text))
}

/// The names that a schema's C mentions.
struct Words {
    all: BTreeSet<String>,
    /// Names after `struct` or `union`.
    tags: Vec<String>,
    /// Names after `enum`.
    enums: BTreeSet<String>,
    /// `struct NAME` of parameters.
    of_parameters: BTreeSet<String>,
}

impl Words {
    fn of(schema: &Schema) -> Words {
        let mut words = Words {
            all: BTreeSet::new(),
            tags: Vec::new(),
            enums: BTreeSet::new(),
            of_parameters: BTreeSet::new(),
        };
        let params = schema.probes.iter().flat_map(|p| &p.targets).flat_map(|t| &t.params);
        for Param { ty, .. } in params {
            words.add(ty);
            let structures = ty.split(['*', ',']).map(str::trim);
            let structures = structures.map(|t| t.trim_start_matches("const ").to_string());
            let is_one = |t: &String| t.starts_with("struct ") && t.split(' ').count() == 2;
            words.of_parameters.extend(structures.filter(is_one));
        }
        for block in schema.code.iter().chain(schema.probes.iter().map(|p| &p.body)) {
            words.add(&block.text);
        }
        words
    }

    fn add(&mut self, c: &str) {
        let mut before = "";
        for word in
            c.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| !w.is_empty())
        {
            if matches!(before, "struct" | "union") {
                self.tags.push(word.to_string());
            }
            if before == "enum" {
                self.enums.insert(word.to_string());
            }
            if word == "klogger_current" {
                self.tags.push("task_struct".into());
            }
            self.all.insert(word.to_string());
            before = word;
        }
    }
}

struct Declarations<'a> {
    /// Those in which names are looked for: the kernel's, and those of modules.
    all: Vec<&'a KernelTypes>,
    /// Those of what is being declared.
    types: &'a KernelTypes,
    runs: Runs,
    words: &'a mut Words,
    enumerators: BTreeSet<String>,
    /// Structures that are declared, or about to be, and their alignment.
    aligned: BTreeMap<String, usize>,
    /// Number of gaps, for their names.
    gaps: usize,
    text: String,
}

/// The body of a structure that is being declared.
struct Body {
    text: String,
    /// The first bit after all members so far.
    end: usize,
    align: usize,
    bits: bool,
    /// A member is not at its natural offset.
    packed: bool,
}

/// Bytes of a pointer.
const POINTER: usize = 8;
const HEAD: &str = "\
/* SPDX-License-Identifier: GPL-2.0-only */
/* Types of the kernel that the schema uses, with gaps for the members that it does not use. */
";
const CORE: &str = " __attribute__((preserve_access_index))";

/// Names that the runtime or the compiler defines.
const OWN: &[&str] = &[
    "bool", "true", "false", "NULL", "size_t", "int", "char", "long", "short", "unsigned",
    "signed", "void",
];

impl Declarations<'_> {
    fn run(&mut self) -> Result<()> {
        // size_t and bool are always declared, as in the kernel.
        self.text += "typedef _Bool bool;\ntypedef unsigned long size_t;\n";
        for tag in std::mem::take(&mut self.words.enums) {
            self.enum_type(&tag)?;
        }
        self.enumerators()?;
        let words: Vec<String> = self.words.all.iter().cloned().collect();
        for word in words.iter().filter(|w| !OWN.contains(&w.as_str()) && !w.starts_with("__")) {
            self.typedef(word)?;
        }
        while let Some(tag) = self.words.tags.pop() {
            self.aggregate_by_name(&tag)?;
        }
        // Those that the kernel lacks: a pointer to one can be passed on.
        for structure in &self.words.of_parameters {
            let tag = structure.split(' ').nth(1).unwrap_or_default();
            if !self.aligned.contains_key(tag) {
                let _ = writeln!(self.text, "{structure};");
            }
        }
        Ok(())
    }

    /// A type by its name, in the first types that have it; what it consists of is then looked up
    /// there.
    fn find(&mut self, name: &str, wanted: impl Fn(&Type) -> bool) -> Result<Option<Type>> {
        for types in &self.all {
            if let Some(found) = types.named(name, &wanted)? {
                self.types = types;
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// `typedef` for names like pid_t, sector_t, atomic_t.
    fn typedef(&mut self, name: &str) -> Result<()> {
        let Some(found) = self.find(name, |t| matches!(t, Type::Typedef(_)))? else {
            return Ok(());
        };
        let target = self.types.target_of(&found)?;
        let Declared { text, bits, .. } = self.declare(target, name, 0)?;
        // For a structure without a name the typedef is its only name.
        let text = match text.strip_suffix(&format!("}} {name}")) {
            Some(before) if !bits => format!("{before}}}{CORE} {name}"),
            _ => text,
        };
        let _ = writeln!(self.text, "typedef {text};");
        Ok(())
    }

    fn aggregate_by_name(&mut self, tag: &str) -> Result<()> {
        if let Some(found) = self.find(tag, |t| matches!(t, Type::Struct(_) | Type::Union(_)))? {
            self.aggregate(&found, tag, 0)?;
        }
        Ok(())
    }

    /// Defines a named structure, after all that it contains by value.
    fn aggregate(&mut self, ty: &Type, tag: &str, depth: u32) -> Result<usize> {
        if let Some(align) = self.aligned.get(tag) {
            return Ok(*align);
        }
        if depth > DEPTH_MAX {
            return Err(Error(format!(
                "the type of {tag} in the kernel's type information has no end"
            )));
        }
        self.aligned.insert(tag.to_string(), 1);
        let Declared { text, align, bits } = self.structure(ty, tag, depth)?;
        let (size, word) = (self.size(ty, 0)?, keyword(ty));
        let core = if bits { "" } else { CORE };
        let _ = writeln!(
            self.text,
            "{text}{core};\n_Static_assert(sizeof({word} {tag}) == {size}, \"its size\");"
        );
        self.aligned.insert(tag.to_string(), align);
        Ok(align)
    }

    /// `struct TAG { ... }`, with the size that it has in the kernel.
    fn structure(&mut self, ty: &Type, tag: &str, depth: u32) -> Result<Declared> {
        let mut body = Body { text: String::new(), end: 0, align: 1, bits: false, packed: false };
        if let Type::Struct(s) | Type::Union(s) = ty {
            self.members(s, matches!(ty, Type::Union(_)), &mut body, depth)?;
            if matches!(ty, Type::Union(_)) {
                body.end = 0;
            }
            self.gap(&mut body, 8 * s.size());
            body.packed |= s.size() % body.align != 0;
        }
        if body.packed {
            // As aligned as its size allows, because otherwise its members would be read byte by
            // byte.
            body.align = 1 << (body.end / 8).trailing_zeros().min(3);
        }
        let packed = if body.packed {
            format!(" __attribute__((packed, aligned({})))", body.align)
        } else {
            String::new()
        };
        let space = if tag.is_empty() { "" } else { " " };
        let text = format!("{}{packed}{space}{tag} {{\n{}}}", keyword(ty), body.text);
        Ok(Declared { text, align: body.align, bits: body.bits })
    }

    /// Members that the schema mentions; anonymous ones with what is left of them.
    fn members(&mut self, of: &Struct, union: bool, body: &mut Body, depth: u32) -> Result<()> {
        for member in &of.members {
            let name = self.types.btf.resolve_name(member).unwrap_or_default();
            let ty = self.types.by_id(member.get_type_id())?;
            let wanted = if name.is_empty() {
                self.mentions(&ty, depth)?
            } else {
                self.words.all.contains(&name)
            };
            let bits = member.bitfield_size().filter(|bits| *bits > 0);
            if !wanted || bits.is_some() && self.runs == Runs::Anywhere {
                continue;
            }
            let Declared { mut text, align, bits: inner } =
                self.declare(ty.clone(), &name, depth + 1)?;
            if let Some(bits) = bits {
                let _ = write!(text, " : {bits}");
            }
            let at = member.bit_offset() as usize;
            if !union {
                self.gap(body, at);
            }
            let _ = writeln!(body.text, "\t{text};");
            body.end = at + bits.map_or(8 * self.size(&ty, 0)?, |bits| bits as usize);
            body.align = body.align.max(align);
            body.bits |= inner || bits.is_some();
            body.packed |= bits.is_none() && !at.is_multiple_of(8 * align)
                || bits.is_some_and(|bits| crosses(at, bits, align));
        }
        Ok(())
    }

    /// Whether an anonymous structure has members that the schema mentions.
    fn mentions(&self, ty: &Type, depth: u32) -> Result<bool> {
        let (Type::Struct(s) | Type::Union(s)) = self.types.skip(ty.clone(), is_modifier)? else {
            return Ok(false);
        };
        for member in s.members.iter().filter(|_| depth <= DEPTH_MAX) {
            let name = self.types.btf.resolve_name(member).unwrap_or_default();
            let found = match name.is_empty() {
                true => self.mentions(&self.types.by_id(member.get_type_id())?, depth + 1)?,
                false => self.words.all.contains(&name),
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A gap for what is left out, up to the bit `to`.
    fn gap(&mut self, body: &mut Body, to: usize) {
        if to <= body.end {
            return;
        }
        let (bytes, bits) = ((to / 8).saturating_sub(body.end.div_ceil(8)), to % 8);
        if bytes > 0 {
            self.gaps += 1;
            let _ = writeln!(body.text, "\tchar klogger_gap{}[{bytes}];", self.gaps);
        } else if to / 8 > body.end / 8 && !body.end.is_multiple_of(8) {
            let _ = writeln!(body.text, "\tunsigned char : 0;");
        }
        let begun = if to / 8 == body.end / 8 { body.end % 8 } else { 0 };
        if bits > begun {
            let _ = writeln!(body.text, "\tunsigned char : {};", bits - begun);
        }
        body.end = to;
    }

    /// Bytes of a type.
    fn size(&self, ty: &Type, depth: u32) -> Result<usize> {
        let ty =
            self.types.skip(ty.clone(), |t| is_modifier(t) || matches!(t, Type::Typedef(_)))?;
        Ok(match &ty {
            Type::Int(i) => i.size(),
            Type::Enum(e) => e.size(),
            Type::Enum64(e) => e.size(),
            Type::Struct(s) | Type::Union(s) => s.size(),
            Type::Array(a) if depth <= DEPTH_MAX => {
                a.len() * self.size(&self.types.target_of(&ty)?, depth + 1)?
            }
            _ => POINTER,
        })
    }

    /// A C declaration of `name` with this type.
    fn declare(&mut self, ty: Type, name: &str, depth: u32) -> Result<Declared> {
        if depth > DEPTH_MAX {
            return Err(Error(format!(
                "the type of {name} in the kernel's type information has no end"
            )));
        }
        let ty = self.types.skip(ty, |t| is_modifier(t) || matches!(t, Type::Typedef(_)))?;
        let tag = self.types.name(&ty);
        match &ty {
            Type::Int(i) if i.is_bool() => declared(format!("_Bool {name}"), i.size()),
            // The kernel's plain char is unsigned; C here needs plain char all the same.
            Type::Int(_) if tag == "char" => declared(format!("char {name}"), 1),
            Type::Int(i) => number(i.size(), i.is_signed(), name),
            Type::Enum(e) => number(e.size(), e.is_signed(), name),
            Type::Enum64(e) => number(e.size(), e.is_signed(), name),
            Type::Ptr(_) => {
                let target = self.types.target_of(&ty)?;
                declared(self.pointer(target, &format!("*{name}"), depth + 1)?, POINTER)
            }
            Type::Array(a) => self.array(&ty, a, name, depth),
            Type::Struct(_) | Type::Union(_) if tag.is_empty() => {
                let Declared { text, align, bits } = self.structure(&ty, "", depth + 1)?;
                Ok(Declared { text: format!("{text} {name}"), align, bits })
            }
            Type::Struct(_) | Type::Union(_) => {
                let align = self.aggregate(&ty, &tag, depth + 1)?;
                declared(format!("{} {tag} {name}", keyword(&ty)), align)
            }
            _ => declared(format!("void *{name}"), POINTER),
        }
    }

    fn array(&mut self, ty: &Type, array: &Array, name: &str, depth: u32) -> Result<Declared> {
        let element = self.types.target_of(ty)?;
        self.declare(element, &format!("{name}[{}]", array.len()), depth + 1)
    }

    /// A structure behind a pointer need not be complete yet; it is queued.
    fn pointer(&mut self, target: Type, name: &str, depth: u32) -> Result<String> {
        let target =
            self.types.skip(target, |t| is_modifier(t) || matches!(t, Type::Typedef(_)))?;
        let tag = self.types.name(&target);
        Ok(match &target {
            Type::Struct(_) | Type::Union(_) if !tag.is_empty() => {
                self.words.tags.push(tag.clone());
                format!("{} {tag} {name}", keyword(&target))
            }
            Type::Fwd(f) => {
                format!("{} {tag} {name}", if f.is_struct() { "struct" } else { "union" })
            }
            Type::Void | Type::FuncProto(_) => format!("void {name}"),
            Type::Array(_) => self.declare(target, &format!("({name})"), depth)?.text,
            _ => self.declare(target, name, depth)?.text,
        })
    }
}
