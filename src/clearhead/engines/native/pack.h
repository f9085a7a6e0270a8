/* GGUF's rows -> panels. A row is decoded block by block into what its kind needs, and each number put in its lane. */

#ifndef CLEARHEAD_PACK_H
#define CLEARHEAD_PACK_H

#include "quant.h"

enum { SUPER = 256, FOUR = 4 }; /* numbers of a super-block of the K formats; inputs that stand together */

typedef struct {
    int8_t q[BLOCK];
    float d[2], m; /* d[0]: of the first 16 numbers, or of all; d[1]: of the others */
} Unpacked;

static int kind_of(int format) {
    switch (format) {
        case GGUF_F32:
        case GGUF_F16:
        case GGUF_BF16: return F32;
        case GGUF_Q4_0: return Q4_0;
        case GGUF_Q4_1: return Q4_1;
        case GGUF_Q8_0:
        case GGUF_Q5_0: return Q8_0;
        case GGUF_Q4_K: return Q4_F;
        case GGUF_Q5_1:
        case GGUF_Q5_K:
        case GGUF_Q6_K: return Q8_F;
    }
    return -1;
}

/* Bytes of a panel: whole lines of 64, so that those of its neighbours begin at one. */
static int64_t panel_bytes(int kind, int in) {
    static const int64_t EACH[KINDS] = {2048, 256 + 32, 256 + 64, 512 + 32, 256 + 128, 512 + 192};
    return (in / BLOCK * EACH[kind] + 63) / 64 * 64;
}

/* --- one block of each format --- */

static void low_and_high(const uint8_t *from, int8_t *q) {
    for (int i = 0; i < 16; i++) q[i] = from[i] & 15, q[16 + i] = from[i] >> 4;
}

static void fifth_bits(const uint8_t *from, int8_t *q) {
    uint32_t bits;
    memcpy(&bits, from, sizeof bits);
    for (int i = 0; i < BLOCK; i++) q[i] |= (bits >> i & 1) << 4;
}

/* The 6-bit scale and minimum of the part-th 32 numbers of a super-block. */
static void six_bits(const uint8_t *packed, int part, int *scale, int *minimum) {
    if (part < 4)
        *scale = packed[part] & 63, *minimum = packed[part + 4] & 63;
    else {
        *scale = (packed[part + 4] & 15) | packed[part - 4] >> 6 << 4;
        *minimum = packed[part + 4] >> 4 | packed[part] >> 6 << 4;
    }
}

static void unpack_4_or_5_k(const uint8_t *super, int part, int five, Unpacked *u) {
    int scale, minimum, upper = part & 1;
    const uint8_t *low = super + (five ? 48 : 16) + part / 2 * 32, *fifth = super + 16;
    six_bits(super + 4, part, &scale, &minimum);
    for (int i = 0; i < BLOCK; i++) u->q[i] = upper ? low[i] >> 4 : low[i] & 15;
    for (int i = 0; five && i < BLOCK; i++) u->q[i] |= (fifth[i] >> part & 1) << 4;
    u->d[0] = u->d[1] = half_at(super) * scale, u->m = -(half_at(super + 2) * minimum);
}

static void unpack_6_k(const uint8_t *super, int part, Unpacked *u) {
    int half = part / 4, quarter = part % 4; /* 128 numbers; 32 of them */
    const uint8_t *low = super + 64 * half + 32 * (quarter & 1), *high = super + 128 + 32 * half;
    const int8_t *scales = (const int8_t *)super + 192 + 2 * part;
    for (int i = 0; i < BLOCK; i++)
        u->q[i] = ((quarter < 2 ? low[i] & 15 : low[i] >> 4) | (high[i] >> 2 * quarter & 3) << 4) - 32;
    u->d[0] = half_at(super + 208) * scales[0], u->d[1] = half_at(super + 208) * scales[1], u->m = 0;
}

/* The b-th block of a row. */
static void unpack(int format, const uint8_t *row, int b, Unpacked *u) {
    int part = b % (SUPER / BLOCK), whole = b / (SUPER / BLOCK);
    const uint8_t *at;
    switch (format) {
        case GGUF_Q4_0: at = row + 18 * b, u->d[0] = half_at(at), low_and_high(at + 2, u->q); break;
        case GGUF_Q4_1:
            at = row + 20 * b, u->d[0] = half_at(at), u->m = half_at(at + 2), low_and_high(at + 4, u->q);
            break;
        case GGUF_Q8_0: at = row + 34 * b, u->d[0] = half_at(at), memcpy(u->q, at + 2, BLOCK); break;
        case GGUF_Q5_0:
            at = row + 22 * b, u->d[0] = half_at(at), low_and_high(at + 6, u->q), fifth_bits(at + 2, u->q);
            for (int i = 0; i < BLOCK; i++) u->q[i] -= 16;
            break;
        case GGUF_Q5_1:
            at = row + 24 * b, u->d[0] = u->d[1] = half_at(at), u->m = half_at(at + 2);
            low_and_high(at + 8, u->q), fifth_bits(at + 4, u->q);
            break;
        case GGUF_Q4_K: unpack_4_or_5_k(row + 144 * whole, part, 0, u); break;
        case GGUF_Q5_K: unpack_4_or_5_k(row + 176 * whole, part, 1, u); break;
        case GGUF_Q6_K: unpack_6_k(row + 210 * whole, part, u); break;
    }
}

/* --- into a lane of a panel --- */

static void put_floats(int format, const uint8_t *row, int columns, uint8_t *panel, int lane) {
    float *into = (float *)panel + lane, x;
    for (int i = 0; i < columns; i++) {
        if (format == GGUF_F32)
            memcpy(&x, row + 4 * i, 4);
        else if (format == GGUF_F16)
            x = half_at(row + 2 * i);
        else {
            uint32_t bits = ((uint32_t)row[2 * i + 1] << 8 | row[2 * i]) << 16;
            memcpy(&x, &bits, 4);
        }
        into[i * LANES] = x;
    }
}

static void put_block(int kind, const Unpacked *u, const uint8_t *scale, uint8_t *quants, uint8_t *scales, int lane) {
    float *floats = (float *)scales + lane;
    int nibbles = kind == Q4_0 || kind == Q4_1 || kind == Q4_F, step = nibbles ? 2 : 1;
    for (int g = 0; g < GROUPS; g += step) { /* four numbers at once: those of 4 bits leave room for the next four */
        uint32_t four, next;
        memcpy(&four, u->q + FOUR * g, FOUR);
        if (nibbles) memcpy(&next, u->q + FOUR * (g + 1), FOUR), four |= next << 4;
        memcpy(quants + (g / step * LANES + lane) * FOUR, &four, FOUR);
    }
    if (kind == Q4_F)
        floats[0] = u->d[0], floats[LANES] = u->m;
    else if (kind == Q8_F)
        floats[0] = u->d[0], floats[LANES] = u->d[1], floats[2 * LANES] = u->m;
    else
        memcpy(scales + 2 * lane, scale, 2); /* float16, as they are stored */
    if (kind == Q4_1) memcpy(scales + 2 * (LANES + lane), scale + 2, 2);
}

typedef struct {
    const uint8_t *rows; /* (outputs, row_bytes) in one of GGUF's formats */
    uint8_t *panels;     /* zeros at first */
    int64_t row_bytes;
    int32_t format, outputs, columns; /* columns are padded to whole blocks */
} Packing;

/* One panel. */
static void pack_panel(const Packing *from, int p) {
    int format = from->format, kind = kind_of(format), blocks = (from->columns + BLOCK - 1) / BLOCK;
    int quant_bytes = kind == F32 ? 2048 : kind == Q8_0 || kind == Q8_F ? 512 : 256;
    int scale_bytes = kind == Q8_F ? 192 : kind == Q4_F ? 128 : kind == Q4_1 ? 64 : 32;
    int block_bytes = format == GGUF_Q8_0 ? 34 : format == GGUF_Q4_0 ? 18 : format == GGUF_Q4_1 ? 20 : 22;
    uint8_t *panel = from->panels + p * panel_bytes(kind, blocks * BLOCK),
            *scales = panel + (int64_t)blocks * quant_bytes;
    for (int lane = 0; lane < LANES && p * LANES + lane < from->outputs; lane++) {
        const uint8_t *row = from->rows + (int64_t)(p * LANES + lane) * from->row_bytes;
        if (kind == F32) put_floats(format, row, from->columns, panel, lane);
        for (int b = 0; kind != F32 && b < blocks; b++) {
            Unpacked u;
            unpack(format, row, b, &u);
            put_block(kind, &u, row + b * block_bytes, panel + b * quant_bytes, scales + b * scale_bytes, lane);
        }
    }
}

#endif
