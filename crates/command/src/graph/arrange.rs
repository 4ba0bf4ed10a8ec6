//! The positions of boxes and arrows in a picture; the crate `layout` ranks the boxes and computes the positions.

use layout::core::base::Orientation;
use layout::core::format::{ClipHandle, RenderBackend};
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;

/// The x and y coordinates of a point, or the width and height of a box.
pub(super) type Pair = [f64; 2];

/// The points of an arrow. The arrow is vertical between two points below each other, and a curve between two others.
pub(super) type Path = Vec<Pair>;

/// The upper left corner of each box, the path of each arrow, and the size of the picture, from 0 on.
#[derive(Default)]
pub(super) struct GraphLayout {
    pub(super) boxes: Vec<Pair>,
    pub(super) arrows: Vec<Path>,
    pub(super) size: Pair,
}

/// Arranges boxes of the given sizes so that each arrow leads downward, around all boxes. The arrows must be different, and must not form a cycle.
pub(super) fn arrange(sizes: &[Pair], arrows: &[(usize, usize)]) -> GraphLayout {
    if sizes.is_empty() {
        return GraphLayout::default();
    }
    let mut graph = VisualGraph::new(Orientation::TopToBottom);
    let node = |(i, &[width, height]): (usize, &Pair)| {
        // The crate `layout` uses the given size for a box with an empty text.
        let (kind, size) = (ShapeKind::Box(String::new()), Point::new(width, height));
        let (style, down) = (StyleAttr::simple(), Orientation::TopToBottom);
        graph.add_node(Element::create_with_properties(kind, style, down, size, i.to_string()))
    };
    let nodes: Vec<_> = sizes.iter().enumerate().map(node).collect();
    for &(from, to) in arrows {
        graph.add_edge(Arrow::default(), nodes[from], nodes[to]);
    }
    let mut places = Positions { boxes: vec![[0.0; 2]; sizes.len()], arrows: Vec::new() };
    graph.do_it(false, false, false, &mut places);
    places.routed(sizes, arrows)
}

/// A backend for the crate `layout` that collects the positions of boxes, and where each arrow passes the ranks between its boxes.
struct Positions {
    boxes: Vec<Pair>,
    arrows: Vec<Path>,
}

impl Positions {
    /// Returns the layout with its own paths of arrows; the curves of `layout` would cross the tall boxes of a rank. An arrow
    /// passes a rank, which is as high as its highest box, vertically, and curves only between two ranks.
    fn routed(self, sizes: &[Pair], ends: &[(usize, usize)]) -> GraphLayout {
        let Self { mut boxes, arrows: passed } = self;
        let mut heights: Vec<Pair> =
            boxes.iter().zip(sizes).map(|(at, node)| [at[1], at[1] + node[1]]).collect();
        heights.sort_by(|a, b| a[0].total_cmp(&b[0]));
        // The boxes of a rank have the same middle, so their heights overlap; the boxes of two ranks do not overlap.
        let mut ranks: Vec<Pair> = Vec::new();
        for [top, bottom] in heights {
            match ranks.last_mut() {
                Some(rank) if top < rank[1] => rank[1] = rank[1].max(bottom),
                _ => ranks.push([top, bottom]),
            }
        }
        let rank = |y: f64| {
            ranks.iter().copied().find(|[top, bottom]| (*top..=*bottom).contains(&y)).unwrap_or([y; 2])
        };
        let middle = |node: usize| [0, 1].map(|axis| boxes[node][axis] + sizes[node][axis] / 2.0);
        // Each arrow leaves its box toward the next point, so the arrows of a box are in the order of these points.
        let toward = |arrow: usize, first: bool| match (&passed[arrow][..], first) {
            ([next, ..], true) | ([.., next], false) => next[0],
            ([], true) => middle(ends[arrow].1)[0],
            ([], false) => middle(ends[arrow].0)[0],
        };
        let mut ports = vec![[0.0; 2]; ends.len()];
        for (side, first) in [(0, true), (1, false)] {
            let node = |arrow: usize| if first { ends[arrow].0 } else { ends[arrow].1 };
            let mut order: Vec<usize> = (0..ends.len()).collect();
            order.sort_by(|&a, &b| node(a).cmp(&node(b)).then(toward(a, first).total_cmp(&toward(b, first))));
            for group in order.chunk_by(|&a, &b| node(a) == node(b)) {
                for (at, &arrow) in (1..).zip(group) {
                    let share = f64::from(at) / (group.len() + 1) as f64;
                    ports[arrow][side] = boxes[node(arrow)][0] + sizes[node(arrow)][0] * share;
                }
            }
        }
        let path = |(arrow, &(from, to)): (usize, &(usize, usize))| -> Path {
            let [leaves, arrives] = ports[arrow];
            let mut path =
                vec![[leaves, boxes[from][1] + sizes[from][1]], [leaves, rank(middle(from)[1])[1]]];
            path.extend(passed[arrow].iter().flat_map(|&[x, y]| rank(y).map(|y| [x, y])));
            path.extend([[arrives, rank(middle(to)[1])[0]], [arrives, boxes[to][1]]]);
            path.dedup();
            path
        };
        let mut arrows: Vec<Path> = ends.iter().enumerate().map(path).collect();
        let corners =
            boxes.iter().zip(sizes).flat_map(|(at, node)| [*at, [at[0] + node[0], at[1] + node[1]]]);
        let points = corners.chain(arrows.iter().flatten().copied());
        let end = |from: f64, node: fn(f64, f64) -> f64| {
            [0, 1].map(|axis| points.clone().map(|point| point[axis]).fold(from, node))
        };
        let (low, high) = (end(f64::INFINITY, f64::min), end(f64::NEG_INFINITY, f64::max));
        for point in boxes.iter_mut().chain(arrows.iter_mut().flatten()) {
            *point = [point[0] - low[0], point[1] - low[1]];
        }
        GraphLayout { boxes, arrows, size: [high[0] - low[0], high[1] - low[1]] }
    }
}

impl RenderBackend for Positions {
    fn draw_rect(
        &mut self,
        at: Point,
        _: Point,
        _: &StyleAttr,
        which: Option<String>,
        _: Option<ClipHandle>,
    ) {
        let which = which.and_then(|which| which.parse::<usize>().ok());
        if let Some(slot) = which.and_then(|which| self.boxes.get_mut(which)) {
            *slot = [at.x, at.y];
        }
    }

    fn draw_line(&mut self, _: Point, _: Point, _: &StyleAttr, _: Option<String>) {}

    fn draw_circle(&mut self, _: Point, _: Point, _: &StyleAttr, _: Option<String>) {}

    fn draw_text(&mut self, _: Point, _: &str, _: &StyleAttr) {}

    fn draw_arrow(
        &mut self,
        path: &[(Point, Point)],
        _: bool,
        _: (bool, bool),
        _: &StyleAttr,
        _: Option<String>,
        _: &str,
    ) {
        let passed = path.iter().skip(1).map(|(_, at)| [at.x, at.y]);
        self.arrows.push(passed.take(path.len().saturating_sub(2)).collect());
    }

    fn create_clip(&mut self, _: Point, _: Point, _: usize) -> ClipHandle {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_arrow_crosses_a_box() {
        // Boxes of very different heights, with arrows over many ranks.
        let sizes: Vec<Pair> =
            (0..24).map(|i| [60.0 + (i * 37 % 90) as f64, 20.0 + (i * i * 13 % 300) as f64]).collect();
        let arrows = (1..24).flat_map(|i| [(i / 2, i), ((i * i + 3) % i, i)]);
        let arrows: BTreeSet<(usize, usize)> = arrows.collect();
        let arrows: Vec<(usize, usize)> = arrows.into_iter().collect();
        let laid = arrange(&sizes, &arrows);
        assert_eq!(laid.arrows.len(), arrows.len());
        for (path, &(from, to)) in laid.arrows.iter().zip(&arrows) {
            let (first, last) = (path[0], path[path.len() - 1]);
            assert!(
                (first[1] - laid.boxes[from][1] - sizes[from][1]).abs() < 1e-6
                    && (last[1] - laid.boxes[to][1]).abs() < 1e-6
            );
            for line in path.windows(2) {
                let [low, high] = [line[0][1], line[1][1]];
                assert!(low <= high, "an arrow leads upward: {path:?}");
                for (at, size) in laid.boxes.iter().zip(&sizes) {
                    // A curve is inside the rectangle of its two points, so this rectangle must not overlap the box.
                    let beside =
                        line.iter().all(|x| x[0] < at[0]) || line.iter().all(|x| x[0] > at[0] + size[0]);
                    assert!(
                        beside || high <= at[1] + 1e-6 || low >= at[1] + size[1] - 1e-6,
                        "{line:?} {at:?} {size:?}"
                    );
                }
            }
        }
    }
}
