// What the kernels of batch normalisation have in common: channels, their parts, their statistics.

// What a block is to go through: `each` of the vectors of a channel from `first` on. A vector is N elements of an area.
struct Part {
    u32 channel, channels, vectors_of_area, first, end;
    u64 area;

    __device__ Part(u32 channels, u32 batch, u32 area, u32 vector, u32 part, u32 parts)
        : channel(blockIdx.x), channels(channels), vectors_of_area(area / vector), area(area) {
        const u32 vectors = batch * vectors_of_area, each = (vectors + parts - 1) / parts;
        first = part * each < vectors ? part * each : vectors;
        end = vectors - first < each ? vectors : first + each;
    }

    // Calls `use(place, load(place))` with where each of this thread's vectors begins. Loads of BATCH vectors are
    // under way at once.
    template <int N, int BATCH, class Load, class Use> __device__ __forceinline__ void each(Load load, Use use) const {
        const u32 threads = blockDim.x, images = threads / vectors_of_area, rest = threads % vectors_of_area;
        u32 vector = first + threadIdx.x;
        u32 image = vector / vectors_of_area, at = vector % vectors_of_area;
        for (; vector < end; vector += BATCH * threads) {
            decltype(load(u64(0))) loaded[BATCH];
            u64 places[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                places[i] = (u64(image) * channels + channel) * area + u64(at) * N;
                if (vector + i * threads < end) loaded[i] = load(places[i]);
                at += rest;
                image += images;
                if (at >= vectors_of_area) {
                    at -= vectors_of_area;
                    image++;
                }
            }
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                if (vector + i * threads < end) use(places[i], loaded[i]);
            }
        }
    }
};

// Mean and sum of squared distances from it, of some elements.
struct Moments {
    f32 count, mean, squares;
};

__device__ __forceinline__ Moments join(Moments a, Moments b) {
    const f32 count = a.count + b.count, share = count > 0.f ? b.count / count : 0.f, distance = b.mean - a.mean;
    return {count, a.mean + distance * share, a.squares + b.squares + distance * distance * a.count * share};
}

__device__ Moments join_warp(Moments own) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        const Moments other = {
            __shfl_down_sync(0xffffffffu, own.count, distance), __shfl_down_sync(0xffffffffu, own.mean, distance),
            __shfl_down_sync(0xffffffffu, own.squares, distance)};
        own = join(own, other);
    }
    return own;
}

// The moments of what all threads of a block bring, in every thread.
__device__ Moments join_block(Moments own) {
    __shared__ Moments warps[32];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    own = join_warp(own);
    if (lane == 0) warps[warp] = own;
    __syncthreads();
    if (warp == 0) {
        own = join_warp(lane < blockDim.x / 32 ? warps[lane] : Moments{0.f, 0.f, 0.f});
        if (lane == 0) warps[0] = own;
    }
    __syncthreads();
    return warps[0];
}

// The moments of a part. Each thread joins vector after vector to what it has.
template <class T, int N> __device__ Moments moments_of(const T* src, const Part& part) {
    Moments own = {0.f, 0.f, 0.f};
    f32 vectors = 0.f;
    part.each<N, 4>([&](u64 at) { return load<T, N>(src + at); }, [&](u64, const Pack<T, N>& pack) {
        f32 mean = 0.f, squares = 0.f;
#pragma unroll
        for (int i = 0; i < N; i++) mean += to_f32(pack.at[i]);
        mean *= 1.f / N;
#pragma unroll
        for (int i = 0; i < N; i++) squares += (to_f32(pack.at[i]) - mean) * (to_f32(pack.at[i]) - mean);
        const f32 share = __fdividef(1.f, vectors + 1.f), distance = mean - own.mean;
        own.mean += distance * share;
        own.squares += squares + distance * distance * (N * vectors * share);
        vectors += 1.f;
    });
    own.count = N * vectors;
    return join_block(own);
}

struct Shape {
    u32 batch, channels, area;
};

// What becomes of a channel's statistics beside the normalised elements.
struct Kept {
    f32 *mean, *rstd;
    Values running_mean, running_var;
    f32 eps, momentum;

    __device__ f32 keep(const Moments& all, u32 channel, bool writes) const {
        const f32 variance = all.squares / all.count, reciprocal = 1.f / sqrtf(variance + eps);
        if (writes) {
            const f32 left = 1.f - momentum, of_sample = momentum * (all.count / (all.count - 1.f));
            mean[channel] = all.mean;
            rstd[channel] = reciprocal;
            running_mean.set(channel, left * running_mean.get(channel) + momentum * all.mean);
            running_var.set(channel, left * running_var.get(channel) + of_sample * variance);
        }
        return reciprocal;
    }
};

// Sums over a channel: of the gradient, and of its products with the centred source.
struct Sums {
    f32 of_grad, of_both;
};
