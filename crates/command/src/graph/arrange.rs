//! The positions of boxes and arrows in a picture; the crate `layout` ranks the boxes and computes the positions.

use layout::core::base::Orientation;
use layout::core::format::{ClipHandle, RenderBackend};
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;

/// The x and y coordinates of a point, or the width and height of a box.
pub(super) type Pair = [f64; 2];

/// The curve of an arrow: for each point of the curve, the point and its control point.
pub(super) type Path = Vec<[Pair; 2]>;

/// The upper left corner of each box, the curve of each arrow, and the size of the whole picture; all coordinates are at
/// least 0.
#[derive(Default)]
pub(super) struct GraphLayout {
    pub(super) boxes: Vec<Pair>,
    pub(super) arrows: Vec<Path>,
    pub(super) size: Pair,
}

/// Arranges boxes of the given sizes so that each arrow leads downward. The arrows must not form a cycle.
pub(super) fn arrange(sizes: &[Pair], arrows: &[(usize, usize)]) -> GraphLayout {
    if sizes.is_empty() {
        return GraphLayout::default();
    }
    let mut graph = VisualGraph::new(Orientation::TopToBottom);
    let nodes: Vec<_> = sizes
        .iter()
        .enumerate()
        .map(|(i, &[width, height])| {
            graph.add_node(Element::create_with_properties(
                // The crate `layout` uses the given size for a box with an empty text.
                ShapeKind::Box(String::new()),
                StyleAttr::simple(),
                Orientation::TopToBottom,
                Point::new(width, height),
                i.to_string(),
            ))
        })
        .collect();
    for &(from, to) in arrows {
        graph.add_edge(Arrow::default(), nodes[from], nodes[to]);
    }
    let mut places = Positions { boxes: vec![[0.0; 2]; sizes.len()], arrows: Vec::new() };
    graph.do_it(false, false, false, &mut places);
    places.shifted(sizes)
}

/// A render backend for the crate `layout` that collects the positions of boxes and arrows instead of drawing them.
struct Positions {
    boxes: Vec<Pair>,
    arrows: Vec<Path>,
}

impl Positions {
    fn shifted(self, sizes: &[Pair]) -> GraphLayout {
        let Self { mut boxes, mut arrows } = self;
        let corners = boxes.iter().zip(sizes).flat_map(|(at, of)| [*at, [at[0] + of[0], at[1] + of[1]]]);
        let points = corners.chain(arrows.iter().flatten().flatten().copied());
        let (mut low, mut high) = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
        for point in points {
            for axis in 0..2 {
                (low[axis], high[axis]) = (low[axis].min(point[axis]), high[axis].max(point[axis]));
            }
        }
        for point in boxes.iter_mut().chain(arrows.iter_mut().flatten().flatten()) {
            for axis in 0..2 {
                point[axis] -= low[axis];
            }
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
        if let Some(place) = which.and_then(|which| self.boxes.get_mut(which)) {
            *place = [at.x, at.y];
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
        self.arrows.push(path.iter().map(|(a, b)| [[a.x, a.y], [b.x, b.y]]).collect());
    }

    fn create_clip(&mut self, _: Point, _: Point, _: usize) -> ClipHandle {
        0
    }
}
