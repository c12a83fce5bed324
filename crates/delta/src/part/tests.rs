use super::*;

/// Encodes, decodes and applies a part, and returns its code.
fn round_trip(element: ElementType, base: &[u8], new: &[u8], options: Options) -> Vec<u8> {
    let (mut coder, mut code) = (Coder::default(), vec![]);
    coder.encode(element, Some(base), new, options, &mut code);
    let mut target = base.to_vec();
    let len = new.len() / element.width();
    let content = coder.decode(element, len, Some(base), &code).expect("the code is valid");
    apply(element, &content, &mut target);
    assert_eq!(target, new, "{}", element.name());
    code
}

#[test]
fn parts_return() {
    for element in ElementType::ALL {
        for count in [0, 1, 7, 1000] {
            let base: Vec<u8> = (0..count * element.width()).map(|at| (at * at) as u8).collect();
            let mut new = base.clone();
            assert_eq!(round_trip(element, &base, &new, Options::default()), [form::SAME]);
            for at in (0..new.len()).step_by(301) {
                new[at] ^= 0x81;
                round_trip(element, &base, &new, Options::default());
            }
        }
    }
}
