// What choosing a token needs to know of a row of scores.
#pragma once

#include "functions.h"

namespace {

// The largest score, the first place where it is, the smallest, and log Σ exp; NaN where a score is none.
struct RowSummary { double largest, place, smallest, log_sum; };

constexpr int64_t kSummedAtOnce = 4096;  // a longer sum of float32 would lose digits

inline void find_extremes(const float* x, int64_t count, float* largest, float* smallest, bool* numbers) {
    Floats tops[kParts], lows[kParts];
    Ints odd = {};
    for (int p = 0; p < kParts; p++) tops[p] = spread(-INFINITY), lows[p] = spread(INFINITY);
    int64_t at = 0;
    for (; at + kWidth <= count; at += kWidth)
        UNROLL for (int p = 0; p < kParts; p++) {
            Floats part = load(x + at + p * kLanes);
            tops[p] = larger(part, tops[p]), lows[p] = choose(part < lows[p], part, lows[p]), odd |= part != part;
        }
    float top = -INFINITY, low = INFINITY;
    bool fine = true;
    auto take = [&](float high, float deep) { top = high > top ? high : top, low = deep < low ? deep : low; };
    for (int lane = 0; lane < kLanes; lane++) {
        fine = fine && !odd[lane];
        for (int p = 0; p < kParts; p++) take(tops[p][lane], lows[p][lane]);
    }
    for (; at < count; at++) fine = fine && x[at] == x[at], take(x[at], x[at]);
    *largest = top, *smallest = low, *numbers = fine;
}

inline double sum_exponentials(const float* x, int64_t count, float top) {
    double all = 0;
    for (int64_t first = 0; first < count; first += kSummedAtOnce) {
        int64_t last = first + kSummedAtOnce < count ? first + kSummedAtOnce : count, at = first;
        Floats sums[kParts] = {};
        for (; at + kWidth <= last; at += kWidth)
            UNROLL for (int p = 0; p < kParts; p++) sums[p] += exponential_of_score(load(x + at + p * kLanes) - top);
        if (at < last) {
            float rest[kWidth];
            for (int i = 0; i < kWidth; i++) rest[i] = at + i < last ? x[at + i] : -INFINITY;
            for (int p = 0; p < kParts; p++) sums[p] += exponential_of_score(load(rest + p * kLanes) - top);
        }
        all += fold(sums);
    }
    return all;
}

inline RowSummary summarize(const float* x, int64_t count) {
    float largest, smallest;
    bool numbers;
    find_extremes(x, count, &largest, &smallest, &numbers);
    if (!numbers) return {NAN, 0, NAN, NAN};
    int64_t place = 0;
    while (place < count - 1 && x[place] != largest) place++;
    if (fabsf(largest) == INFINITY) return {largest, (double)place, smallest, NAN};
    return {largest, (double)place, smallest, largest + log(sum_exponentials(x, count, largest))};
}

// The `wanted` largest scores, the largest first, and their places; of equal ones the first. `wanted` ≤ `count`.
inline void find_top(const float* x, int64_t count, int64_t wanted, float* scores, int64_t* places) {
    int64_t found = 0;
    auto take = [&](int64_t at) {
        if (found == wanted && !(x[at] > scores[wanted - 1])) return;
        int64_t to = found < wanted ? found++ : wanted - 1;
        for (; to > 0 && x[at] > scores[to - 1]; to--) scores[to] = scores[to - 1], places[to] = places[to - 1];
        scores[to] = x[at], places[to] = at;
    };
    int64_t at = 0;
    for (; at + kWidth <= count; at += kWidth) {
        if (found == wanted) {
            Ints above = {};
            UNROLL for (int p = 0; p < kParts; p++) above |= load(x + at + p * kLanes) > scores[wanted - 1];
            int32_t any = 0;
            UNROLL for (int lane = 0; lane < kLanes; lane++) any |= above[lane];
            if (!any) continue;
        }
        for (int i = 0; i < kWidth; i++) take(at + i);
    }
    for (; at < count; at++) take(at);
}

}  // namespace
