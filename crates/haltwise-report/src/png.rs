//! SVG to PNG, with a font that is built in, so that text is legible on
//! machines that have none, and the same on all.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};

const REGULAR: &[u8] = include_bytes!("../fonts/Inter-Regular.ttf");
const SEMI_BOLD: &[u8] = include_bytes!("../fonts/Inter-SemiBold.ttf");

/// The most pixels a picture may have: 256 MiB of them.
const MOST_PIXELS: f32 = 67_108_864.0;

/// Why a figure cannot be drawn as a PNG.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PngError {
    /// The scale is not a positive number, or gives too large a picture.
    #[error("a picture at scale {0} would have no pixels, or too many")]
    Scale(f32),
    /// The drawing cannot be read back.
    #[error("the drawing cannot be read: {0}")]
    Drawing(#[from] resvg::usvg::Error),
    /// The picture cannot be encoded.
    #[error("the picture cannot be encoded: {0}")]
    Encoding(String),
}

pub(crate) fn rasterise(svg: &str, scale: f32) -> Result<Vec<u8>, PngError> {
    let options = Options {
        font_family: "Inter".into(),
        fontdb: Arc::new(fonts(svg)),
        ..Options::default()
    };
    let tree = Tree::from_str(svg, &options)?;
    let (width, height) = (tree.size().width() * scale, tree.size().height() * scale);
    if !(width >= 1.0 && height >= 1.0 && width * height <= MOST_PIXELS) {
        return Err(PngError::Scale(scale));
    }
    let mut pixels =
        Pixmap::new(width.ceil() as u32, height.ceil() as u32).ok_or(PngError::Scale(scale))?;
    resvg::render(
        &tree,
        Transform::from_scale(scale, scale),
        &mut pixels.as_mut(),
    );
    pixels
        .encode_png()
        .map_err(|why| PngError::Encoding(why.to_string()))
}

/// The built-in font, and the machine's own only where a name needs letters
/// that it lacks: any other picture has the same bytes everywhere.
fn fonts(svg: &str) -> Database {
    let mut fonts = Database::new();
    fonts.load_font_data(REGULAR.to_vec());
    fonts.load_font_data(SEMI_BOLD.to_vec());
    if !svg.chars().all(is_built_in) {
        fonts.load_system_fonts();
    }
    fonts
}

/// Whether the built-in font has a letter: the main ranges of
/// `fonts/subset.sh`.
fn is_built_in(c: char) -> bool {
    matches!(c, '\n' | ' '..='\u{17F}' | '\u{370}'..='\u{45F}' | '\u{2009}'..='\u{2030}'
        | '−' | '∞' | '≈' | '≠' | '≤' | '≥' | '←'..='↓')
}
