/* Attention of new tokens to the keys and values of their row: one query at a time, or WIDTH of them side by side.

   Side by side, a number of a key meets all queries at once. Keys are worked on in spans of SPAN, so that their values
   are still near when they are mixed, and a long text needs no more memory than a short one: what was mixed so far
   shrinks where a later score is higher. Spans begin at multiples of SPAN in the text.

   Both ways add the same numbers in the same order, so that a token gets the same bits whether its text is read at
   once, in parts, or token by token. A sum over the numbers of a key, or over the keys of a span, is WIDTH sums side by
   side, each over every WIDTH-th number; then the upper half of them is added to the lower, and so on (`total_of`).

   Keys and values are floats, float16, or signed bytes with one float scale for each head of a token behind them. */

#ifndef CLEARHEAD_ATTENTION_H
#define CLEARHEAD_ATTENTION_H

#include <math.h>

#include "floats.h"
#include "lanes.h"
#include "lm.h"

#if defined(__clang__)
#pragma clang fp reassociate(off)
#endif

typedef struct {
    int64_t list, slot;      /* where its row's list begins; the slot of its own key and value */
    int32_t place, position; /* in the list; in the text */
} TokenView;

typedef struct {
    const LmAttention *layer;
    const uint8_t *keys, *values; /* (slots, G heads) of this layer, as `format` says */
    int format;
    const int32_t *lists;
    const TokenView *views; /* (N,) */
    const LmSeen *seen;     /* those of all layers */
    int seen_count, number; /* number: of this layer */
    int window;             /* the smaller one of the cache and the layer; 0: none */
    int64_t length;         /* of a row of seen weights */
} AttentionInput;

enum { KEYS = 4, SPAN = 256 };                          /* keys, or queries, that are worked on at once; of a span */
enum { LEVELS = WIDTH == 16 ? 4 : WIDTH == 8 ? 3 : 2 }; /* halvings of a register */

/* --- one head of one token in the cache --- */

/* Bytes of its numbers. */
INLINE int64_t head_bytes(const int format, int size) {
    return format == CACHE_FLOAT ? 4 * size : format == CACHE_HALF ? 2 * size : size + (int)sizeof(float);
}

INLINE float number_at(const int format, const uint8_t *head, int i) {
    float value;
    if (format == CACHE_BYTES) return (int8_t)head[i];
    if (format == CACHE_HALF) return half_at(head + 2 * i);
    return memcpy(&value, head + 4 * i, 4), value;
}

/* WIDTH numbers from `i` on, or zeros after the last of them. */
INLINE vec numbers_at(const int format, const uint8_t *head, int i, int size) {
    if (i + WIDTH > size) {
        float rest[WIDTH] = {0};
        for (int n = 0; n < WIDTH; n++) rest[n] = i + n < size ? number_at(format, head, i + n) : 0;
        return load(rest);
    }
    return format == CACHE_BYTES  ? signed_bytes(head + i)
           : format == CACHE_HALF ? halves(head + 2 * i)
                                  : load((const float *)head + i);
}

INLINE void store_some(float *into, vec x, int count) {
    if (count >= WIDTH)
        store(into, x);
    else
        for (int n = 0; n < count; n++) into[n] = x[n];
}

/* What its numbers are multiplied by. */
INLINE float scale_of(const int format, const uint8_t *head, int size) {
    float scale = 1;
    if (format == CACHE_BYTES) memcpy(&scale, head + size, sizeof scale);
    return scale;
}

static void write_head(int format, uint8_t *head, const float *from, int size) {
    if (format == CACHE_FLOAT) memcpy(head, from, sizeof(float) * size);
    if (format == CACHE_HALF) store_halves(head, from, size);
    if (format != CACHE_BYTES) return;
    float highest = largest_size(from, size), factor = highest > 0 ? 127.0f / highest : 0, scale = highest / 127.0f;
    for (int i = 0; i < size; i++) head[i] = (uint8_t)(int8_t)rintf(from[i] * factor);
    memcpy(head + size, &scale, sizeof scale);
}

/* --- what a query sees --- */

static inline float score_of(const LmAttention *a, float product, int head, int distance) {
    float score = held_float(product * a->scale);
    if (a->cap > 0) score = held_float(a->cap * tanhf(held_float(score / a->cap)));
    return a->bias ? score + a->bias[(int64_t)head * (2 * a->positions - 1) + a->positions - 1 + distance] : score;
}

/* Whether a score is the product alone: then its factor is taken into the query. */
static int is_plain(const LmAttention *a) {
    return !(a->cap > 0 || a->bias);
}

static int first_visible(const AttentionInput *input, int place) {
    return input->window && place + 1 > input->window ? place + 1 - input->window : 0;
}

static float *seen_weights(const AttentionInput *input, int head, int64_t token) {
    for (int i = 0; i < input->seen_count; i++)
        if (input->seen[i].layer == input->number && input->seen[i].head == head)
            return input->seen[i].weights + token * input->length;
    return NULL;
}

/* e^(score - highest); 0 for what is not visible. */
INLINE vec exponential_of(vec score, vec highest) {
    return choose(score > -1e30f, exponential(score - highest), all(0));
}

/* x factor + more */
INLINE vec add_scaled(vec x, vec factor, vec more) {
    return held(x * factor) + more;
}

/* Zeros where a query does not look: before `begin` and from `end` on. */
static void clear_unseen(float *weights, int begin, int end, int64_t length) {
    memset(weights, 0, sizeof(float) * begin), memset(weights + end, 0, sizeof(float) * (length - end));
}

/* The scores of one query (length,) -> its weights. */
static void finish_weights(float *weights, int begin, int end, float highest, float factor) {
    for (int j = begin; j < end; j += WIDTH) {
        float some[WIDTH] = {0};
        int count = end - j < WIDTH ? end - j : WIDTH;
        memcpy(some, weights + j, sizeof(float) * count);
        store_some(weights + j, exponential(load(some) - highest) * factor, count);
    }
}

/* Floats of memory that attention needs: scores of a span, queries, keys. */
static int64_t attention_memory(const LmAttention *layer) {
    return (SPAN + layer->key_dim) * WIDTH + (KEYS + 1) * layer->key_dim;
}

/* The place in a list where the span of the `begin`-th begins; before the list where its text began earlier. */
static int span_of(const TokenView *view, int begin) {
    return begin - (view->position - view->place + begin) % SPAN;
}

/* The part of the numbers that `total_of` adds in its n-th place: those that it adds first are neighbours. */
INLINE int turned_bits(const int n) {
    int found = 0;
    for (int bit = 0; bit < LEVELS; bit++) found |= (n >> bit & 1) << (LEVELS - 1 - bit);
    return found;
}

/* --- one query --- */

INLINE float dot(const int format, const float *q, const uint8_t *key, int size) {
    vec sum = all(0);
    for (int i = 0; i < size; i += WIDTH) sum += load(q + i) * numbers_at(format, key, i, size);
    return total_of(sum) * scale_of(format, key, size);
}

/* One head of one token: q (N, H K) -> mixed, rows of `stride`. */
INLINE void attend_one_as(const int format, const AttentionInput *input, const float *q, int head, int64_t token,
                          float *memory, float *mixed, int64_t stride) {
    const LmAttention *a = input->layer;
    const TokenView *view = input->views + token;
    int K = a->key_dim, V = a->value_dim, begin = first_visible(input, view->place), end = view->place + 1;
    int64_t G = a->kv_heads, g = head / (a->heads / G), key_bytes = head_bytes(format, K),
            bytes = head_bytes(format, V);
    const int32_t *list = input->lists + view->list;
    const uint8_t *keys = input->keys + g * key_bytes, *values = input->values + g * bytes;
    float *scores = memory, *own = memory + SPAN, *into = mixed + token * stride + (int64_t)head * V;
    float *weights = seen_weights(input, head, token), highest = -1e30f, sum = 0;
    memset(own, 0, sizeof(float) * (K + WIDTH)), memset(into, 0, sizeof(float) * V);
    for (int i = 0; i < K; i++) own[i] = q[(token * a->heads + head) * K + i] * (is_plain(a) ? a->scale : 1);
    if (weights) clear_unseen(weights, begin, end, input->length);
    for (int span = span_of(view, begin); span < end; span += SPAN) {
        int from = span > begin ? span : begin, stop = span + SPAN < end ? span + SPAN : end,
            last = (stop - span + WIDTH - 1) / WIDTH * WIDTH;
        float before = highest;
        for (int j = 0; j < from - span; j++) scores[j] = -INFINITY;
        for (int j = stop - span; j < last; j++) scores[j] = -INFINITY;
        for (int j = from; j < stop; j++) {
            float product = dot(format, own, keys + list[j] * G * key_bytes, K);
            scores[j - span] = is_plain(a) ? product : score_of(a, product, head, view->place - j);
            highest = scores[j - span] > highest ? scores[j - span] : highest;
        }
        if (weights) memcpy(weights + from, scores + from - span, sizeof(float) * (stop - from));
        vec sums = all(0), shrink = exponential(all(before - highest));
        for (int j = 0; j < last; j += WIDTH) {
            vec e = exponential_of(load(scores + j), all(highest));
            sums += e;
            store(scores + j, e);
        }
        sum = add_scaled(all(sum), shrink, all(total_of(sums)))[0];
        for (int j = from; format == CACHE_BYTES && j < stop; j++)
            scores[j - span] *= scale_of(format, values + list[j] * G * bytes, V);
        int i = 0;
        for (; i + 4 * WIDTH <= V; i += 4 * WIDTH) {
            vec parts[4];
            for (int v = 0; v < 4; v++) parts[v] = load(into + i + v * WIDTH) * shrink;
            for (int j = from; j < stop; j++) {
                const uint8_t *value = values + list[j] * G * bytes;
                UNROLL(4)
                for (int v = 0; v < 4; v++)
                    parts[v] += scores[j - span] * numbers_at(format, value, i + v * WIDTH, i + 4 * WIDTH);
            }
            for (int v = 0; v < 4; v++) store(into + i + v * WIDTH, parts[v]);
        }
        for (; i < V; i += WIDTH) {
            float some[WIDTH] = {0};
            memcpy(some, into + i, sizeof(float) * (V - i < WIDTH ? V - i : WIDTH));
            vec part = load(some) * shrink;
            for (int j = from; j < stop; j++)
                part += scores[j - span] * numbers_at(format, values + list[j] * G * bytes, i, V);
            store_some(into + i, part, V - i);
        }
    }
    float factor = 1.0f / sum;
    for (int i = 0; i < V; i++) into[i] *= factor;
    if (weights) finish_weights(weights, begin, end, highest, factor);
}

/* --- many queries --- */

typedef struct {
    int64_t token;
    int32_t head, begin, end; /* the part of the list that it sees */
} Query;

/* Adds vectors in the order of `total_of`: what is given n-th is the part `turned_bits(n)`; the sum is stack[LEVELS].
 */
INLINE void add_part(vec *stack, const int n, vec part) {
    int level = 0;
    for (; level < LEVELS && (n >> level & 1); level++) part = held(stack[level] + part);
    stack[level] = part;
}

/* Products of all queries with KEYS keys from `j` on; those beyond the end are the last one again. */
INLINE void multiply_keys(const int format, const AttentionInput *input, const float *turned, const int32_t *list,
                          int j, int end, int g, float *keys, vec *products) {
    const LmAttention *a = input->layer;
    int K = a->key_dim;
    const float *rows[KEYS];
    float scales[KEYS];
    for (int k = 0; k < KEYS; k++) {
        int64_t slot = list[j + k < end ? j + k : end - 1];
        const uint8_t *key = input->keys + (slot * a->kv_heads + g) * head_bytes(format, K);
        rows[k] = (const float *)key, scales[k] = scale_of(format, key, K);
        if (format != CACHE_FLOAT) {
            float *row = keys + k * K;
            for (int i = 0; i < K; i += WIDTH) store_some(row + i, numbers_at(format, key, i, K), K - i);
            rows[k] = row;
        }
    }
    vec stack[KEYS][LEVELS + 1];
    UNROLL(16)
    for (int n = 0; n < WIDTH; n++) {
        vec sums[KEYS] = {all(0), all(0), all(0), all(0)};
        for (int i = turned_bits(n); i < K; i += WIDTH) {
            vec q = load(turned + i * WIDTH);
            UNROLL(4)
            for (int k = 0; k < KEYS; k++) sums[k] += rows[k][i] * q;
        }
        UNROLL(4)
        for (int k = 0; k < KEYS; k++) add_part(stack[k], n, sums[k]);
    }
    for (int k = 0; k < KEYS; k++) products[k] = stack[k][LEVELS] * scales[k];
}

/* The sum over the keys of a span, whose exponentials are scores (count, WIDTH). */
INLINE vec sum_keys(const float *scores, int count) {
    vec stack[LEVELS + 1];
    UNROLL(16)
    for (int n = 0; n < WIDTH; n++) {
        vec sum = all(0);
        for (int j = turned_bits(n); j < count; j += WIDTH) sum += load(scores + j * WIDTH);
        add_part(stack, n, sum);
    }
    return stack[LEVELS];
}

/* into <- shrink into + the values of some keys, weighted: for `count` queries (1 or KEYS) and `vectors` registers (1
   or 4) of value numbers from `i` on, of which there are `size`. */
INLINE void mix(const int format, const AttentionInput *input, const float *scores, const int32_t *list, int keys,
                int64_t g, int i, int size, float *const *into, const float *shrink, const int count,
                const int vectors) {
    int64_t bytes = head_bytes(format, input->layer->value_dim), G = input->layer->kv_heads;
    vec sums[KEYS][4];
    for (int n = 0; n < count; n++)
        for (int v = 0; v < vectors; v++)
            sums[n][v] = numbers_at(CACHE_FLOAT, (const uint8_t *)into[n], i + v * WIDTH, size) * shrink[n];
    for (int j = 0; j < keys; j++) {
        const uint8_t *value = input->values + (list[j] * G + g) * bytes;
        vec values[4];
        UNROLL(4)
        for (int v = 0; v < vectors; v++) values[v] = numbers_at(format, value, i + v * WIDTH, size);
        UNROLL(4)
        for (int n = 0; n < count; n++) {
            UNROLL(4)
            for (int v = 0; v < vectors; v++) sums[n][v] += scores[j * WIDTH + n] * values[v];
        }
    }
    for (int n = 0; n < count; n++)
        for (int v = 0; v < vectors; v++) store_some(into[n] + i + v * WIDTH, sums[n][v], size - i - v * WIDTH);
}

/* All numbers of the values of some keys, for `count` queries (1 or KEYS). */
INLINE void mix_all(const int format, const AttentionInput *input, const float *scores, const int32_t *list, int keys,
                    int64_t g, float *const *into, const float *shrink, const int count) {
    int V = input->layer->value_dim, i = 0;
    for (; i + 4 * WIDTH <= V; i += 4 * WIDTH)
        mix(format, input, scores, list, keys, g, i, i + 4 * WIDTH, into, shrink, count, 4);
    for (; i < V; i += WIDTH) mix(format, input, scores, list, keys, g, i, V, into, shrink, count, 1);
}

/* WIDTH queries, or fewer, of one row and key-value head. */
INLINE void attend_lanes(const int format, const AttentionInput *input, const Query *queries, int lanes, const float *q,
                         int g, float *memory, float *mixed, int64_t stride) {
    const LmAttention *a = input->layer;
    const TokenView *view = input->views + queries[0].token;
    int K = a->key_dim, V = a->value_dim, begin = queries[0].begin, end = queries[lanes - 1].end;
    const int32_t *list = input->lists + view->list;
    float *turned = memory, *scores = memory + K * WIDTH, *keys = scores + SPAN * WIDTH, *into[WIDTH], *weights[WIDTH];
    ints first = {0}, last = {0};
    const float factor = is_plain(a) ? a->scale : 1;
    memset(turned, 0, sizeof(float) * K * WIDTH);
    for (int n = 0; n < lanes; n++) {
        const float *own = q + (queries[n].token * a->heads + queries[n].head) * K;
        for (int i = 0; i < K; i++) turned[i * WIDTH + n] = own[i] * factor;
        first[n] = queries[n].begin, last[n] = queries[n].end;
        into[n] = mixed + queries[n].token * stride + (int64_t)queries[n].head * V;
        memset(into[n], 0, sizeof(float) * V);
        weights[n] = seen_weights(input, queries[n].head, queries[n].token);
        if (weights[n]) clear_unseen(weights[n], first[n], last[n], input->length);
    }
    vec highest = all(-1e30f), sum = all(0);
    for (int span = span_of(view, begin); span < end; span += SPAN) {
        int from = span > begin ? span : begin, stop = span + SPAN < end ? span + SPAN : end;
        vec before = highest;
        for (int j = from; j < stop; j += KEYS) {
            vec found[KEYS];
            multiply_keys(format, input, turned, list, j, stop, g, keys, found);
            for (int k = 0; k < KEYS && j + k < stop; k++) {
                if (!is_plain(a))
                    for (int n = 0; n < lanes; n++)
                        found[k][n] = score_of(a, found[k][n], queries[n].head, queries[n].end - 1 - j - k);
                ints place = (j + k) - (ints){0};
                vec visible = choose((place >= first) & (place < last), found[k], all(-INFINITY));
                highest = larger(visible, highest);
                store(scores + (j + k - span) * WIDTH, visible);
            }
        }
        for (int n = 0; n < lanes; n++) {
            int j = from > first[n] ? from : first[n], after = stop < last[n] ? stop : last[n];
            if (!weights[n]) continue;
            for (float *to = weights[n]; j < after; j++) to[j] = scores[(j - span) * WIDTH + n];
        }
        memset(scores, 0, sizeof(float) * (from - span) * WIDTH);
        for (int j = from - span; j < stop - span; j++)
            store(scores + j * WIDTH, exponential_of(load(scores + j * WIDTH), highest));
        vec shrink = exponential(before - highest);
        sum = add_scaled(sum, shrink, sum_keys(scores, stop - span));
        for (int j = from; format == CACHE_BYTES && j < stop; j++) {
            const uint8_t *value = input->values + ((int64_t)list[j] * a->kv_heads + g) * head_bytes(format, V);
            store(scores + (j - span) * WIDTH, load(scores + (j - span) * WIDTH) * scale_of(format, value, V));
        }
        float factors[WIDTH], *own = scores + (from - span) * WIDTH;
        store(factors, shrink);
        int n = 0;
        for (; n + KEYS <= lanes; n += KEYS)
            mix_all(format, input, own + n, list + from, stop - from, g, into + n, factors + n, KEYS);
        for (; n < lanes; n++) mix_all(format, input, own + n, list + from, stop - from, g, into + n, factors + n, 1);
    }
    for (int n = 0; n < lanes; n++) {
        float whole = 1.0f / sum[n];
        for (int i = 0; i < V; i++) into[n][i] *= whole;
        if (weights[n]) finish_weights(weights[n], first[n], last[n], highest[n], whole);
    }
}

/* The heads of one key-value head, for `count` tokens of one row from `first` on. */
INLINE void attend_as(const int format, const AttentionInput *input, const float *q, int kv_head, int64_t first,
                      int count, float *memory, float *mixed, int64_t stride) {
    int share = input->layer->heads / input->layer->kv_heads;
    Query queries[WIDTH];
    for (int done = 0; done < count * share;) {
        int lanes = 0;
        for (; lanes < WIDTH && done < count * share; lanes++, done++) {
            int64_t token = first + done / share;
            int place = input->views[token].place;
            queries[lanes] = (Query){token, kv_head * share + done % share, first_visible(input, place), place + 1};
        }
        attend_lanes(format, input, queries, lanes, q, kv_head, memory, mixed, stride);
    }
}

/* --- each format by itself --- */

#define FORMATS(NAME, ...)                                                                                             \
    switch (input->format) {                                                                                           \
        case CACHE_FLOAT: NAME(CACHE_FLOAT, __VA_ARGS__); break;                                                       \
        case CACHE_HALF: NAME(CACHE_HALF, __VA_ARGS__); break;                                                         \
        case CACHE_BYTES: NAME(CACHE_BYTES, __VA_ARGS__); break;                                                       \
    }

static void attend_one(const AttentionInput *input, const float *q, int head, int64_t token, float *memory,
                       float *mixed, int64_t stride) {
    FORMATS(attend_one_as, input, q, head, token, memory, mixed, stride)
}

static void attend(const AttentionInput *input, const float *q, int kv_head, int64_t first, int count, float *memory,
                   float *mixed, int64_t stride) {
    FORMATS(attend_as, input, q, kv_head, first, count, memory, mixed, stride)
}

#undef FORMATS

#if defined(__clang__)
#pragma clang fp reassociate(on)
#endif

#endif
