// Rounds float32 values to the shorter types of tensor cores.
// The results stay float32 values: products of two of them are exact.
#ifndef CUPY_ON_CPU_ROUNDING_H
#define CUPY_ON_CPU_ROUNDING_H
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Keep the upper bits of the significand: round to nearest, ties to even.
// A carry moves on into the exponent, up to infinity.
static inline float without_low_bits(float value, int dropped) {
    uint32_t bits = bits_of(value), last_kept = bits >> dropped & 1, half = 1u << (dropped - 1);
    return float_of((bits + half - 1 + last_kept) >> dropped << dropped);
}

// Round as `cvt.rna.tf32.f32`: 10 stored bits, ties away from zero.
static inline float nearest_tf32(float value) {
    return isfinite(value) ? float_of((bits_of(value) + 0x1000u) & ~0x1fffu) : value;
}

static inline float nearest_bfloat16(float value) { return isfinite(value) ? without_low_bits(value, 16) : value; }

static inline float nearest_float16(float value) {
    if (!isfinite(value)) return value;
    float magnitude = fabsf(value), rounded;
    if (magnitude < 0x1p-14f)
        rounded = magnitude + 0.5f - 0.5f; // denormal: the spacing of float32 at 0.5 is 2^-24, that of these numbers
    else
        rounded = without_low_bits(magnitude, 13);
    return copysignf(rounded > 65504 ? INFINITY : rounded, value);
}

static inline float float_of_float16(uint16_t bits) {
    _Float16 value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t float16_of(float value) {
    _Float16 rounded = nearest_float16(value);
    uint16_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return bits;
}

static inline float float_of_bfloat16(uint16_t bits) { return float_of((uint32_t)bits << 16); }

static inline uint16_t bfloat16_of(float value) {
    return value != value ? 0x7fff : bits_of(nearest_bfloat16(value)) >> 16; // cuBLAS writes this NaN
}
#endif
