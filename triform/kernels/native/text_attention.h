// Attention of many queries of a text at once, beside all keys that they see: texts that are read as a whole, whose keys are
// in the pass, and chunks of prompts, whose keys are in the past.
//
// Keys and values of a head are packed like matrices, so that scores and mixed values are products of many rows; what is
// packed and added together depends on the text alone, never on the others of a pass.
#pragma once

#include "attention.h"

namespace {

constexpr int64_t kQueriesAtOnce = 32;  // whose scores are held at once

// One head's keys and values as packed matrices, and what is computed of some queries.
struct HeadTile {
    Float32Block *keys, *values;  // [keys / 16][width] and [width / 16][keys]
    float *queries, *scores, *mixed;
    int64_t width, score_stride;  // padded
    static_assert(kQueriesAtOnce >= kWidth, "`queries` also holds the 16 keys that are being packed");

    static size_t count_bytes(int64_t keys, int64_t width) {
        int64_t padded = round_up(width, kWidth), all = round_up(keys, kWidth);
        return (all * width + padded * keys + kQueriesAtOnce * (2 * padded + all + kWidth)) * sizeof(float);
    }
    HeadTile(char* at, int64_t key_count, int64_t head_width) {
        int64_t all = round_up(key_count, kWidth);
        width = round_up(head_width, kWidth), score_stride = all + kWidth;
        keys = (Float32Block*)at;
        values = keys + all / kWidth * head_width;
        queries = (float*)(values + width / kWidth * key_count);
        mixed = queries + kQueriesAtOnce * width;
        scores = mixed + kQueriesAtOnce * width;
    }
};

constexpr int64_t kFewQueries = 8;  // up to here a query is computed as in a step of generation, whose bits it must have

// Keys that are in the past already, normed and rotated.
inline void pack_past_keys(const float* key, int64_t stride, int64_t count, int64_t width, HeadTile& tile) {
    for (int64_t at = 0; at < count; at += kWidth) {
        int64_t some = count - at < kWidth ? count - at : kWidth;
        Float32Block* to = tile.keys + at / kWidth * width;
        for (int64_t k = 0; k < width; k++)
            for (int i = 0; i < kWidth; i++) to[k].weights[i] = i < some ? key[(at + i) * stride + k] : 0.0f;
    }
}

inline void pack_keys(const Operation& op, const Frame& frame, const Buffer& source, int64_t first, int64_t count, int64_t kv_head, HeadTile& tile) {
    float* prepared = tile.queries;
    for (int64_t at = 0; at < count; at += kWidth) {
        int64_t some = count - at < kWidth ? count - at : kWidth;
        for (int64_t i = 0; i < some; i++) {
            const float* row = source.data + (first + at + i) * source.stride;
            prepare_head(op, frame, op.key_norm, frame.places[first + at + i].position, row + (op.heads + kv_head) * op.head_width, prepared + i * tile.width);
        }
        if (some < kWidth) memset(prepared + some * tile.width, 0, (kWidth - some) * tile.width * sizeof(float));
        Float32Block* to = tile.keys + at / kWidth * op.head_width;
        for (int64_t k = 0; k < op.head_width; k++)
            for (int i = 0; i < kWidth; i++) to[k].weights[i] = prepared[i * tile.width + k];
    }
}

inline void pack_values(const float* value, int64_t stride, int64_t count, int64_t width, HeadTile& tile) {
    for (int64_t at = 0; at < count; at++, value += stride)
        for (int64_t i = 0; i < width; i += kWidth) {
            Float32Block& to = tile.values[i / kWidth * count + at];
            if (i + kWidth <= width) memcpy(to.weights, value + i, sizeof to);
            else memset(to.weights, 0, sizeof to), memcpy(to.weights, value + i, (width - i) * sizeof(float));
        }
}

// The scores of one query → its weights, 0 where it does not see; returns what their sum must be divided by.
inline float weigh_seen(const Operation& op, const Frame& frame, const Place& place, int64_t first_key, int64_t head, float* scores, int64_t stride) {
    const int64_t first = place.first - first_key, count = place.last - place.first, behind = first + round_up(count, kWidth);
    if (op.biased) {
        const float* bias = frame.bias + head * frame.bias_length + frame.bias_center + place.first - place.slot;
        for (int64_t at = 0; at < count; at++) scores[first + at] += bias[at];
    }
    float sum = weigh(scores + first, count);
    memset(scores, 0, first * sizeof(float));
    if (behind < stride) memset(scores + behind, 0, (stride - behind) * sizeof(float));
    return sum;
}

inline Rows make_rows(const float* numbers, int64_t stride) { return {numbers, stride, nullptr, 0, nullptr, nullptr, 0}; }

// The queries of a piece, in all heads that share a head of keys and values.
inline void attend_piece(const Operation& op, const Frame& frame, const Past& past, const Piece& piece, int64_t kv_head, Scratch& own) {
    const Buffer &source = frame.buffers[op.source], &target = frame.buffers[op.target];
    const Place* places = frame.places + piece.first;
    const int64_t first_key = places[0].first, keys = places[piece.rows - 1].last - first_key, group = op.heads / op.kv_heads;
    HeadTile tile(own.reserve(HeadTile::count_bytes(keys, op.head_width)), keys, op.head_width);
    if (past.keys) {
        int64_t start = places[0].row * past.row_stride + kv_head * past.head_stride + first_key * past.position_stride;
        pack_past_keys(past.keys + start, past.position_stride, keys, op.head_width, tile);
        pack_values(past.values + start, past.position_stride, keys, op.head_width, tile);
    } else {
        const float* value = source.data + first_key * source.stride + (op.heads + op.kv_heads + kv_head) * op.head_width;
        pack_keys(op, frame, source, first_key, keys, kv_head, tile);
        pack_values(value, source.stride, keys, op.head_width, tile);
    }
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t at = 0; at < piece.rows; at += kQueriesAtOnce) {
            int64_t rows = piece.rows - at < kQueriesAtOnce ? piece.rows - at : kQueriesAtOnce;
            int64_t seen = places[at + rows - 1].last - first_key;  // by the last of these queries
            float factors[kQueriesAtOnce];
            for (int64_t r = 0; r < rows; r++) {
                float* query = tile.queries + r * tile.width;
                prepare_head(op, frame, op.query_norm, places[at + r].position, source.data + (piece.first + at + r) * source.stride + head * op.head_width, query);
                for (int64_t i = 0; i < tile.width; i += kLanes) store(query + i, load(query + i) * op.score_scale);
            }
            memset(tile.scores, 0, rows * tile.score_stride * sizeof(float));
            add_inputs(tile.keys, op.head_width, (int)(round_up(seen, kWidth) / kWidth), make_rows(tile.queries, tile.width), rows, 0, op.head_width, tile.scores, tile.score_stride);
            for (int64_t r = 0; r < rows; r++)
                factors[r] = 1.0f / weigh_seen(op, frame, places[at + r], first_key, head, tile.scores + r * tile.score_stride, tile.score_stride);
            memset(tile.mixed, 0, rows * tile.width * sizeof(float));
            for (int64_t first = 0; first < seen; first += kChain)
                add_inputs(tile.values, keys, (int)(tile.width / kWidth), make_rows(tile.scores, tile.score_stride), rows, first, seen - first < kChain ? seen - first : kChain, tile.mixed, tile.width);
            for (int64_t r = 0; r < rows; r++) {
                float *mixed = tile.mixed + r * tile.width, *to = target.data + (piece.first + at + r) * target.stride + head * op.head_width;
                for (int64_t i = 0; i < tile.width; i += kLanes) store(mixed + i, load(mixed + i) * factors[r]);
                memcpy(to, mixed, op.head_width * sizeof(float));
            }
        }
}

inline void run_text_attention(const Operation& op, const Frame& frame, int64_t row_count, Member& me) {
    const Past& past = frame.pasts[op.past];
    if (past.keys) write_pasts(op, frame, past, row_count, me);
    for (int64_t item; (item = me.team->take_next()) < frame.piece_count * op.kv_heads;) {
        const Piece& piece = frame.pieces[item / op.kv_heads];
        const int64_t kv_head = item % op.kv_heads, group = op.heads / op.kv_heads;
        if (past.keys && piece.rows <= kFewQueries)
            for (int64_t at = 0; at < piece.rows * group; at++)
                attend_in_buffers(op, frame, past, piece.first + at / group, kv_head * group + at % group, *me.own);
        else
            attend_piece(op, frame, past, piece, kv_head, *me.own);
    }
    me.team->meet();
}

}  // namespace
