//! Names of layers and scopes, which are the prefixes of parameter names.

use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;

use super::builder::Builder;
use super::state::State;

/// A guard that keeps an item of a builder's state open, such as a scope. Dropping the guard closes the item, even in a panic.
pub(crate) struct ScopeGuard {
    state: Rc<RefCell<State>>,
    depth: usize,
    close: fn(&mut State, usize),
}

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        if let Ok(mut state) = self.state.try_borrow_mut() {
            (self.close)(&mut state, self.depth);
        }
    }
}

impl ScopeGuard {
    /// Opens an item by calling `open`. `open` returns the number of items that were open before; `close` later restores that
    /// number.
    pub(super) fn new(
        net: &Builder,
        open: impl FnOnce(&mut State) -> usize,
        close: fn(&mut State, usize),
    ) -> Self {
        let depth = open(&mut net.state.borrow_mut());
        Self { state: Rc::clone(&net.state), depth, close }
    }
}

impl Builder {
    /// Calls `part` to build a part of a model; the parameter names in the part begin with `name` and a dot. Scopes can be
    /// nested, and each scope counts its layers from 0.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[3], 1);
    /// let h = net.scope("encoder", |net| net.lstm(x, 4));
    /// net.linear(h, 2);
    /// let program = net.finish()?;
    /// let names: Vec<&str> = program.parameters().map(|id| program.var(id).name.as_str()).collect();
    /// assert_eq!(names[0], "encoder.lstm_0.weight_ih");
    /// assert_eq!(names[3], "linear_0.weight");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub fn scope<R>(&self, name: &str, part: impl FnOnce(&Builder) -> R) -> R {
        let name = self.state.borrow().scopes.whole(name);
        let _open = self.open_scope(name);
        part(self)
    }

    /// Returns the full name of the innermost open scope; an empty name if no scope is open.
    pub(crate) fn scope_name(&self) -> String {
        self.state.borrow().scopes.open.last().cloned().unwrap_or_default()
    }

    /// Opens the scope with the full name `name`; the scope is closed when the returned guard is dropped.
    pub(crate) fn open_scope(&self, name: String) -> ScopeGuard {
        let open = |state: &mut State| {
            state.scopes.open.push(name);
            state.scopes.open.len() - 1
        };
        ScopeGuard::new(self, open, |state, depth| state.scopes.open.truncate(depth))
    }

    /// Makes new operators and errors name the source line `caller` until the returned guard is dropped.
    pub(crate) fn called_from(&self, caller: &'static Location<'static>) -> ScopeGuard {
        let open = |state: &mut State| {
            state.scopes.lines.push(caller);
            state.scopes.lines.len() - 1
        };
        ScopeGuard::new(self, open, |state, depth| state.scopes.lines.truncate(depth))
    }

    /// Builds a layer that is written as a function: `part` contains the body of the function. The parameter names of the layer
    /// begin with `kind` and a count, as in `highway_0.weight`. The layer's operators and errors name the line that calls the
    /// function, even if they come from closures inside the function. For this, the function must be `#[track_caller]`. If a
    /// layer calls other layers, operators and errors name the line that calls the outermost layer.
    ///
    /// ```
    /// use unpadded::{Builder, DType, Var};
    ///
    /// #[track_caller]
    /// fn running_sum(net: &Builder, x: Var, width: usize) -> Var {
    ///     net.part("running_sum", |net| {
    ///         net.recurrent(x, |step, x_t| {
    ///             let before = step.memory(width);
    ///             let after = before + x_t;
    ///             step.update(before, after);
    ///             after
    ///         })
    ///     })
    /// }
    ///
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[3], 1);
    /// let line = line!() + 1;
    /// running_sum(&net, x, 3);
    /// let program = net.finish()?;
    /// for op in program.ops() {
    ///     assert!(op.caller.contains(&format!(":{line}:")), "{}", op.caller);
    /// }
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[track_caller]
    pub fn part<R>(&self, kind: &str, call: impl FnOnce(&Builder) -> R) -> R {
        let name = self.layer_name(kind, None);
        let (_line, _scope) = (self.called_from(Location::caller()), self.open_scope(name));
        call(self)
    }

    /// Returns a free name for a layer in the open scope. The name is `wish`, or `wish_2` and so on if `wish` is taken. If `wish`
    /// is `None`, the name is the kind and a count.
    pub(crate) fn layer_name(&self, kind: &str, wish: Option<&str>) -> String {
        let State { program, scopes, .. } = &mut *self.state.borrow_mut();
        scopes.layer_name(program, kind, wish)
    }
}
