/* Attention of new tokens to the keys and values of their row: one query at a time, or WIDTH of them side by side.

   Side by side, a number of a key meets all queries at once, and maxima and sums over the keys need no sum over the
   lanes of a register.                                                                                                */

#ifndef CLEARHEAD_ATTENTION_H
#define CLEARHEAD_ATTENTION_H

#include <math.h>

#include "lanes.h"
#include "lm.h"

typedef struct {
    int64_t list, slot;                         /* where its row's list begins; the slot of its own key and value */
    int32_t place, position;                    /* in the list; in the text */
} TokenView;

typedef struct {
    const LmAttention *layer;
    const uint8_t *keys, *values;               /* (slots, G K), (slots, G V) of this layer, and their format */
    int half;
    const int32_t *lists;
    const TokenView *views;                     /* (N,) */
    const LmSeen *seen;                         /* those of this layer */
    int seen_count, window;                     /* the smaller one of the cache and the layer; 0: none */
    int64_t length;                             /* of a row of seen weights */
} AttentionInput;

enum { KEYS = 4 }; /* keys, or queries, that are worked on at once */

static inline float number_at(const uint8_t *from, int64_t at, int half) {
    uint16_t bits;
    float value;
    if (half) return memcpy(&bits, from + 2 * at, 2), float_of_half(bits);
    return memcpy(&value, from + 4 * at, 4), value;
}

static inline vec numbers_at(const uint8_t *from, int64_t at, int half) {
    return half ? halves(from + 2 * at) : load((const float *)from + at);
}

static uint16_t half_of_float(float x) {
#if defined(LANES_AVX512) || defined(LANES_AVX2)
    return _cvtss_sh(x, 0);
#else
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size >= 0x47800000) return sign | (size > 0x7f800000 ? 0x7e00 : 0x7c00); /* too large, or not a number */
    if (size < 0x38800000) return sign | (uint16_t)rintf(fabsf(x) * 0x1p24f);      /* below the normal numbers */
    return sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
#endif
}

/* Floats -> float or float16 at an element of the cache. */
static void write_numbers(void *into, int64_t at, const float *from, int count, int half) {
    if (!half) {
        memcpy((float *)into + at, from, sizeof(float) * count);
        return;
    }
    uint16_t *halves_of = (uint16_t *)into + at;
    for (int i = 0; i < count; i++) halves_of[i] = half_of_float(from[i]);
}

static inline float score_of(const LmAttention *a, float product, int head, int distance) {
    float score = product * a->scale;
    if (a->cap > 0) score = a->cap * tanhf(score / a->cap);
    return a->bias ? score + a->bias[(int64_t)head * (2 * a->positions - 1) + a->positions - 1 + distance] : score;
}

static int first_visible(const AttentionInput *input, int place) {
    return input->window && place + 1 > input->window ? place + 1 - input->window : 0;
}

static float *seen_weights(const AttentionInput *input, int head, int64_t token) {
    for (int i = 0; i < input->seen_count; i++)
        if (input->seen[i].head == head) return input->seen[i].weights + token * input->length;
    return NULL;
}

/* Floats of memory that `attend` needs for lists of this length. */
static int64_t attention_memory(const LmAttention *layer, int64_t length) {
    return (length + 2 * KEYS + layer->key_dim) * WIDTH + KEYS * layer->key_dim;
}

/* --- one query --- */

static float dot(const float *q, const uint8_t *keys, int64_t at, int size, int half) {
    vec sum = all(0);
    int i = 0;
    for (; i + WIDTH <= size; i += WIDTH) sum += load(q + i) * numbers_at(keys, at + i, half);
    float total = 0;
    for (int lane = 0; lane < WIDTH; lane++) total += sum[lane];
    for (; i < size; i++) total += q[i] * number_at(keys, at + i, half);
    return total;
}

static void softmax(float *scores, int count) {
    float highest = scores[0], sum = 0;
    for (int j = 1; j < count; j++) highest = scores[j] > highest ? scores[j] : highest;
    for (int j = count; j % WIDTH; j++) scores[j] = -INFINITY;
    for (int j = 0; j < count; j += WIDTH) store(scores + j, exponential(load(scores + j) - highest));
    for (int j = 0; j < count; j++) sum += scores[j];
    for (int j = 0; j < count; j++) scores[j] /= sum;
}

/* One head of one token: q (N, H K) -> mixed, rows of `stride`. */
static void attend_one(const AttentionInput *input, const float *q, int head, int64_t token, float *memory, float *mixed,
                int64_t stride) {
    const LmAttention *a = input->layer;
    const TokenView *view = input->views + token;
    int K = a->key_dim, V = a->value_dim, g = head / (a->heads / a->kv_heads), half = input->half;
    int begin = first_visible(input, view->place), count = view->place + 1 - begin;
    const int32_t *list = input->lists + view->list + begin;
    const float *own = q + (token * a->heads + head) * K;
    for (int j = 0; j < count; j++) {
        float product = dot(own, input->keys, ((int64_t)list[j] * a->kv_heads + g) * K, K, half);
        memory[j] = score_of(a, product, head, view->place - begin - j);
    }
    softmax(memory, count);
    float *weights = seen_weights(input, head, token), *into = mixed + token * stride + (int64_t)head * V;
    if (weights) memset(weights, 0, sizeof(float) * input->length), memcpy(weights + begin, memory, sizeof(float) * count);
    int i = 0;
    for (; i + 4 * WIDTH <= V; i += 4 * WIDTH) {
        vec sums[4] = {all(0), all(0), all(0), all(0)};
        for (int j = 0; j < count; j++) {
            int64_t at = ((int64_t)list[j] * a->kv_heads + g) * V + i;
            _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)
                sums[v] += memory[j] * numbers_at(input->values, at + v * WIDTH, half);
        }
        for (int v = 0; v < 4; v++) store(into + i + v * WIDTH, sums[v]);
    }
    for (; i < V; i++) {
        float sum = 0;
        for (int j = 0; j < count; j++) sum += memory[j] * number_at(input->values, ((int64_t)list[j] * a->kv_heads + g) * V + i, half);
        into[i] = sum;
    }
}

/* --- many queries --- */

typedef struct {
    int64_t token;
    int32_t head, begin, end;                   /* the part of the list that it sees */
} Query;

/* Scores of all queries with KEYS keys from `j` on. */
static void score_keys(const AttentionInput *input, const float *turned, const int32_t *list, int j, int end, int g, float *keys,
                       vec *scores) {
    const LmAttention *a = input->layer;
    int K = a->key_dim;
    const float *rows[KEYS];
    for (int k = 0; k < KEYS; k++) {
        int64_t at = ((int64_t)list[j + k < end ? j + k : end - 1] * a->kv_heads + g) * K;
        rows[k] = (const float *)input->keys + at;
        if (input->half) {
            float *row = keys + k * K;
            int i = 0;
            for (; i + WIDTH <= K; i += WIDTH) store(row + i, halves(input->keys + 2 * (at + i)));
            for (; i < K; i++) row[i] = number_at(input->keys, at + i, 1);
            rows[k] = row;
        }
    }
    vec sums[KEYS] = {all(0), all(0), all(0), all(0)};
    for (int i = 0; i < K; i++) {
        vec q = load(turned + i * WIDTH);
        _Pragma("GCC unroll 4") for (int k = 0; k < KEYS; k++) sums[k] += rows[k][i] * q;
    }
    for (int k = 0; k < KEYS; k++) scores[k] = sums[k];
}

/* Weighted sums of the values, for `count` queries (1 or KEYS) and `vectors` registers (1 or 4) of value numbers. */
static inline __attribute__((always_inline)) void mix(const AttentionInput *input, const float *scores, const int32_t *list,
                                                      int begin, int end, int64_t g, int i, float *const *into, const float *factors,
                                                      const int count, const int vectors) {
    int V = input->layer->value_dim;
    vec sums[KEYS][4];
    for (int n = 0; n < count; n++)
        for (int v = 0; v < vectors; v++) sums[n][v] = all(0);
    for (int j = begin; j < end; j++) {
        int64_t at = (list[j] * (int64_t)input->layer->kv_heads + g) * V + i;
        vec values[4];
        _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) values[v] = numbers_at(input->values, at + v * WIDTH, input->half);
        _Pragma("GCC unroll 4") for (int n = 0; n < count; n++)
            _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) sums[n][v] += scores[(j - begin) * WIDTH + n] * values[v];
    }
    for (int n = 0; n < count; n++)
        for (int v = 0; v < vectors; v++) store(into[n] + i + v * WIDTH, sums[n][v] * factors[n]);
}

/* WIDTH queries, or fewer, of one row and key-value head. */
static void attend_lanes(const AttentionInput *input, const Query *queries, int lanes, const float *q, int g, float *memory,
                         float *mixed, int64_t stride) {
    const LmAttention *a = input->layer;
    int K = a->key_dim, V = a->value_dim, begin = queries[0].begin, end = queries[lanes - 1].end;
    const int32_t *list = input->lists + input->views[queries[0].token].list;
    float *turned = memory, *scores = memory + K * WIDTH, *keys = scores + (int64_t)(end - begin + KEYS) * WIDTH;
    memset(turned, 0, sizeof(float) * K * WIDTH);
    for (int n = 0; n < lanes; n++)
        for (int i = 0; i < K; i++) turned[i * WIDTH + n] = q[(queries[n].token * a->heads + queries[n].head) * K + i] * (a->cap > 0 || a->bias ? 1 : a->scale);
    vec highest = all(-INFINITY);
    ints first = {0}, last = {0};
    for (int n = 0; n < lanes; n++) first[n] = queries[n].begin, last[n] = queries[n].end;
    for (int j = begin; j < end; j += KEYS) {
        vec found[KEYS];
        score_keys(input, turned, list, j, end, g, keys, found);
        for (int k = 0; k < KEYS; k++) {
            if (a->cap > 0 || a->bias)
                for (int n = 0; n < lanes; n++) found[k][n] = score_of(a, found[k][n], queries[n].head, queries[n].end - 1 - j - k);
            ints place = (j + k) - (ints){0};
            vec visible = choose((place >= first) & (place < last), found[k], all(-INFINITY));
            highest = larger(visible, highest);
            store(scores + (j - begin + k) * WIDTH, visible);
        }
    }
    vec sum = all(0);
    for (int n = lanes; n < WIDTH; n++) highest[n] = 0;
    for (int j = 0; j < end - begin; j++) {
        vec e = exponential(load(scores + j * WIDTH) - highest);
        store(scores + j * WIDTH, e);
        sum += e;
    }
    float factors[WIDTH], *into[WIDTH];
    for (int n = 0; n < lanes; n++) {
        factors[n] = 1.0f / sum[n], into[n] = mixed + queries[n].token * stride + (int64_t)queries[n].head * V;
        float *weights = seen_weights(input, queries[n].head, queries[n].token);
        if (!weights) continue;
        memset(weights, 0, sizeof(float) * input->length);
        for (int j = queries[n].begin; j < queries[n].end; j++) weights[j] = scores[(j - begin) * WIDTH + n] * factors[n];
    }
    for (int n = 0; n < lanes; n += lanes - n >= KEYS ? KEYS : 1) {
        int i = 0;
        const float *own = scores + n;
        if (lanes - n >= KEYS) {
            for (; i + 4 * WIDTH <= V; i += 4 * WIDTH) mix(input, own, list, begin, end, g, i, into + n, factors + n, KEYS, 4);
            for (; i + WIDTH <= V; i += WIDTH) mix(input, own, list, begin, end, g, i, into + n, factors + n, KEYS, 1);
        } else
            for (; i + WIDTH <= V; i += WIDTH) mix(input, own, list, begin, end, g, i, into + n, factors + n, 1, 1);
        for (int rest = n; i < V && rest < n + (lanes - n >= KEYS ? KEYS : 1); rest++)
            for (int r = i; r < V; r++) {
                float total = 0;
                for (int j = begin; j < end; j++)
                    total += scores[(j - begin) * WIDTH + rest] * number_at(input->values, ((int64_t)list[j] * a->kv_heads + g) * V + r, input->half);
                into[rest][r] = total * factors[rest];
            }
    }
}

/* The heads of one key-value head, for `count` tokens of one row from `first` on. */
static void attend(const AttentionInput *input, const float *q, int kv_head, int64_t first, int count, float *memory, float *mixed,
            int64_t stride) {
    int share = input->layer->heads / input->layer->kv_heads;
    Query queries[WIDTH];
    for (int done = 0; done < count * share;) {
        int lanes = 0;
        for (; lanes < WIDTH && done < count * share; lanes++, done++) {
            int64_t token = first + done / share;
            int place = input->views[token].place;
            queries[lanes] = (Query){token, kv_head * share + done % share, first_visible(input, place), place + 1};
        }
        attend_lanes(input, queries, lanes, q, kv_head, memory, mixed, stride);
    }
}

#endif
