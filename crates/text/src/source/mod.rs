//! Files of text: paths, folders and archives, encodings, lines, and the records in lines.

pub(crate) mod archive;
pub(crate) mod encoding;
pub(crate) mod folder;
mod gzip;
mod head;
pub(crate) mod kind;
pub(crate) mod lines;
pub(crate) mod parts;
pub(crate) mod path_text;
pub(crate) mod paths;
pub(crate) mod reason;
pub(crate) mod records;
pub(crate) mod skipped;
pub(crate) mod text_file;
pub(crate) mod watched;
