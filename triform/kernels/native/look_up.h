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

// One output's numbers of a group.
inline void widen_group(const Int8Block& block, int lane, float* to) {
    const float scale = widen_half(block.scales[lane]);
    for (int k = 0; k < kGroup; k++) to[k] = scale * (float)block.codes[k / 4][lane][k % 4];
}

inline void widen_group(const Int4Block& block, int lane, float* to) {
    const float scale = widen_half(block.scales[lane]), minimum = widen_half(block.minimums[lane]);
    for (int k = 0; k < kGroup / 2; k++) {
        uint8_t both = block.codes[k / 4][lane][k % 4];
        to[k] = scale * (float)(both & 15) + minimum;
        to[k + kGroup / 2] = scale * (float)(both >> 4) + minimum;
    }
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
    } else {
        for (int64_t group = 0; group < groups; group++, to += kGroup) {
            float numbers[kGroup];
            if (kind == kInt8) widen_group(((const Int8Block*)matrix)[block * groups + group], lane, numbers);
            else widen_group(((const Int4Block*)matrix)[block * groups + group], lane, numbers);
            int64_t rest = inputs - group * kGroup;
            memcpy(to, numbers, (rest < kGroup ? rest : kGroup) * sizeof(float));
        }
    }
}

}  // namespace
