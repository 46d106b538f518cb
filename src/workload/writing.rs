//! Text from a byte-level model: forward passes without gradients, one byte each.

use super::random::Random;
use vramlab_device::DType;
use vramlab_model::Category;
use vramlab_train::{Checkpointing, Context, Model, OpResult, Shape};

/// Bytes of a piece: enough to show what the model has learned, few enough that training hardly waits.
const LENGTH: usize = 96;
/// Below 1 likely bytes are preferred: readable text from a model that is still unsure.
const TEMPERATURE: f32 = 0.7;

/// Writes [`LENGTH`] bytes with a model of `seq` positions and `vocab` tokens, beginning after a line end.
pub(super) fn write(cx: &mut Context, model: &dyn Model, [seq, vocab]: [usize; 2], seed: u64) -> OpResult<String> {
    let mut random = Random::new(seed);
    let mut tokens: Vec<i64> = vec![i64::from(b'\n')];
    for _ in 0..LENGTH {
        let context = &tokens[tokens.len().saturating_sub(seq)..];
        let logits = last_logits(cx, model, context, vocab)?;
        tokens.push(choose(&logits, random.unit()));
    }
    let bytes: Vec<u8> = tokens[1..].iter().map(|token| u8::try_from(*token).unwrap_or(b'?')).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Logits (vocab) for what follows `tokens`.
fn last_logits(cx: &mut Context, model: &dyn Model, tokens: &[i64], vocab: usize) -> OpResult<Vec<f32>> {
    let memory = cx.memory().clone();
    let input = memory.tensor(Shape::new(&[1, tokens.len()]), DType::I64, Category::Input, "prompt")?;
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    memory.write(&input, &bytes)?;
    let logits = model.forward(cx, &input, Checkpointing::Off)?;
    let last = logits.window(Shape::new(&[vocab]), logits.numel() - vocab);
    let mut bytes = vec![0; 4 * vocab];
    memory.read(&last, &mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

/// A token drawn from the softmax of `logits` at [`TEMPERATURE`]: the one at which `u` in [0, 1) falls.
fn choose(logits: &[f32], u: f64) -> i64 {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = logits.iter().map(|x| f64::from((x - highest) / TEMPERATURE).exp()).collect();
    let mut left = u * weights.iter().sum::<f64>();
    for (token, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return token as i64;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_drawn_in_proportion() {
        let logits = [0.0, f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY];
        assert_eq!(choose(&logits, 0.0), 0);
        assert_eq!(choose(&logits, 0.49), 0);
        assert_eq!(choose(&logits, 0.51), 2);
        assert_eq!(choose(&[f32::NAN; 3], 0.5), 0);
    }
}
