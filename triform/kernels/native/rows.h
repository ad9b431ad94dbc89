// A row before its product: norm or gate, a factor, and for 8- and 4-bit weights rounding to 8 bits in groups of 32.
#pragma once

#include "functions.h"

namespace {

constexpr int kFetchAhead = 2048;  // bytes: of weights that come from memory

inline int64_t round_up(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

// The rows that a product reads: numbers, or 8-bit codes with a scale for each group.
struct Rows {
    const float* numbers;
    int64_t stride;      // from row to row
    const int8_t* codes;
    int64_t code_stride;
    const float* scales;
    const int32_t* sums; // of the codes of a group
    int64_t group_stride;

    Rows from(int64_t row) const {
        return {numbers + row * stride, stride, codes + row * code_stride, code_stride,
                scales + row * group_stride, sums + row * group_stride, group_stride};
    }
};

// Σ x, with 16 sums beside each other; `count` is a multiple of 16
template <class Function>
inline float sum_over(int64_t count, Function part) {
    Floats sums[kParts] = {};
    for (int64_t at = 0; at < count; at += kWidth)
        UNROLL for (int p = 0; p < kParts; p++) sums[p] += part(at + p * kLanes);
    return fold(sums);
}

// y = norm(x) · factor, both with space for a multiple of 16 numbers; what is behind the end of y becomes 0
inline void normalize(const Norm& norm, const float* x, float* y, int64_t count, float factor) {
    int64_t all = round_up(count, kWidth);
    if (y != x) memcpy(y, x, count * sizeof(float));
    for (int64_t at = count; at < all; at++) y[at] = 0;
    if (norm.kind == kLayerNorm) {
        float mean = sum_over(all, [&](int64_t at) { return load(y + at); }) / (float)count;
        for (int64_t at = 0; at < all; at += kLanes) store(y + at, load(y + at) - mean);
        for (int64_t at = count; at < all; at++) y[at] = 0;
    }
    if (norm.kind != kNoNorm) {
        float squares = sum_over(all, [&](int64_t at) { Floats part = load(y + at); return part * part; });
        float inverse = 1.0f / sqrtf(squares / (float)count + norm.epsilon);
        for (int64_t at = 0; at < all; at += kLanes) store(y + at, load(y + at) * inverse * load(norm.gain + at));
        if (norm.shift)
            for (int64_t at = 0; at < all; at += kLanes) store(y + at, load(y + at) + load(norm.shift + at));
    }
    if (factor != 1.0f)
        for (int64_t at = 0; at < all; at += kLanes) store(y + at, load(y + at) * factor);
}

// y = activation(x[0 … count)) · x[count … 2 count)
inline void gate(Activation activation, const float* x, float* y, int64_t count) {
    int64_t at = 0;
    for (; at + kLanes <= count; at += kLanes)
        store(y + at, activate(activation, load(x + at)) * load(x + count + at));
    if (at < count) {
        float first[kLanes] = {}, second[kLanes] = {};
        memcpy(first, x + at, (count - at) * sizeof(float)), memcpy(second, x + count + at, (count - at) * sizeof(float));
        store(first, activate(activation, load(first)) * load(second));
        memcpy(y + at, first, (count - at) * sizeof(float));
    }
}

// Below this a group's factor 127 / largest would not be finite: the group is 0.
constexpr float kSmallestTop = 0x1p-119f;

// One group of 32 numbers → codes, scale, sum of codes. NaN or infinity makes the scale NaN.
inline void quantize_group(const float* x, int8_t* codes, float* scale, int32_t* sum) {
    uint32_t top_bits = 0;  // magnitudes have the order of their bits, NaN above all
    for (int k = 0; k < kGroup; k++) {
        uint32_t bits;
        memcpy(&bits, x + k, 4);
        bits &= 0x7fffffffu;
        top_bits = bits > top_bits ? bits : top_bits;
    }
    float top;
    memcpy(&top, &top_bits, 4);
    bool finite = top_bits < 0x7f800000u;
    if (!finite || top < kSmallestTop) {
        memset(codes, 0, kGroup);
        *scale = finite ? 0.0f : __builtin_nanf("");
        *sum = 0;
        return;
    }
    float factor = 127.0f / top;
    int32_t total = 0, whole[kGroup];
    for (int k = 0; k < kGroup; k += kLanes) *(Ints*)(whole + k) = to_whole(load(x + k) * factor);
    for (int k = 0; k < kGroup; k++) codes[k] = (int8_t)whole[k], total += whole[k];
    *scale = top / 127.0f;
    *sum = total;
}

inline void quantize_row(const float* x, int64_t groups, int8_t* codes, float* scales, int32_t* sums) {
    for (int64_t g = 0; g < groups; g++) quantize_group(x + g * kGroup, codes + g * kGroup, scales + g, sums + g);
}

}  // namespace
