//! Pictures, drawn into a private place and then moved to the requested one.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use hpmmap_base::error::{Error, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;

/// The font of all text in pictures.
pub const FONT: &str = "sans-serif";

type Drawn<E> = std::result::Result<(), DrawingAreaErrorKind<E>>;

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Failed(format!("cannot draw: {error}"))
}

/// Makes [`FONT`] available without the fonts of this machine.
pub fn use_font() -> Result<()> {
    register_font(FONT, FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| Error::Failed("the font is broken".into()))
}

/// Draws a picture and returns it as a PNG file.
pub fn png(
    size: (u32, u32),
    draw: impl FnOnce(
        &DrawingArea<BitMapBackend, Shift>,
    ) -> Drawn<<BitMapBackend<'static> as DrawingBackend>::ErrorType>,
) -> Result<Vec<u8>> {
    let dir = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o700))
        .tempdir()?;
    let path = dir.path().join("picture.png");
    draw(&BitMapBackend::new(&path, size).into_drawing_area()).map_err(failed)?;
    Ok(fs::read(path)?)
}

/// Draws a picture and returns it as an SVG file.
pub fn svg(
    size: (u32, u32),
    draw: impl FnOnce(
        &DrawingArea<SVGBackend, Shift>,
    ) -> Drawn<<SVGBackend<'static> as DrawingBackend>::ErrorType>,
) -> Result<Vec<u8>> {
    let mut text = String::new();
    draw(&SVGBackend::with_string(&mut text, size).into_drawing_area()).map_err(failed)?;
    Ok(text.into_bytes())
}
