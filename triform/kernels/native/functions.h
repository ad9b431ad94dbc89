// Functions of a register of numbers: exp, and the activations made of it. Every instruction set gives the same bits.
#pragma once

#include "layout.h"

namespace {

// 2ⁿ · p(r) with x = n · ln 2 + r and |r| ≤ ln 2 / 2; arguments are clamped to −87 … 88
inline Floats exponential(Floats x) {
    x = choose(x < -87.0f, spread(-87.0f), choose(x > 88.0f, spread(88.0f), x));
    Floats whole = (x * 1.44269504f + kRounder) - kRounder;
    Floats rest = fma(whole, spread(-0.693359375f), x);
    rest = fma(whole, spread(2.12194440e-4f), rest);
    Floats sum = fma(spread(1.9875691500e-4f), rest, spread(1.3981999507e-3f));
    sum = fma(sum, rest, spread(8.3334519073e-3f));
    sum = fma(sum, rest, spread(4.1665795894e-2f));
    sum = fma(sum, rest, spread(1.6666665459e-1f));
    sum = fma(sum, rest, spread(5.0000001201e-1f));
    sum = fma(sum, rest * rest, rest + 1.0f);
    return sum * (Floats)((to_whole(whole) + 127) << 23);
}

// e^x of scores after the largest is subtracted; exactly 0 where a key is not seen (−∞)
inline Floats exponential_of_score(Floats x) {
    return choose(x < -87.0f, Floats{}, exponential(x));
}

inline Floats silu(Floats x) { return x / (1.0f + exponential(-x)); }

// x · Φ(x), with the complementary error function of Abramowitz and Stegun, 7.1.26
inline Floats gelu(Floats x) {
    Floats z = magnitude(x) * 0.70710678f, t = 1.0f / fma(spread(0.3275911f), z, spread(1.0f));
    Floats sum = fma(spread(1.061405429f), t, spread(-1.453152027f));
    sum = fma(sum, t, spread(1.421413741f));
    sum = fma(sum, t, spread(-0.284496736f));
    sum = fma(sum, t, spread(0.254829592f));
    Floats tail = 0.5f * (sum * t) * exponential_of_score(-z * z) * x;
    return choose(x < 0.0f, tail, x - tail);
}

inline Floats hyperbolic_tangent(Floats x) {
    Floats small = magnitude(x), even = exponential(-2.0f * small);
    Floats large = (1.0f - even) / (1.0f + even);
    Floats square = x * x;  // near 0, where 1 − e^… would lose its digits: x · (1 − x²/3 + 2x⁴/15 − 17x⁶/315)
    Floats sum = fma(spread(-17.0f / 315), square, spread(2.0f / 15));
    sum = fma(sum, square, spread(-1.0f / 3));
    Floats near = fma(sum * square, x, x);
    return choose(small < 0.25f, near, choose(x < 0.0f, -large, large));
}

inline Floats gelu_tanh(Floats x) {
    Floats inner = 0.79788456f * fma(0.044715f * x * x, x, x);
    return 0.5f * x * (1.0f + hyperbolic_tangent(inner));
}

inline Floats activate(Activation activation, Floats x) {
    switch (activation) {
        case kRelu: return choose(x < 0.0f, Floats{}, x);  // NaN stays
        case kGelu: return gelu(x);
        case kGeluTanh: return gelu_tanh(x);
        case kSilu: return silu(x);
        case kTanh: return hyperbolic_tangent(x);
        default: return x;
    }
}

}  // namespace
