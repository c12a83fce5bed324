//! Pictures: PNG and JPEG files, decoded to bytes.

use std::fmt::Display;
use std::io::Cursor;

use png::{BitDepth, ColorType, Transformations};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// The most bytes of a decoded picture: a damaged header asks for any number.
const MOST_BYTES: usize = 1 << 29;

/// The first bytes of a PNG file, and of a JPEG file.
const SIGNATURES: [&[u8]; 2] = [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"];

/// Rows of pixels, each a grey level, or red, green and blue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) width: usize,
    pub(super) height: usize,
    /// One if it is grey, or three.
    pub(super) channels: usize,
    pub(super) pixels: Vec<u8>,
}

/// The format of a file.
enum Format {
    Png,
    Jpeg,
}

impl Format {
    fn of(bytes: &[u8]) -> Result<Self, String> {
        match SIGNATURES.map(|signature| bytes.starts_with(signature)) {
            [true, _] => Ok(Self::Png),
            [_, true] => Ok(Self::Jpeg),
            _ => Err("it is neither a PNG nor a JPEG file".to_owned()),
        }
    }
}

/// The width, height and channels that [`decode`] returns, from the header of a PNG or JPEG file.
///
/// # Errors
/// The fault of the header, as a text.
pub(super) fn shape(bytes: &[u8]) -> Result<[usize; 3], String> {
    match Format::of(bytes)? {
        Format::Png => {
            let reader = png_reader(bytes)?;
            let (width, height) = reader.info().size();
            let (kind, _) = reader.output_color_type();
            Ok([width as usize, height as usize, kind.samples() - usize::from(has_alpha(kind))])
        }
        Format::Jpeg => jpeg_decoder(bytes).map(|(_, shape)| shape),
    }
}

/// Decodes a PNG or JPEG file, without its transparency.
///
/// # Errors
/// The fault of the file, as a text.
pub(super) fn decode(bytes: &[u8]) -> Result<Picture, String> {
    let picture = match Format::of(bytes)? {
        Format::Png => png(bytes)?,
        Format::Jpeg => jpeg(bytes)?,
    };
    let Picture { width, height, channels, pixels } = &picture;
    if pixels.is_empty() || pixels.len() != width * height * channels {
        return Err(format!("it has {} bytes for {width}×{height}×{channels}", pixels.len()));
    }
    Ok(picture)
}

/// A reader of a PNG file, after its header.
fn png_reader(bytes: &[u8]) -> Result<png::Reader<Cursor<&[u8]>>, String> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    // Expands palettes and fewer bits to whole bytes.
    decoder.set_transformations(Transformations::EXPAND);
    decoder.read_info().map_err(text)
}

fn has_alpha(kind: ColorType) -> bool {
    matches!(kind, ColorType::GrayscaleAlpha | ColorType::Rgba)
}

fn png(bytes: &[u8]) -> Result<Picture, String> {
    let mut reader = png_reader(bytes)?;
    let size = reader.output_buffer_size().filter(|size| *size <= MOST_BYTES);
    let mut samples = vec![0; size.ok_or_else(too_large)?];
    let frame = reader.next_frame(&mut samples).map_err(text)?;
    samples.truncate(frame.buffer_size());
    if frame.bit_depth == BitDepth::Sixteen {
        // 65 535 is 255 times 257.
        let rounded = |sample: &[u8; 2]| (u32::from(u16::from_be_bytes(*sample)) + 128) / 257;
        samples = samples.as_chunks().0.iter().map(|sample| rounded(sample) as u8).collect();
    }
    let (each, has_alpha) = (frame.color_type.samples(), has_alpha(frame.color_type));
    let channels = each - usize::from(has_alpha);
    if has_alpha {
        samples = samples.chunks(each).flat_map(|pixel| &pixel[..channels]).copied().collect();
    }
    let (width, height) = (frame.width as usize, frame.height as usize);
    Ok(Picture { width, height, channels, pixels: samples })
}

type Jpeg<'a> = JpegDecoder<ZCursor<&'a [u8]>>;

/// A decoder of a JPEG file, after its header, and the picture's width, height and channels.
fn jpeg_decoder(bytes: &[u8]) -> Result<(Jpeg<'_>, [usize; 3]), String> {
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(text)?;
    let is_grey = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let (space, channels) = if is_grey { (ColorSpace::Luma, 1) } else { (ColorSpace::RGB, 3) };
    decoder.set_options(options.jpeg_set_out_colorspace(space));
    let (width, height) = decoder.dimensions().ok_or("it has no header")?;
    Ok((decoder, [width, height, channels]))
}

fn jpeg(bytes: &[u8]) -> Result<Picture, String> {
    let (mut decoder, [width, height, channels]) = jpeg_decoder(bytes)?;
    if width * height * channels > MOST_BYTES {
        return Err(too_large());
    }
    let pixels = decoder.decode().map_err(text)?;
    Ok(Picture { width, height, channels, pixels })
}

fn text(error: impl Display) -> String {
    error.to_string()
}

fn too_large() -> String {
    format!("it has more than {} MiB", MOST_BYTES >> 20)
}

impl Picture {
    /// The same picture as grey levels: the luminance of ITU-R BT.709.
    pub(super) fn grey(mut self) -> Self {
        if self.channels == 3 {
            let luminance = |[r, g, b]: [u32; 3]| (2126 * r + 7152 * g + 722 * b) / 10_000;
            let pixels = self.pixels.as_chunks().0.iter();
            self.pixels = pixels.map(|pixel| luminance(pixel.map(u32::from)) as u8).collect();
            self.channels = 1;
        }
        self
    }

    /// The pixels channel by channel: one plane, or red, green and blue.
    pub(super) fn planes(&self) -> Vec<u8> {
        let plane = |channel| self.pixels.iter().skip(channel).step_by(self.channels).copied();
        (0..self.channels).flat_map(plane).collect()
    }

    /// A grey picture of another size. A new pixel is the mean of the old ones around it, with
    /// weights that fall linearly to 0 at the distance of one new pixel, or of one old pixel if the
    /// picture becomes larger.
    pub(super) fn scaled(&self, width: usize, height: usize) -> Self {
        assert_eq!(self.channels, 1, "only grey pictures can be scaled");
        let (columns, rows) = (tents(self.width, width), tents(self.height, height));
        let mut pixels = Vec::with_capacity(width * height);
        for Tent { first, weights } in &rows {
            let mut sums = vec![0.0; self.width];
            for (row, weight) in self.pixels[first * self.width..].chunks(self.width).zip(weights) {
                sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f32::from(x) * weight);
            }
            pixels.extend(columns.iter().map(|Tent { first, weights }| {
                let near = sums[*first..].iter().zip(weights);
                near.map(|(sum, weight)| sum * weight).sum::<f32>().round() as u8
            }));
        }
        Self { width, height, channels: 1, pixels }
    }
}

/// Weights of neighbouring pixels, whose sum is 1.
struct Tent {
    first: usize,
    weights: Vec<f32>,
}

/// The tent of each of `to` pixels over `from` pixels.
fn tents(from: usize, to: usize) -> Vec<Tent> {
    let ratio = from as f32 / to as f32;
    let reach = ratio.max(1.0);
    let tent = |at: usize| {
        let centre = (at as f32 + 0.5) * ratio;
        let first = ((centre - reach).floor().max(0.0) as usize).min(from - 1);
        let end = ((centre + reach).ceil() as usize).clamp(first + 1, from);
        let distance = |pixel: usize| (pixel as f32 - (centre - 0.5)).abs() / reach;
        let mut weights: Vec<f32> =
            (first..end).map(|pixel| (1.0 - distance(pixel)).max(0.0)).collect();
        let sum: f32 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
        Tent { first, weights }
    };
    (0..to).map(tent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tests::pictures::{jpeg_of, png_of, png_with};

    #[test]
    fn every_kind_of_png_becomes_bytes() {
        let pixels = |kind, depth, data: &[u8]| {
            let picture = decode(&png_with((2, 1), kind, depth, data)).unwrap();
            assert_eq!((picture.width, picture.height), (2, 1));
            assert_eq!(shape(&png_with((2, 1), kind, depth, data)), Ok([2, 1, picture.channels]));
            (picture.channels, picture.pixels)
        };
        let grey = |pixels: [u8; 2]| (1, pixels.to_vec());
        assert_eq!(pixels(ColorType::Grayscale, BitDepth::Eight, &[7, 200]), grey([7, 200]));
        assert_eq!(pixels(ColorType::Grayscale, BitDepth::One, &[0b0100_0000]), grey([0, 255]));
        // 128 / 257 is less than a half, 129 / 257 is more.
        let sixteen = [0x80, 0x00, 0x01, 0x81];
        assert_eq!(pixels(ColorType::Grayscale, BitDepth::Sixteen, &sixteen), grey([128, 1]));
        let with_alpha = [7, 0, 200, 255];
        assert_eq!(pixels(ColorType::GrayscaleAlpha, BitDepth::Eight, &with_alpha), grey([7, 200]));
        let colours = [1, 2, 3, 4, 5, 6];
        assert_eq!(pixels(ColorType::Rgb, BitDepth::Eight, &colours), (3, colours.to_vec()));
        let with_alpha = [1, 2, 3, 0, 4, 5, 6, 255];
        assert_eq!(pixels(ColorType::Rgba, BitDepth::Eight, &with_alpha), (3, colours.to_vec()));
    }

    #[test]
    fn palettes_become_colours() {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 3, 1);
        encoder.set_color(ColorType::Indexed);
        encoder.set_depth(BitDepth::Two);
        encoder.set_palette(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        // One entry is transparent; transparency is dropped.
        encoder.set_trns(&[255, 0]);
        encoder.write_header().unwrap().write_image_data(&[0b10_00_01_00]).unwrap();
        assert_eq!(shape(&bytes), Ok([3, 1, 3]));
        let picture = decode(&bytes).unwrap();
        assert_eq!((picture.channels, picture.pixels), (3, vec![7, 8, 9, 1, 2, 3, 4, 5, 6]));
    }

    #[test]
    fn jpeg_pictures_are_near_their_pixels() {
        let near = |picture: &Picture, expected: &[u8]| {
            let each = picture.pixels.chunks(expected.len());
            each.flat_map(|pixel| pixel.iter().zip(expected)).all(|(a, b)| a.abs_diff(*b) <= 3)
        };
        let grey = decode(&jpeg_of((9, 8), 1, &[90; 72])).unwrap();
        assert_eq!((grey.width, grey.height, grey.channels), (9, 8, 1));
        assert!(near(&grey, &[90]));
        assert_eq!(shape(&jpeg_of((9, 8), 1, &[90; 72])), Ok([9, 8, 1]));
        let colour = decode(&jpeg_of((8, 8), 3, &[200, 60, 30].repeat(64))).unwrap();
        assert_eq!((colour.channels, colour.pixels.len()), (3, 192));
        assert!(near(&colour, &[200, 60, 30]));
    }

    #[test]
    fn planes_and_luminance_by_hand() {
        let picture = decode(&png_of((2, 1), 3, &[10, 20, 30, 255, 0, 0])).unwrap();
        assert_eq!(picture.planes(), [10, 255, 20, 0, 30, 0]);
        // 0.2126·10 + 0.7152·20 + 0.0722·30 = 18.596, and 0.2126·255 = 54.2.
        assert_eq!(picture.grey().pixels, [18, 54]);
    }

    #[test]
    fn scaling_by_hand() {
        let row = Picture { width: 4, height: 1, channels: 1, pixels: vec![0, 100, 200, 40] };
        assert_eq!(row.scaled(4, 1), row);
        // Around 1, between the first two: weights 3, 3 and 1 of 7; around 3 the same in reverse.
        let half = row.scaled(2, 1).pixels;
        assert_eq!(
            half,
            [(300.0f32 + 200.0) / 7.0, (100.0 + 600.0 + 120.0) / 7.0].map(|x| x.round() as u8)
        );
        let column = Picture { width: 1, height: 4, ..row.clone() };
        assert_eq!(column.scaled(1, 2).pixels, half);
        // Larger: new pixels lie between old ones, and at the borders on the last.
        let two = Picture { width: 2, height: 1, channels: 1, pixels: vec![0, 100] };
        assert_eq!(two.scaled(4, 1).pixels, [0, 25, 75, 100]);
        let flat = Picture { width: 7, height: 5, channels: 1, pixels: vec![99; 35] };
        assert!(flat.scaled(3, 11).pixels.iter().all(|&x| x == 99));
    }

    #[test]
    fn what_cannot_be_decoded_is_refused() {
        let whole = png_of((20, 20), 1, &[5; 400]);
        let error = |bytes: &[u8]| decode(bytes).unwrap_err();
        assert!(error(b"text").contains("neither"));
        assert!(error(&[]).contains("neither"));
        (8..whole.len() - 16).for_each(|len| drop(error(&whole[..len])));
        let huge = png_with((1 << 15, 1 << 15), ColorType::Rgb, BitDepth::Eight, &[]);
        assert!(error(&huge).contains("512 MiB"), "{}", error(&huge));
        let jpeg = jpeg_of((8, 8), 1, &[90; 64]);
        // The last two bytes only mark the end.
        (2..jpeg.len() - 2).for_each(|len| drop(error(&jpeg[..len])));
    }
}
