//! Programs in files: a program is one section of a file in the format of checkpoints.

use std::io::Read;
use std::path::Path;

use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::operator::attributes::{Attributes, Literal};
use crate::program::description::program::Program;
use crate::program::description::var_desc::VarKind;
use crate::program::stored::{MAX_LITERAL_DEPTH, StoredProgram};
use crate::wire::record;
use crate::wire::stored::StoredForm;
use crate::wire::{self, Reader, Writer};

/// The name of the section that holds a program.
pub(crate) const SECTION: &str = "program";

impl Program {
    /// Writes the program to a file; if writing fails, an existing file is unchanged.
    ///
    /// ```
    /// use unpadded::{Builder, DType, Program};
    /// let net = Builder::new();
    /// net.feed("words", DType::I64, &[], 1);
    /// let program = net.finish()?;
    /// let path = std::env::temp_dir().join(format!("unpadded-doc-{}.program", std::process::id()));
    /// program.save(&path)?;
    /// assert_eq!(Program::load(&path)?, program);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the operating system refuses to write, or if [`Self::to_bytes`] fails.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let body = self.to_section()?;
        wire::write_atomically(path.as_ref(), |writer| writer.write_section(SECTION, &body))
    }

    /// Reads a program from a file; the file may have other sections, too. Loading a program requires no registry of operators.
    ///
    /// # Errors
    /// Fails if the file is damaged, is not in the format of checkpoints, has a future version, or contains no well-formed
    /// program.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_file(path.as_ref()).at_caller()
    }

    /// Reads a program as [`Self::load`] does. This function is not generic, so it is compiled only once, not in every calling
    /// crate.
    fn load_file(path: &Path) -> Result<Self> {
        Self::read(wire::open(path)?)
    }

    /// Returns the bytes that [`Self::save`] writes.
    ///
    /// # Errors
    /// Fails if the program is not well formed, if it is longer than 16 MiB, or if a literal has lists that are nested deeper
    /// than 16 levels.
    #[track_caller]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut writer = Writer::new(Vec::new())?;
        writer.write_section(SECTION, &self.to_section()?)?;
        writer.finish()
    }

    /// Reads a program from the bytes of a file, as [`Self::load`] does from a file.
    ///
    /// # Errors
    /// Fails if the bytes are damaged, are not in the format of checkpoints, have a future version, or contain no well-formed
    /// program.
    #[track_caller]
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::read(Reader::new("bytes of a program", bytes, bytes.len() as u64)?).at_caller()
    }

    /// Returns the body of the section that stores the program in a file.
    ///
    /// # Errors
    /// Fails under the conditions of [`Self::to_bytes`].
    #[doc(hidden)]
    #[track_caller]
    pub fn to_section(&self) -> Result<Vec<u8>> {
        self.validate()?;
        let attributes = |a: &Attributes| a.iter().any(|(_, l)| too_deep(l, MAX_LITERAL_DEPTH));
        let deep_var = self.vars.iter().any(|var| {
            let initializer = var.initializer.as_ref().is_some_and(|i| attributes(&i.attributes));
            initializer || matches!(&var.kind, VarKind::Literal(l) if too_deep(l, MAX_LITERAL_DEPTH))
        });
        if deep_var || self.ops().any(|op| attributes(&op.attributes)) {
            let expected = format!("at most {MAX_LITERAL_DEPTH} nested lists");
            return Err(Error::of(ErrorKind::Program, "literal", expected, "more"));
        }
        let body = record::to_bytes(&StoredProgram::of(self));
        if body.len() as u64 > wire::STRUCTURED {
            let (expected, got) = (format!("at most {} bytes", wire::STRUCTURED), body.len().to_string());
            return Err(Error::of(ErrorKind::Program, "program to save", expected, got));
        }
        Ok(body)
    }

    /// Reads a program from the body of its section in a file.
    ///
    /// # Errors
    /// Fails if the body contains no program, or if the program is not well formed.
    #[doc(hidden)]
    #[track_caller]
    pub fn from_section(body: &[u8]) -> Result<Self> {
        Self::of_stored(record::from_bytes(body).at_caller()?)
    }

    /// Converts a stored program to a `Program`, and checks that it is well formed.
    #[track_caller]
    pub(crate) fn of_stored(stored: StoredProgram) -> Result<Self> {
        let malformed = |e: Error| {
            Error::of(ErrorKind::Format, "program", "a well-formed program", format!("{e:#}")).caused_by(e)
        };
        let mut program: Self = stored.read().map_err(malformed).at_caller()?;
        program.validate().map_err(malformed).at_caller()?;
        program.names.settle(&program.vars);
        Ok(program)
    }

    fn read(mut reader: Reader<impl Read>) -> Result<Self> {
        let mut program = None;
        while let Some(name) = reader.next_section()? {
            if name == SECTION {
                program = Some(Self::of_stored(reader.read_stored(wire::STRUCTURED)?)?);
            }
        }
        program.ok_or_else(|| Error::of(ErrorKind::Format, "file", "a section `program`", "none"))
    }
}

/// Returns whether the lists in a literal are nested deeper than `depth`.
fn too_deep(literal: &Literal, depth: usize) -> bool {
    match literal {
        Literal::List(_) if depth == 0 => true,
        Literal::List(items) => items.iter().any(|item| too_deep(item, depth - 1)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{BlockId, Spec};
    use crate::program::{StopGradient, VarDesc, VarRole};
    use crate::tensor::{DType, StorageKind};

    /// Returns a program with a step block and gradients; no registry of operators is used to make it.
    fn program() -> Program {
        crate::program::description::display::tests::small_program()
    }

    #[test]
    fn a_program_comes_back_and_prints_the_same() {
        let before = program();
        let after = Program::from_bytes(&before.to_bytes().unwrap()).unwrap();
        assert_eq!(after, before);
        assert_eq!((after.to_string(), after.dot()), (before.to_string(), before.dot()));
    }

    #[test]
    fn closed_lists_are_stored_by_name() {
        let mut rows = Program::new();
        let spec = Spec { storage: StorageKind::SelectedRows, ..Spec::fixed(DType::I64, &[]).unwrap() };
        rows.add_computed("x", BlockId(0), spec, VarRole::Computed, StopGradient::No);
        let bytes = record::to_bytes(&StoredProgram::of(&rows));
        for name in ["selected_rows", "i64"] {
            assert!(bytes.windows(name.len()).any(|w| w == name.as_bytes()), "{name}");
        }
        let bytes = program().to_bytes().unwrap();
        for name in ["forward", "parameter", "feed", "dense", "f32"] {
            assert!(bytes.windows(name.len()).any(|w| w == name.as_bytes()), "{name}");
        }
        let other = record::from_bytes::<record::NamedEntry<DType>>(b"f33").err().unwrap();
        assert!(other.to_string().contains("one of f32, f64"), "{other}");
    }

    /// The test changes each byte and corrects the checksum, so that the decoder reads the changed byte. A program that still
    /// loads must print without a panic.
    #[test]
    fn no_changed_byte_panics() {
        let body = program().to_section().unwrap();
        let mut loaded = 0;
        for at in 0..body.len() {
            for change in [1, 0x80, 0xff] {
                let mut body = body.clone();
                body[at] ^= change;
                match Program::from_section(&body) {
                    Ok(program) => {
                        loaded += 1;
                        let _ = (program.to_string(), program.dot());
                    }
                    Err(e) => assert_eq!(e.kind(), ErrorKind::Format, "{e}"),
                }
            }
            assert!(Program::from_section(&body[..at]).is_err());
        }
        assert!(loaded > 0);
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_an_overflow() {
        let nest = |depth| (0..depth).fold(Literal::Int(1), |l, _| Literal::List(vec![l]));
        let with = |literal| {
            let mut program = Program::new();
            let var = VarDesc {
                stop_gradient: true,
                ..VarDesc::new("x", BlockId(0), VarKind::Literal(literal), VarRole::Literal)
            };
            program.add_var(var).unwrap();
            program
        };
        let fits = with(nest(MAX_LITERAL_DEPTH));
        assert_eq!(Program::from_bytes(&fits.to_bytes().unwrap()).unwrap(), fits);
        assert_eq!(with(nest(MAX_LITERAL_DEPTH + 1)).to_bytes().unwrap_err().kind(), ErrorKind::Program);
        // A file may contain values that no program of this crate has, such as deeply nested lists.
        let deep = with(nest(MAX_LITERAL_DEPTH + 1));
        let error = Program::from_section(&record::to_bytes(&StoredProgram::of(&deep))).unwrap_err();
        assert!(error.to_string().contains("expected at most 16 nested lists, got more"), "{error}");
        let deeper = record::to_bytes(&StoredProgram::of(&with(nest(500))));
        let error = Program::from_section(&deeper).unwrap_err();
        assert!(error.to_string().contains("expected at most 64 nested values, got more"), "{error}");
    }

    #[test]
    fn errors_of_files_name_them() {
        let missing = Program::load("no such folder/x.program").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Io);
        assert!(missing.to_string().contains("`no such folder/x.program`"));
        let empty = Writer::new(Vec::new()).unwrap().finish().unwrap();
        let error = Program::from_bytes(&empty).unwrap_err();
        assert_eq!(error.to_string(), "file: expected a section `program`, got none");
    }

    #[test]
    fn what_is_not_well_formed_is_refused_on_both_ways() {
        let mut broken = program();
        broken.blocks[0].parent = Some(BlockId(0));
        assert_eq!(broken.to_bytes().unwrap_err().kind(), ErrorKind::Program);
        let error = Program::from_section(&record::to_bytes(&StoredProgram::of(&broken))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format);
    }
}
