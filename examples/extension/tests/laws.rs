//! The compressor obeys gradwire's laws.

#[test]
fn scaled_sign_obeys_the_laws() {
    gradwire::laws::check(&acme::ENTRY);
}
