//! Hard cases by name.
