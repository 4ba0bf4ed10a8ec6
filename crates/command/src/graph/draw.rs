//! A program as an SVG picture: boxes of operators with their parameters, and arrows of variables. A step block is inside a box.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use unpadded::Program;
use unpadded::program::{BlockId, OpDesc, Role, VarDesc, VarId, VarKind, VarRole};

use super::arrange::{GraphLayout, Pair, arrange};
use crate::report::escape;

/// The width of a character of the small font, the height of a line of text, and the margin, in SVG units.
const CHARACTER: f64 = 6.7;
const LINE: f64 = 16.0;
const MARGIN: f64 = 10.0;

const STYLE: &str = "
  svg { color-scheme: light dark; --page: #f8f7f4; --box: #fff; --ink: #1c2127; --soft: #58616c; --rule: #8b95a1; --feed: #dbe9f6; --memory: #efe4fa; --step: #00000008; --back: #b3261e; --update: #1b7446; }
  @media (prefers-color-scheme: dark) { svg { --page: #14171b; --box: #22272e; --ink: #e4e7eb; --soft: #a0a9b4; --rule: #6b7480; --feed: #1f3a52; --memory: #3b2d50; --step: #ffffff0a; --back: #ff9188; --update: #72c796; } }
  .page { fill: var(--page); } text { font: 11px ui-monospace, \"DejaVu Sans Mono\", \"Liberation Mono\", monospace; fill: var(--soft); }
  .kind { font: 600 13px system-ui, \"Segoe UI\", Roboto, \"Noto Sans\", \"Liberation Sans\", sans-serif; fill: var(--ink); }
  .box { fill: var(--box); stroke: var(--rule); } .backward { stroke: var(--back); } .update { stroke: var(--update); }
  .feed { fill: var(--feed); stroke: none; } .memory { fill: var(--memory); stroke: none; } .step { fill: var(--step); stroke: var(--rule); stroke-dasharray: 4 3; }
  path { fill: none; stroke: var(--rule); stroke-width: 1.3; } marker path { fill: var(--rule); stroke: none; }
";

struct Picture {
    body: String,
    size: Pair,
}

/// A box of the picture, to which arrows lead.
struct Node {
    class: &'static str,
    lines: Vec<String>,
    /// The picture of the step block that the operator runs, below the lines of text.
    inside: Option<Picture>,
}

impl Node {
    fn lines_size(&self) -> Pair {
        let longest = self.lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        [longest as f64 * CHARACTER + 2.0 * MARGIN, self.lines.len() as f64 * LINE + MARGIN]
    }

    fn size(&self) -> Pair {
        let [width, height] = self.lines_size();
        match &self.inside {
            Some(inside) => {
                [width.max(inside.size[0] + 2.0 * MARGIN), height + inside.size[1] + 2.0 * MARGIN]
            }
            None => [width, height],
        }
    }

    fn draw(&self, out: &mut String, [x, y]: Pair) {
        let [width, height] = self.size();
        let round = if matches!(self.class, "feed" | "memory") { 12 } else { 5 };
        let class = self.class;
        let _ = writeln!(
            out,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="{round}"/>"#
        );
        let middle = x + width / 2.0;
        for (i, line) in self.lines.iter().enumerate() {
            let class = if i == 0 { "kind" } else { "more" };
            let below = y + (i + 1) as f64 * LINE;
            let line = escape(line);
            let _ = writeln!(
                out,
                r#"<text class="{class}" x="{middle:.1}" y="{below:.1}" text-anchor="middle">{line}</text>"#
            );
        }
        if let Some(Picture { body, size }) = &self.inside {
            let (left, top) = (x + (width - size[0]) / 2.0, y + self.lines_size()[1] + MARGIN / 2.0);
            let _ = writeln!(out, r#"<g transform="translate({left:.1} {top:.1})">"#);
            out.push_str(body);
            out.push_str("</g>\n");
        }
    }
}

/// Draws the whole program as SVG; without `all`, only the operators of the forward pass.
pub(super) fn svg(program: &Program, all: bool) -> String {
    // An inner block comes after its outer block, so blocks are drawn from the last to the first.
    let mut drawn: HashMap<BlockId, Picture> = HashMap::new();
    let blocks: Vec<BlockId> = program.blocks().map(|(id, _)| id).collect();
    for &id in blocks.iter().rev() {
        let picture = block(program, id, all, &mut drawn);
        drawn.insert(id, picture);
    }
    let whole = blocks.first().and_then(|root| drawn.remove(root));
    let Picture { body, size } = whole.unwrap_or(Picture { body: String::new(), size: [0.0; 2] });
    let [width, height] = size.map(|extent| extent + 2.0 * MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\">\n\
         <style>{STYLE}</style>\n<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n\
         <g transform=\"translate({MARGIN} {MARGIN})\">\n{body}</g>\n</svg>\n"
    )
}

/// Draws a block; moves the pictures of its inner step blocks from `drawn` into the boxes of their operators.
fn block(program: &Program, id: BlockId, all: bool, drawn: &mut HashMap<BlockId, Picture>) -> Picture {
    let ops: Vec<&OpDesc> =
        program.block(id).ops.iter().filter(|op| all || op.role == Role::Forward).collect();
    let (mut nodes, mut from) = (Vec::new(), HashMap::new());
    let runs = program.ops().filter_map(|op| op.step.as_deref());
    let runs: Vec<_> = runs.filter(|step| step.block == id).collect();
    // Maps each memory of the step block to the variable whose value in the previous step is the value of the memory.
    let left: HashMap<VarId, VarId> =
        runs.iter().flat_map(|step| &step.memories).map(|memory| (memory.previous, memory.next)).collect();
    // Only variables that operators of the block read get a box; other variables of the step block get none.
    let read: BTreeSet<u32> = ops.iter().flat_map(|op| op.reads()).map(|id| id.0).collect();
    for (var, desc) in program.vars() {
        let class = match desc.role {
            VarRole::Step if left.contains_key(&var) => "memory",
            VarRole::Feed | VarRole::Step => "feed",
            _ => continue,
        };
        if desc.block == id && (read.contains(&var.0) || desc.role == VarRole::Feed) {
            from.insert(var, nodes.len());
            let first = match left.get(&var) {
                Some(&next) => format!("{} of the step before", program.var(next).name),
                None => desc.name.clone(),
            };
            nodes.push(Node { class, lines: vec![first, described(desc)], inside: None });
        }
    }
    let mut arrows: BTreeSet<(usize, usize)> = BTreeSet::new();
    for op in ops {
        let at = nodes.len();
        arrows.extend(op.reads().filter_map(|var| from.get(&var)).map(|&from| (from, at)));
        nodes.push(operator(program, op, &from, drawn));
        from.extend(op.writes().filter(|&var| !kept(program.var(var))).map(|var| (var, at)));
    }
    let outputs: BTreeSet<u32> =
        runs.iter().flat_map(|step| &step.outputs).map(|pair| pair.inner.0).collect();
    for (var, at) in outputs.iter().filter_map(|&id| Some((VarId(id), *from.get(&VarId(id))?))) {
        arrows.insert((at, nodes.len()));
        nodes.push(Node {
            class: "feed",
            lines: vec![format!("{} of each step", program.var(var).name)],
            inside: None,
        });
    }
    arrange_and_draw(&nodes, &arrows.into_iter().collect::<Vec<_>>())
}

fn arrange_and_draw(nodes: &[Node], arrows: &[(usize, usize)]) -> Picture {
    let sizes: Vec<Pair> = nodes.iter().map(Node::size).collect();
    let GraphLayout { boxes, arrows: paths, size } = arrange(&sizes, arrows);
    let mut body = String::new();
    for path in &paths {
        let [[x, y], rest @ ..] = &path[..] else { continue };
        let _ = write!(body, r#"<path marker-end="url(#head)" d="M{x:.1} {y:.1}"#);
        for ([from, top], [to, bottom]) in path.iter().zip(rest) {
            let middle = (top + bottom) / 2.0;
            let _ = match from == to {
                true => write!(body, "V{bottom:.1}"),
                false => write!(body, "C{from:.1} {middle:.1} {to:.1} {middle:.1} {to:.1} {bottom:.1}"),
            };
        }
        body.push_str("\"/>\n");
    }
    nodes.iter().zip(boxes).for_each(|(node, at)| node.draw(&mut body, at));
    Picture { body, size }
}

fn operator(
    program: &Program,
    op: &OpDesc,
    from: &HashMap<VarId, usize>,
    drawn: &mut HashMap<BlockId, Picture>,
) -> Node {
    let mut lines = vec![op.kind.clone()];
    for id in op.reads().filter(|id| !from.contains_key(id)) {
        let var = program.var(id);
        lines.push(format!("{} {}", var.name, described(var)));
    }
    lines.dedup();
    lines.extend(op.writes().take(1).map(|id| format!("→ {}", described(program.var(id)))));
    let class = match (op.step.is_some(), op.role) {
        (true, Role::Forward) => "step",
        (_, Role::Backward) => "box backward",
        (_, Role::Update | Role::Settle) => "box update",
        _ => "box",
    };
    let run =
        op.step.as_deref().map(|step| step.gradient.as_ref().map_or(step.block, |gradient| gradient.block));
    Node { class, lines, inside: run.and_then(|block| drawn.remove(&block)) }
}

/// Returns whether a variable keeps its value from run to run; it is listed in boxes, without an arrow.
fn kept(var: &VarDesc) -> bool {
    matches!(var.role, VarRole::Parameter | VarRole::State | VarRole::Literal)
}

fn described(var: &VarDesc) -> String {
    match &var.kind {
        VarKind::Tensor(spec) => spec.to_string(),
        _ => "literal".into(),
    }
}

#[cfg(test)]
mod tests {
    use unpadded::ops::Pool;
    use unpadded::optimizer::Sgd;
    use unpadded::program::Recurrence;
    use unpadded::train::Trainer;
    use unpadded::{Builder, DType};

    use super::*;

    fn count(text: &str, part: &str) -> usize {
        text.matches(part).count()
    }

    #[test]
    fn operators_are_boxes_and_step_blocks_stand_in_theirs() {
        let net = Builder::new();
        let x = net.feed("<x> & \"y\"", DType::F32, &[3], 2);
        let sentences = Recurrence { level: Some(0), ..Recurrence::default() };
        let pooled = net.recurrent_with(sentences, x, |step, words| {
            let before = step.memory(4);
            let inner = words.lstm(4).sequence_pool(Pool::Last);
            step.update(before, inner + before);
            inner + before
        });
        let loss = pooled.sequence_pool(Pool::Mean).linear(1).mean();
        let trainer = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap();
        let program = trainer.program();
        let drawn = svg(program, false);
        assert!(drawn.contains("&lt;x&gt; &amp; &quot;y&quot;") && !drawn.contains("<x>"), "{drawn}");
        let forward: Vec<&OpDesc> = program.ops().filter(|op| op.role == Role::Forward).collect();
        let boxes = |drawn: &str| count(drawn, "class=\"box") + count(drawn, "class=\"step\"");
        assert_eq!(boxes(&drawn), forward.len());
        assert_eq!(count(&drawn, "class=\"step\""), 2);
        assert_eq!(count(&drawn, "of the step before"), 3);
        // The picture of the inner block is inside the outer block's, so two SVG groups are open at a time.
        let depths = drawn.lines().scan(0usize, |depth, line| {
            *depth = *depth + count(line, "<g ") - count(line, "</g>");
            Some(*depth)
        });
        let depths: Vec<usize> = depths.collect();
        assert_eq!((depths.iter().max(), depths.last()), (Some(&3), Some(&0)));

        let all = svg(program, true);
        assert_eq!(boxes(&all), program.blocks().map(|(_, block)| block.ops.len()).sum::<usize>());
        assert!(all.contains("class=\"box backward\"") && all.contains("class=\"box update\""));
        assert!(svg(&Program::new(), true).starts_with("<svg"));
    }
}
