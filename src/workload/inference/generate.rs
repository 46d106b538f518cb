//! Text, token by token: the prompt in one pass, then a pass for each token over the keys and values kept so far.

use vramlab_device::{DType, kernels};
use vramlab_model::Category;
use vramlab_train::{Checkpointing, Config, Context, KvCache, Model, OpResult, Shape, Tensor, TrainError};

use super::Generation;

impl Generation {
    /// The beginning of every sequence of `tokens`, as long as the new tokens leave room for.
    pub(super) fn prompt(self, cx: &Context, tokens: &Tensor) -> OpResult<Tensor> {
        let refused = |text: String| Err(TrainError::Workload(text).into());
        let (&[samples, rows], DType::I64) = (tokens.shape().dims(), tokens.dtype()) else {
            return refused("only models that read tokens can generate; choose a gpt workload".into());
        };
        if self.new_tokens == 0 || self.new_tokens >= rows {
            return refused(format!(
                "a sequence of {rows} has no room for a prompt and {} new tokens; generate from 1 to {} of them",
                self.new_tokens,
                rows.saturating_sub(1)
            ));
        }
        let shape = Shape::new(&[samples, rows - self.new_tokens]);
        let prompt = cx.memory().tensor(shape, DType::I64, Category::Input, "prompt")?;
        cx.memory().launch(kernels::Strided::Copy {
            src: tokens.address(),
            dst: prompt.address(),
            dtype: DType::I64,
            shape: [1, 1, samples, shape.last()],
            src_strides: [0, 0, rows, 1],
            dst_strides: [0, 0, shape.last(), 1],
        })?;
        Ok(prompt)
    }

    /// Writes the new tokens, each the likeliest; returns them, (samples, tokens).
    pub(super) fn run(self, cx: &mut Context, config: &Config, model: &dyn Model, prompt: &Tensor) -> OpResult<Tensor> {
        let [samples, rows] = *prompt.shape().dims() else { return Ok(prompt.clone()) };
        let mut cache = KvCache::new(self.cache(rows + self.new_tokens));
        let mut next = cx.memory().host_vec::<i64>(samples, "the next tokens on the host")?;
        let mut written = cx.memory().host_vec::<i64>(samples * self.new_tokens, "the text on the host")?;
        let mut input = prompt.clone();
        // A loop's variables: the logits of a pass live until those of the next have been computed.
        let mut logits;
        let mut last: Option<Tensor> = None;
        for place in 0..self.new_tokens {
            let rows = input.shape().last();
            logits = cx.with_cache(&mut cache, rows, |cx| {
                cx.autocast(config.amp.dtype(), |cx| model.forward(cx, &input, Checkpointing::Off))
            })?;
            likeliest(cx, &logits, &mut next)?;
            last = Some(logits);
            input = cx.memory().tensor(Shape::new(&[samples, 1]), DType::I64, Category::Input, "next tokens")?;
            cx.memory().fill(&input, |first, bytes| put(&next[first..], bytes))?;
            written.chunks_exact_mut(self.new_tokens).zip(&*next).for_each(|(text, &token)| text[place] = token);
        }
        drop(last);
        let text = cx.memory().tensor(Shape::new(&[samples, self.new_tokens]), DType::I64, Category::Other, "text")?;
        cx.memory().fill(&text, |first, bytes| put(&written[first..], bytes))?;
        Ok(text)
    }
}

fn put(tokens: &[i64], bytes: &mut [u8]) {
    for (bytes, token) in bytes.as_chunks_mut().0.iter_mut().zip(tokens) {
        *bytes = token.to_le_bytes();
    }
}

/// The token with the largest logit at the last position of every sequence. `logits` are (samples, rows, vocabulary); a
/// device without bytes has no logits to read.
fn likeliest(cx: &Context, logits: &Tensor, tokens: &mut [i64]) -> OpResult<()> {
    let [samples, rows, vocabulary] = *logits.shape().dims() else { return Ok(()) };
    let size = usize::try_from(logits.dtype().size()).unwrap_or(4);
    // If all logits are 0, the first token will do: a batch may have millions of sequences.
    let told = if cx.memory().with_device(|device| device.info().simulated) { 1 } else { vocabulary };
    let mut bytes = vec![0; told * size];
    for sample in 0..samples {
        let last = logits.window(Shape::new(&[vocabulary]), (sample * rows + rows - 1) * vocabulary);
        cx.memory().read(&last, &mut bytes)?;
        let values = bytes.chunks_exact(size).map(|bytes| value(bytes, logits.dtype()));
        let best =
            values.enumerate().fold(
                (0, f32::NEG_INFINITY),
                |best, (token, value)| {
                    if value > best.1 { (token as i64, value) } else { best }
                },
            );
        if let Some(token) = tokens.get_mut(sample) {
            *token = best.0;
        }
    }
    Ok(())
}

fn value(bytes: &[u8], dtype: DType) -> f32 {
    match (dtype, bytes) {
        (DType::F16, &[a, b]) => half::f16::from_le_bytes([a, b]).to_f32(),
        (DType::Bf16, &[a, b]) => half::bf16::from_le_bytes([a, b]).to_f32(),
        (_, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        _ => f32::NAN,
    }
}
