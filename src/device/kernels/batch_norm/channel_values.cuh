// One value for each channel, in any of the types: f32, f16, bf16.
struct Values {
    void* at;
    u32 type;

    __device__ f32 get(u32 channel) const {
        if (type == 0) return static_cast<const f32*>(at)[channel];
        if (type == 1) return to_f32(static_cast<const f16*>(at)[channel]);
        return to_f32(static_cast<const bf16*>(at)[channel]);
    }
    __device__ void set(u32 channel, f32 x) const {
        if (type == 0) {
            static_cast<f32*>(at)[channel] = x;
        } else if (type == 1) {
            static_cast<f16*>(at)[channel] = from_f32<f16>(x);
        } else {
            static_cast<bf16*>(at)[channel] = from_f32<bf16>(x);
        }
    }
};

