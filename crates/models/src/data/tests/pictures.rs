//! Encoded pictures for tests.

use jpeg_encoder::Encoder;
use png::{BitDepth, ColorType};

/// A PNG file of a size, with one channel or three, of these pixels.
pub(crate) fn png_of(size: (u32, u32), channels: usize, pixels: &[u8]) -> Vec<u8> {
    let kind = if channels == 1 { ColorType::Grayscale } else { ColorType::Rgb };
    png_with(size, kind, BitDepth::Eight, pixels)
}

/// A PNG file of any kind; without data it ends after its header.
pub(crate) fn png_with(
    (width, height): (u32, u32),
    kind: ColorType,
    depth: BitDepth,
    data: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(kind);
    encoder.set_depth(depth);
    let mut writer = encoder.write_header().unwrap();
    match data {
        [] => writer.write_chunk(png::chunk::IDAT, &[]).unwrap(),
        data => writer.write_image_data(data).unwrap(),
    }
    drop(writer);
    bytes
}

/// A JPEG file of a size, with one channel or three, of about these pixels.
pub(crate) fn jpeg_of((width, height): (u16, u16), channels: usize, pixels: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let kind = match channels {
        1 => jpeg_encoder::ColorType::Luma,
        _ => jpeg_encoder::ColorType::Rgb,
    };
    Encoder::new(&mut bytes, 90).encode(pixels, width, height, kind).unwrap();
    bytes
}
