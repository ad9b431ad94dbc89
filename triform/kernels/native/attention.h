// Attention of rows over a growing past of unequal lengths: grouped heads, rotary angles, norms of q and k, score bias.
//
// Each query reads exactly the keys that it sees, in the same order whatever else is in the pass.
#pragma once

#include "product.h"

namespace {

constexpr int kMostHeadWidth = 1024;

// The pair (x[i], x[i + K/2]) rotated by the angle i of a position.
inline void rotate(const Frame& frame, int32_t position, float* x, int64_t width) {
    int64_t half = width / 2;
    const float *cosine = frame.cosines + position * half, *sine = frame.sines + position * half;
    for (int64_t i = 0; i < half; i++) {
        float first = x[i], second = x[i + half];
        x[i] = first * cosine[i] - second * sine[i];
        x[i + half] = second * cosine[i] + first * sine[i];
    }
}

// One head of q or k: norm, then rotation; behind its end, zeros up to a multiple of 16.
inline void prepare_head(const Operation& op, const Frame& frame, const Norm& norm, int32_t position, const float* x, float* y) {
    normalize(norm, x, y, op.head_width, 1.0f);
    if (op.rotary) rotate(frame, position, y, op.head_width);
}

inline void write_past(const Operation& op, const Frame& frame, const Past& past, const float* x, int64_t row, int64_t kv_head) {
    const Place& place = frame.places[row];
    const int64_t width = op.head_width, bytes = width * sizeof(float);
    const float *key = x + (op.heads + kv_head) * width, *value = key + op.kv_heads * width;
    int64_t at = place.row * past.row_stride + kv_head * past.head_stride + place.slot * past.position_stride;
    alignas(64) float prepared[kMostHeadWidth];
    prepare_head(op, frame, op.key_norm, place.position, key, prepared);
    memcpy(past.keys + at, prepared, bytes);
    if (past.values + at != value) memcpy(past.values + at, value, bytes);
}

// Σ q[i] · k[i]; q has zeros behind its end
inline float multiply_heads(const float* query, const float* key, int64_t width) {
    Floats sums[kParts] = {};
    int64_t at = 0;
    for (; at + kWidth <= width; at += kWidth)
        UNROLL for (int p = 0; p < kParts; p++) sums[p] = fma(load(query + at + p * kLanes), load(key + at + p * kLanes), sums[p]);
    if (at < width) {
        alignas(64) float rest[kWidth] = {};
        memcpy(rest, key + at, (width - at) * sizeof(float));
        UNROLL for (int p = 0; p < kParts; p++) sums[p] = fma(load(query + at + p * kLanes), load(rest + p * kLanes), sums[p]);
    }
    return fold(sums);
}

// Scores → weights that are still to be divided by their sum, which it returns; `count` scores, space for 16 more.
inline float weigh(float* scores, int64_t count) {
    int64_t all = round_up(count, kWidth);
    for (int64_t at = count; at < all; at++) scores[at] = -INFINITY;
    Floats tops[kParts];
    for (int p = 0; p < kParts; p++) tops[p] = load(scores + p * kLanes);
    for (int64_t at = kWidth; at < all; at += kWidth)
        for (int p = 0; p < kParts; p++) tops[p] = larger(tops[p], load(scores + at + p * kLanes));
    float top = fold_largest(tops);
    Floats sums[kParts] = {};
    for (int64_t at = 0; at < all; at += kWidth)
        for (int p = 0; p < kParts; p++) {
            Floats weight = exponential_of_score(load(scores + at + p * kLanes) - top);
            store(scores + at + p * kLanes, weight);
            sums[p] += weight;
        }
    return fold(sums);
}

// to[i] = Σ weight · value[i] · factor, for 16 · C numbers of a head
template <int C>
inline void mix_values(const float* weights, int64_t count, const float* values, int64_t stride, float factor, float* to) {
    Floats sums[C * kParts] = {};
    for (int64_t at = 0; at < count; at++, values += stride)
        UNROLL for (int p = 0; p < C * kParts; p++) sums[p] = fma(spread(weights[at]), load(values + p * kLanes), sums[p]);
    UNROLL for (int p = 0; p < C * kParts; p++) store(to + p * kLanes, sums[p] * factor);
}

inline void mix_rest(const float* weights, int64_t count, const float* values, int64_t stride, float factor, float* to, int64_t width) {
    for (int64_t i = 0; i < width; i++) {
        float sum = 0;
        for (int64_t at = 0; at < count; at++) sum = __builtin_fmaf(weights[at], values[at * stride + i], sum);
        to[i] = sum * factor;
    }
}

inline void attend(const Operation& op, const Frame& frame, const Past& past, int64_t row, int64_t head, const float* x, float* to, float* scores) {
    const Place& own = frame.places[row];
    const Place& place = op.from_source ? frame.source_places[row] : own;
    const int64_t width = op.head_width, count = place.last - place.first, group = op.heads / op.kv_heads;
    if (count <= 0) {
        memset(to, 0, width * sizeof(float));
        return;
    }
    int64_t start = place.row * past.row_stride + head / group * past.head_stride + place.first * past.position_stride;
    alignas(64) float query[kMostHeadWidth];
    prepare_head(op, frame, op.query_norm, own.position, x + head * width, query);
    const float *key = past.keys + start, *values = past.values + start;
    for (int64_t at = 0; at < count; at++, key += past.position_stride) {
        prefetch(key + 4 * past.position_stride);
        scores[at] = multiply_heads(query, key, width) * op.score_scale;
    }
    if (op.biased) {
        const float* bias = frame.bias + head * frame.bias_length + frame.bias_center + place.first - own.slot;
        for (int64_t at = 0; at < count; at++) scores[at] += bias[at];
    }
    float factor = 1.0f / weigh(scores, count);
    int64_t i = 0;
    for (; i + 4 * kWidth <= width; i += 4 * kWidth) mix_values<4>(scores, count, values + i, past.position_stride, factor, to + i);
    for (; i + kWidth <= width; i += kWidth) mix_values<1>(scores, count, values + i, past.position_stride, factor, to + i);
    if (i < width) mix_rest(scores, count, values + i, past.position_stride, factor, to + i, width - i);
}

// The keys and values of all rows of the pass.
inline void write_pasts(const Operation& op, const Frame& frame, const Past& past, int64_t row_count, Member& me) {
    const Buffer& source = frame.buffers[op.source];
    for (int64_t item; (item = me.team->take_next()) < row_count * op.kv_heads;) {
        int64_t row = item / op.kv_heads;
        write_past(op, frame, past, source.data + row * source.stride, row, item % op.kv_heads);
    }
    me.team->meet();
}

inline void attend_in_buffers(const Operation& op, const Frame& frame, const Past& past, int64_t row, int64_t head, Scratch& own) {
    const Buffer &source = frame.buffers[op.source], &target = frame.buffers[op.target];
    const Place& place = op.from_source ? frame.source_places[row] : frame.places[row];
    float* scores = (float*)own.reserve((place.last > 0 ? place.last + 2 * kWidth : kWidth) * sizeof(float));
    attend(op, frame, past, row, head, source.data + row * source.stride, target.data + row * target.stride + head * op.head_width, scores);
}

inline void run_attention(const Operation& op, const Frame& frame, int64_t row_count, Member& me) {
    const Past& past = frame.pasts[op.past];
    if (op.writes) write_pasts(op, frame, past, row_count, me);
    for (int64_t item; (item = me.team->take_next()) < row_count * op.heads;)
        attend_in_buffers(op, frame, past, item / op.heads, item % op.heads, *me.own);
    me.team->meet();
}

}  // namespace
