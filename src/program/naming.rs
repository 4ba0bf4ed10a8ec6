//! Names of layers: what the variables of one layer have in common.

use super::builder::Builder;

impl Builder {
    /// The first part of the names of a layer's variables, as `lstm_0` in `lstm_0.weight_ih`: `wish` if it is free,
    /// `wish_2` and so on if not; without a wish the kind and the first free count.
    pub fn layer_name(&self, kind: &str, wish: Option<&str>) -> String {
        let state = self.state.borrow();
        let taken = |name: &str| {
            let member = |var: &str| var.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
            state.program.vars().any(|(_, var)| member(&var.name))
        };
        let mut number = 0;
        loop {
            let name = match (wish, number) {
                (Some(wish), 0) => wish.to_owned(),
                (Some(wish), n) => format!("{wish}_{}", n + 1),
                (None, n) => format!("{kind}_{n}"),
            };
            if !taken(&name) {
                return name;
            }
            number += 1;
        }
    }
}
