//! Against a scalar twin, finite differences and counts by hand.

use super::*;
use crate::models::ImageShape;
use crate::models::tests::{elements, go, norm, zeros};

fn model(hidden: usize, vocabulary: usize) -> LanguageModel {
    let config = LstmConfig { hidden, ..LstmConfig::CHARACTERS };
    LanguageModel::new(ModelKind::CharLstm(config), vocabulary).unwrap()
}

const WORDS: ModelKind = ModelKind::WordLstm(LstmConfig::WORDS);

/// Parameters large enough for every gate to matter.
fn parameters(model: &LanguageModel) -> Vec<Vec<f32>> {
    let mut parameters = model.initial_parameters(3);
    let mut rng = Rng::new(9, 0, 0, 0, 0);
    parameters.iter_mut().flatten().for_each(|value| *value = rng.uniform() * 1.6 - 0.8);
    parameters
}

fn tokens(count: usize, vocabulary: u64, seed: u64) -> Vec<u32> {
    let mut rng = Rng::new(seed, 1, 0, 0, 0);
    (0..count).map(|_| rng.below(vocabulary) as u32).collect()
}

#[test]
fn sizes_are_those_of_the_paper() {
    let sizes = |kind: &str, vocabulary| {
        let model = LanguageModel::new(kind.parse().unwrap(), vocabulary).unwrap();
        (
            elements(model.tensors()),
            model.tensors().iter().map(|t| t.shape().to_vec()).collect::<Vec<_>>(),
        )
    };
    // 98·200 + 2·(400·800 + 800) + 200·98 + 98.
    let (parameters, shapes) = sizes("charlstm", 98);
    assert_eq!(parameters, 19_600 + 2 * 320_800 + 19_600 + 98);
    let expected: [&[usize]; 7] =
        [&[98, 200], &[400, 800], &[800], &[400, 800], &[800], &[200, 98], &[98]];
    assert_eq!(shapes, expected);
    assert_eq!(sizes("charlstm", 80).0, 673_680);
    // 10000·650 + 2·(1300·2600 + 2600) + 650·10000 + 10000.
    let (parameters, shapes) = sizes("wordlstm", 10_000);
    assert_eq!((parameters, shapes.len()), (19_775_200, 7));
    assert_eq!(sizes("charlstm:hidden=64", 10).0, 640 + 2 * (128 * 256 + 256) + 640 + 10);
}

#[test]
fn first_parameters_are_within_a_twentieth() {
    let model = model(200, 98);
    let parameters = model.initial_parameters(1);
    for (tensor, values) in model.tensors().iter().zip(&parameters) {
        let most = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        if tensor.name().starts_with("lstm") && tensor.name().ends_with("bias") {
            assert_eq!(most, 0.0);
        } else {
            assert!((0.045..=0.05001).contains(&most), "{}: {most}", tensor.name());
        }
    }
}

#[test]
fn images_have_models_of_their_own() {
    let message = LanguageModel::new("lenet5".parse().unwrap(), 50).unwrap_err().to_string();
    assert!(message.contains("lenet5") && message.contains("charlstm"), "{message}");
    let shape = ImageShape { channels: 1, height: 28, width: 28, classes: 10 };
    let message = crate::models::Model::new(WORDS, shape).unwrap_err().to_string();
    assert!(message.contains("wordlstm") && message.contains("lenet5"), "{message}");
    assert!(LanguageModel::new(WORDS, 1).is_err());
}

/// The losses of one stream, computed unit by unit in double precision.
fn naive(
    model: &LanguageModel,
    parameters: &[Vec<f32>],
    inputs: &[u32],
    targets: &[u32],
) -> Vec<f64> {
    let (h, v) = (model.config.hidden, model.vocabulary);
    let p = |tensor: usize, at: usize| f64::from(parameters[tensor][at]);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mut state = [(vec![0.0; h], vec![0.0; h]), (vec![0.0; h], vec![0.0; h])];
    let mut losses = Vec::new();
    for (&input, &target) in inputs.iter().zip(targets) {
        let mut x: Vec<f64> = (0..h).map(|unit| p(0, input as usize * h + unit)).collect();
        for (layer, (output, cell)) in state.iter_mut().enumerate() {
            let all: Vec<f64> = x.iter().chain(output.iter()).copied().collect();
            let gate = |which: usize, unit: usize| {
                let column = which * h + unit;
                let sum: f64 =
                    (0..2 * h).map(|row| all[row] * p(1 + 2 * layer, row * 4 * h + column)).sum();
                sum + p(2 + 2 * layer, column)
            };
            for unit in 0..h {
                cell[unit] = sigmoid(gate(2, unit)) * cell[unit]
                    + sigmoid(gate(0, unit)) * gate(1, unit).tanh();
                output[unit] = sigmoid(gate(3, unit)) * cell[unit].tanh();
            }
            x.clone_from(output);
        }
        let score = |symbol: usize| {
            (0..h).map(|unit| x[unit] * p(5, unit * v + symbol)).sum::<f64>() + p(6, symbol)
        };
        let sum: f64 = (0..v).map(|symbol| score(symbol).exp()).sum();
        losses.push(sum.ln() - score(target as usize));
    }
    losses
}

#[test]
fn losses_are_those_of_a_scalar_twin() {
    let model = model(5, 7);
    let parameters = parameters(&model);
    let (length, streams) = (6, 3);
    let text: Vec<Vec<u32>> = (0..streams).map(|s| tokens(length + 1, 7, s)).collect();
    let by_time = |shift: usize| -> Vec<u32> {
        (0..length).flat_map(|t| text.iter().map(move |stream| stream[t + shift])).collect()
    };
    let (inputs, targets) = (by_time(0), by_time(1));
    let chunk = Chunk { inputs: &inputs, targets: &targets, streams: text.len() };
    let expected: Vec<f64> = text
        .iter()
        .flat_map(|stream| naive(&model, &parameters, &stream[..length], &stream[1..]))
        .collect();
    let expected_sum: f64 = expected.iter().sum();

    let counts = vec![true; inputs.len()];
    let score = model.evaluate(&parameters, chunk, &counts, &mut model.blank(text.len()));
    assert_eq!(score.examples, 18);
    assert!((score.loss - expected_sum).abs() < 1e-4, "{} is not {expected_sum}", score.loss);
    let mut gradients = zeros(model.tensors());
    let mut memory = model.blank(text.len());
    let loss = model.add_gradients(&parameters, chunk, None, &mut memory, &mut gradients);
    assert!((loss - expected_sum / 18.0).abs() < 1e-5, "{loss}");

    // Only the first stream's last token.
    let counts: Vec<bool> = (0..18).map(|at| at == 15).collect();
    let score = model.evaluate(&parameters, chunk, &counts, &mut model.blank(text.len()));
    assert!((score.loss - expected[5]).abs() < 1e-5 && score.examples == 1);
}

#[test]
fn memory_carries_on_from_chunk_to_chunk() {
    let model = model(5, 7);
    let parameters = parameters(&model);
    let text = tokens(13, 7, 4);
    let whole: f64 = naive(&model, &parameters, &text[..12], &text[1..]).iter().sum();
    let mut memory = model.blank(1);
    let mut sum = 0.0;
    for range in [0..5, 5..6, 6..12] {
        let targets = &text[range.start + 1..=range.end];
        let chunk = Chunk { inputs: &text[range.clone()], targets, streams: 1 };
        let counts = vec![true; range.len()];
        sum += model.evaluate(&parameters, chunk, &counts, &mut memory).loss;
    }
    assert!((sum - whole).abs() < 1e-4, "{sum} is not {whole}");

    let mut state = State::new();
    memory.save("m/", &mut state);
    let mut restored = model.blank(1);
    assert_ne!(restored, memory);
    restored.restore("m/", &state).unwrap();
    assert_eq!(restored, memory);
    assert!(model.blank(2).restore("m/", &state).is_err());
    restored.clear();
    assert_eq!(restored, model.blank(1));
}

#[test]
fn equal_scores_cost_the_logarithm_of_the_vocabulary() {
    let model = model(4, 11);
    let (inputs, targets) = (tokens(10, 11, 0), tokens(10, 11, 1));
    let chunk = Chunk { inputs: &inputs, targets: &targets, streams: 2 };
    let score = model.evaluate(&zeros(model.tensors()), chunk, &[true; 10], &mut model.blank(2));
    assert!((score.loss / 10.0 - f64::ln(11.0)).abs() < 1e-6);
}

/// The slope along each single parameter, by differences of the scalar twin.
#[test]
fn gradients_are_slopes() {
    let model = model(3, 4);
    let mut parameters = parameters(&model);
    let text = tokens(7, 4, 2);
    let chunk = Chunk { inputs: &text[..6], targets: &text[1..], streams: 1 };
    let mut gradients = zeros(model.tensors());
    model.add_gradients(&parameters, chunk, None, &mut model.blank(1), &mut gradients);
    let step = 1.0 / 256.0;
    for tensor in 0..parameters.len() {
        for at in 0..parameters[tensor].len() {
            let value = parameters[tensor][at];
            let mut loss_at = |moved: f32| {
                parameters[tensor][at] = moved;
                naive(&model, &parameters, &text[..6], &text[1..]).iter().sum::<f64>()
            };
            let slope = (loss_at(value + step) - loss_at(value - step)) / (2.0 * f64::from(step));
            parameters[tensor][at] = value;
            let found = f64::from(gradients[tensor][at]);
            let name = model.tensors()[tensor].name();
            assert!((found - slope).abs() < 2e-4, "{name}[{at}]: {found} is not {slope}");
        }
    }
}

#[test]
fn gradients_are_added_and_averaged_over_streams() {
    let model = model(4, 6);
    let parameters = parameters(&model);
    let text = tokens(9, 6, 5);
    let mut one = zeros(model.tensors());
    let single = Chunk { inputs: &text[..8], targets: &text[1..], streams: 1 };
    model.add_gradients(&parameters, single, None, &mut model.blank(1), &mut one);
    // The same stream twice has the same mean.
    let twice = |part: &[u32]| part.iter().flat_map(|&token| [token, token]).collect::<Vec<_>>();
    let (inputs, targets) = (twice(&text[..8]), twice(&text[1..]));
    let double = Chunk { inputs: &inputs, targets: &targets, streams: 2 };
    let mut two = one.clone();
    model.add_gradients(&parameters, double, None, &mut model.blank(2), &mut two);
    for (one, two) in one.iter().flatten().zip(two.iter().flatten()) {
        assert!((2.0 * one - two).abs() < 1e-5, "{one} {two}");
    }
}

#[test]
fn dropout_keeps_half_and_its_gradients_are_slopes() {
    let dropout = Dropout { seed: 1, rank: 2, step: 3 };
    let mask = dropout.mask(0, 10_000, 50);
    let kept = mask.iter().filter(|&&factor| factor == 2.0).count();
    assert!((4_750..5_250).contains(&kept), "{kept}");
    assert!(mask.iter().all(|&factor| factor == 0.0 || factor == 2.0));
    assert_eq!(mask, dropout.mask(0, 10_000, 50));
    for other in [
        Dropout { seed: 2, ..dropout },
        Dropout { rank: 0, ..dropout },
        Dropout { step: 4, ..dropout },
    ] {
        assert_ne!(mask, other.mask(0, 10_000, 50));
    }
    assert_ne!(mask, dropout.mask(1, 10_000, 50));

    let model = model(6, 5);
    let parameters = parameters(&model);
    let text = tokens(13, 5, 7);
    let chunk = Chunk { inputs: &text[..12], targets: &text[1..], streams: 2 };
    let loss_of = |parameters: &[Vec<f32>], gradients: &mut [Vec<f32>]| {
        let mut memory = model.blank(2);
        // Six times; each counts in full.
        6.0 * model.add_gradients(parameters, chunk, Some(dropout), &mut memory, gradients)
    };
    let mut gradients = zeros(model.tensors());
    loss_of(&parameters, &mut gradients);
    for tensor in 0..parameters.len() {
        let norm = norm(&gradients[tensor]);
        let at = |distance: f64| {
            let mut moved = parameters.clone();
            go(&mut moved[tensor], distance / norm, &gradients[tensor]);
            loss_of(&moved, &mut zeros(model.tensors()))
        };
        let slope = (at(2e-3) - at(-2e-3)) / 4e-3;
        let name = model.tensors()[tensor].name();
        assert!((slope / norm - 1.0).abs() < 0.01, "{name}: {slope} is not {norm}");
    }
}

#[test]
fn one_hot_vectors_are_an_embedding_by_the_identity() {
    let size = 6;
    let embedded = model(size, size);
    let config = LstmConfig { hidden: size, embedding: false, ..LstmConfig::CHARACTERS };
    let one_hot = LanguageModel::new(ModelKind::CharLstm(config), size).unwrap();
    assert_eq!(one_hot.tensors().len(), 6);
    // (67 + 512)·2048 + 2048 + 1024·2048 + 2048 + 512·67 + 67.
    let kind = "charlstm:hidden=512,dropout=0,embedding=off".parse().unwrap();
    assert_eq!(elements(LanguageModel::new(kind, 67).unwrap().tensors()), 3_321_411);

    let mut parameters = parameters(&embedded);
    parameters[0].iter_mut().enumerate().for_each(|(at, value)| {
        *value = if at % (size + 1) == 0 { 1.0 } else { 0.0 };
    });
    let text = tokens(13, size as u64, 7);
    let chunk = Chunk { inputs: &text[..12], targets: &text[1..], streams: 2 };
    let mut expected = zeros(embedded.tensors());
    let loss =
        embedded.add_gradients(&parameters, chunk, None, &mut embedded.blank(2), &mut expected);
    let mut found = zeros(one_hot.tensors());
    let found_loss =
        one_hot.add_gradients(&parameters[1..], chunk, None, &mut one_hot.blank(2), &mut found);
    assert!((loss - found_loss).abs() < 1e-6);
    for (found, expected) in found.iter().flatten().zip(expected[1..].iter().flatten()) {
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    }
}

#[test]
fn other_fractions_are_dropped() {
    let dropout = Dropout { seed: 1, rank: 2, step: 3 };
    let mask = dropout.mask(0, 10_000, 20);
    let kept = mask.iter().filter(|&&factor| factor == 1.25).count();
    assert!((7_800..8_200).contains(&kept), "{kept}");
    assert!(mask.iter().all(|&factor| factor == 0.0 || factor == 1.25));

    // Without a fraction to drop, the draws have no effect; one-hot vectors have no dropout.
    let text = tokens(9, 5, 7);
    let chunk = Chunk { inputs: &text[..8], targets: &text[1..], streams: 1 };
    let loss = |percentage, dropout| {
        let config = LstmConfig { hidden: 4, dropout: percentage, ..LstmConfig::CHARACTERS };
        let model = LanguageModel::new(ModelKind::CharLstm(config), 5).unwrap();
        let mut gradients = zeros(model.tensors());
        let parameters = parameters(&model);
        model.add_gradients(&parameters, chunk, dropout, &mut model.blank(1), &mut gradients)
    };
    assert_eq!(loss(0, Some(dropout)), loss(0, None));
    assert_ne!(loss(20, Some(dropout)), loss(20, None));
    let masks = |embedding| {
        let config = LstmConfig { hidden: 4, embedding, ..LstmConfig::CHARACTERS };
        let model = LanguageModel::new(ModelKind::CharLstm(config), 5).unwrap();
        let mut hidden = model.blank(1);
        let pass = model.forward(&parameters(&model), chunk, Some(dropout), &mut hidden);
        pass.masks.iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(masks(true), [32, 32, 32]);
    assert_eq!(masks(false), [0, 32, 32]);
}
