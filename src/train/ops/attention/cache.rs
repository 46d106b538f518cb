//! Attention over the positions so far and those of the current pass.

use crate::context::Context;
use crate::error::{OpResult, TrainError};
use crate::kv_cache::{CacheKind, KvCache};
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_device::kernels;
use vramlab_model::Category;

impl Context {
    /// Runs a forward pass of `rows` positions whose attention also sees the positions in `cache`, and adds the pass's
    /// positions to it. Nothing is differentiated.
    ///
    /// # Errors
    /// What `forward` returns; the cache is then empty.
    pub fn with_cache<T>(
        &mut self,
        cache: &mut KvCache,
        rows: usize,
        forward: impl FnOnce(&mut Self) -> OpResult<T>,
    ) -> OpResult<T> {
        let outer = self.cache.replace(std::mem::take(cache));
        let result = self.no_grad(forward);
        let used = std::mem::replace(&mut self.cache, outer);
        if let (Some(mut used), Ok(_)) = (used, &result) {
            (used.next, used.positions) = (0, used.positions + rows);
            *cache = used;
        }
        result
    }

    /// Positions before those of the current forward pass.
    #[must_use]
    pub fn past_positions(&self) -> usize {
        self.cache.as_ref().map_or(0, KvCache::positions)
    }

    /// Attention over the cache and the positions of this pass, which are added to it.
    pub(super) fn cached_attention(
        &mut self,
        mut cache: KvCache,
        qkv: &Tensor,
        heads: usize,
        causal: bool,
    ) -> OpResult<Tensor> {
        let [q, k, v] = self.heads_of(qkv, heads);
        let layer = cache.next;
        cache.next += 1;
        let [keys, values] = match cache.kind {
            CacheKind::Growing => self.concatenate(&mut cache, layer, [&k, &v])?,
            CacheKind::Preallocated { positions } => self.fill(&mut cache, layer, positions, [&k, &v])?,
        };
        // Every position sees all earlier passes; among the pass's own positions a causal mask is needed only for more than one.
        let past = cache.positions;
        self.cache = Some(cache);
        self.attention_over(&q, &keys, &values, causal && past == 0)
    }

    fn concatenate(&mut self, cache: &mut KvCache, layer: usize, new: [&Tensor; 2]) -> OpResult<[Tensor; 2]> {
        let names = ["key cache", "value cache"];
        for (which, (new, what)) in new.into_iter().zip(names).enumerate() {
            let [batch, heads, rows, head_size] = *new.shape().dims() else { continue };
            let past = cache.positions;
            let joined = self.op("cat", |cx| {
                let shape = Shape::new(&[batch, heads, past + rows, head_size]);
                let joined = cx.memory().tensor(shape, new.dtype(), Category::Other, what)?;
                if let Some(old) = cache.layers.get(layer).filter(|_| past > 0) {
                    let old = &old[which];
                    cx.copy(old, &joined.strided(old.shape(), strides(&joined), 0))?;
                }
                cx.copy(new, &joined.strided(new.shape(), strides(&joined), past * head_size))?;
                Ok(joined)
            })?;
            match cache.layers.get_mut(layer) {
                Some(old) => old[which] = joined,
                // The values' entry holds the keys until the values follow.
                None => cache.layers.push([joined.clone(), joined]),
            }
        }
        kept(cache, layer)
    }

    fn fill(
        &mut self,
        cache: &mut KvCache,
        layer: usize,
        positions: usize,
        new: [&Tensor; 2],
    ) -> OpResult<[Tensor; 2]> {
        let [batch, heads, rows, head_size] = *new[0].shape().dims() else { return kept(cache, layer) };
        if cache.positions + rows > positions {
            let text = format!(
                "a cache of {positions} positions has no room for {}; generate fewer tokens",
                cache.positions + rows
            );
            return Err(TrainError::Workload(text).into());
        }
        if cache.layers.len() <= layer {
            let shape = Shape::new(&[batch, heads, positions, head_size]);
            let dtype = new[0].dtype();
            let make = |what| -> OpResult<Tensor> {
                let tensor = self.memory().tensor(shape, dtype, Category::Other, what)?;
                self.launch(kernels::Elementwise::Fill { dst: tensor.operand(), value: 0.0 })?;
                Ok(tensor)
            };
            cache.layers.push([make("key cache")?, make("value cache")?]);
        }
        let [keys, values] = kept(cache, layer)?;
        self.op("index_copy", |cx| {
            for (new, all) in new.into_iter().zip([&keys, &values]) {
                cx.copy(new, &all.strided(new.shape(), strides(all), cache.positions * head_size))?;
            }
            Ok(())
        })?;
        let shape = Shape::new(&[batch, heads, cache.positions + rows, head_size]);
        Ok([&keys, &values].map(|all| all.strided(shape, strides(all), 0)))
    }
}

fn kept(cache: &KvCache, layer: usize) -> OpResult<[Tensor; 2]> {
    cache.layers.get(layer).cloned().ok_or_else(|| {
        TrainError::Workload("a cache holds other layers than the model has; start with an empty one".into()).into()
    })
}

fn strides(tensor: &Tensor) -> [usize; 4] {
    tensor.shape().contiguous_strides()
}
