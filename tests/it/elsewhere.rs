//! Layers and variables of another builder, and calls on another thread than the builder's.

use unpadded::layers::{Embedding, Instance, Layer, Linear, Lstm};
use unpadded::{Builder, DType, Var};

fn messages(net: &Builder) -> Vec<String> {
    net.check().err().iter().flat_map(|e| e.all()).map(ToString::to_string).collect()
}

fn feed(net: &Builder, name: &str) -> Var {
    net.feed(name, DType::F32, &[4], 1)
}

/// Before its weights are made and after.
#[test]
fn a_layer_of_another_builder_is_refused() {
    fn refused<L: Layer>(layer: impl Fn(&Builder) -> Instance<L>, called: bool, name: &str) {
        let (own, other) = (Builder::new(), Builder::new());
        let (x, foreign) = (feed(&own, "x"), feed(&other, "foreign"));
        let layer = layer(&own);
        if called {
            layer.of(x);
        }
        let line = line!() + 1;
        let y = layer.of(foreign);
        assert_eq!(format!("{y:?}"), "unknown");
        let found = messages(&other);
        let [found] = &found[..] else { panic!("one message: {found:?}") };
        let text = format!(
            "variable `foreign`: input of layer `{name}`: expected a variable of the builder that made the layer, got a variable of \
             another builder"
        );
        assert!(
            found.ends_with(
                "; `Builder::layer` of the variable's builder makes a layer that accepts the variable"
            ),
            "{found}"
        );
        assert!(found.contains(&text) && found.contains(&format!("elsewhere.rs:{line}:")), "{found}");
        assert!(other.program().is_err());
        // The layer is as it was.
        layer.of(x);
        assert_eq!(messages(&own), [""; 0]);
        assert!(own.program().unwrap().parameters().count() > 0);
    }
    for called in [false, true] {
        refused(|net| net.layer(Lstm::new(3)), called, "lstm_0");
        refused(|net| net.layer(Linear::new(3).named("out")), called, "out");
    }
    let (own, other) = (Builder::new(), Builder::new());
    let foreign = feed(&other, "foreign");
    own.layer(Lstm::new(3)).states(foreign);
    let table = own.layer(Embedding::new(9, 4));
    foreign.linear(Linear::tied(&table));
    let found = messages(&other);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].contains("input of layer `lstm_0`") && found[1].contains("input of layer `embedding_0`")
    );
}

#[test]
fn a_variable_of_another_builder_is_named() {
    let (own, other) = (Builder::new(), Builder::new());
    let _ = feed(&own, "x") + feed(&other, "foreign");
    let found = messages(&own);
    assert_eq!(found.len(), 1, "{found:?}");
    let text = "add #0: variable: expected a variable of this builder, got `foreign` of another builder";
    assert!(found[0].starts_with(text), "{found:?}");
}

/// The builder records the error, and the missing result is no silent hole in its program.
#[test]
fn a_call_on_another_thread_is_an_error_of_the_builder() {
    let net = Builder::new();
    let x = feed(&net, "x");
    let line = line!() + 2;
    let elsewhere = std::thread::spawn(move || {
        let y = (x * 2.0).tanh() + 1.0;
        let own = Builder::new();
        own.feed("a", DType::F32, &[1], 0);
        assert!(own.finish().is_ok());
        y
    });
    let y = elsewhere.join().unwrap();
    y.tanh();
    let found = messages(&net);
    let [found] = &found[..] else { panic!("one message: {found:?}") };
    let text = "variable: expected a call on the thread of its builder, got a call on another thread";
    assert!(
        found.ends_with("; a program is built on one thread: the thread that made its builder"),
        "{found}"
    );
    assert!(found.contains(text) && found.contains(&format!("elsewhere.rs:{line}:")), "{found}");
    assert!(net.finish().is_err());
}
