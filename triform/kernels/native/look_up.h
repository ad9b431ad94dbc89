// One row of a packed matrix as numbers.
#pragma once

#include "layout.h"

namespace {

inline float widen_bfloat16(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

// The groups of one output from a block of 16; the last group may be shorter.
template <class Block, class Number>
inline void look_up_groups(const Block* block, int64_t inputs, float* to, Number number) {
    for (int64_t at = 0; at < inputs; at += kGroup, block++)
        for (int k = 0; k < kGroup && at + k < inputs; k++) to[at + k] = number(*block, k);
}

inline void look_up(WeightKind kind, const void* matrix, int64_t inputs, int64_t output, float* to) {
    const int64_t block = output / kWidth, groups = (inputs + kGroup - 1) / kGroup;
    const int lane = output % kWidth;
    if (kind == kFloat32) {
        const Float32Block* from = (const Float32Block*)matrix + block * inputs;
        for (int64_t k = 0; k < inputs; k++) to[k] = from[k].weights[lane];
    } else if (kind == kBfloat16) {
        const Bfloat16Block* from = (const Bfloat16Block*)matrix + block * ((inputs + 1) / 2);
        for (int64_t k = 0; k < inputs; k++) to[k] = widen_bfloat16(from[k / 2].weights[lane][k % 2]);
    } else if (kind == kInt8) {
        look_up_groups((const Int8Block*)matrix + block * groups, inputs, to, [&](const Int8Block& of, int k) {
            return widen_half(of.scales[lane]) * (float)of.codes[k / 4][lane][k % 4];
        });
    } else {
        look_up_groups((const Int4Block*)matrix + block * groups, inputs, to, [&](const Int4Block& of, int k) {
            int code = of.codes[k % (kGroup / 2) / 4][lane][k % 4] >> (k < kGroup / 2 ? 0 : 4) & 15;
            return widen_half(of.scales[lane]) * (float)code + widen_half(of.minimums[lane]);
        });
    }
}

}  // namespace
