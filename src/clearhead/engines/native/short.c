/* Attention of whole short sequences, forward and backward, for training.

   Every head of every row of a batch is some products of small matrices. torch's kernel spends more time on calling
   them than on computing them, if a sequence has some dozens of tokens.

       P = softmax(scale Q Kᵀ)                        O = P V
       dV = Pᵀ dO     dP = dO Vᵀ     dS = scale P ∘ (dP - Σ P ∘ dP)     dQ = dS K     dK = dSᵀ Q

   T queries, S keys, K key size, V value size, wide(n): n in whole registers                                         */

#include "clearhead.h"
#include "vector.h"
#include <stdlib.h>

enum { ROWS = 6, COLUMNS = 2 }; /* of a product that are summed in registers; columns in registers */

static inline int wide(int count) {
    return (count + WIDTH - 1) / WIDTH * WIDTH;
}

/* --- products --- */

typedef struct {
    const float *numbers;
    int64_t row, column; /* floats from one to the next: a transposed matrix has them the other way round */
} Left;

/* Some rows and registers of `into` (rows, apart) = left (rows, inner) times right (inner, apart). */
static inline __attribute__((always_inline)) void product_tile(Left left, const float *right, int64_t apart, int inner,
                                                               float *into, const int rows, const int columns) {
    vec sums[ROWS][COLUMNS];
    UNROLL(6)
    for (int r = 0; r < rows; r++) UNROLL(2)
    for (int c = 0; c < columns; c++) sums[r][c] = (vec){0};
    for (int i = 0; i < inner; i++, right += apart) {
        const float *number = left.numbers + i * left.column;
        UNROLL(6)
        for (int r = 0; r < rows; r++) UNROLL(2)
        for (int c = 0; c < columns; c++) sums[r][c] += number[r * left.row] * load_floats(right + c * WIDTH);
    }
    UNROLL(6)
    for (int r = 0; r < rows; r++) UNROLL(2)
    for (int c = 0; c < columns; c++) *(vec *)(into + r * apart + c * WIDTH) = sums[r][c];
}

static inline __attribute__((always_inline)) void product_columns(Left left, const float *right, int64_t apart,
                                                                  int inner, float *into, int rows, const int columns) {
    int r = 0;
#define ROW_TILES(N)                                                                                                   \
    for (; r + N <= rows; r += N, left.numbers += N * left.row)                                                        \
        product_tile(left, right, apart, inner, into + r * apart, N, columns);
    ROW_TILES(ROWS) ROW_TILES(4) ROW_TILES(2) ROW_TILES(1)
#undef ROW_TILES
}

/* into (rows, apart) = left (rows, inner) times right (inner, apart); apart is in whole registers. */
static void product(Left left, const float *right, int64_t apart, int inner, float *into, int rows) {
    int c = 0;
    for (; c + COLUMNS * WIDTH <= apart; c += COLUMNS * WIDTH)
        product_columns(left, right + c, apart, inner, into + c, rows, COLUMNS);
    if (c < apart) product_columns(left, right + c, apart, inner, into + c, rows, 1);
}

/* --- the vectors of one head --- */

static float *head_of(const HeadVectors *x, int64_t row, int64_t head) {
    return x->numbers + row * x->batch + head * x->head;
}

/* (tokens, size) of a head -> (tokens, wide(size)), with zeros behind each. */
static void pack(const float *x, int64_t apart, int tokens, int size, float *into) {
    int room = wide(size);
    for (int t = 0; t < tokens; t++, x += apart, into += room) {
        memcpy(into, x, sizeof(float) * size);
        for (int i = size; i < room; i++) into[i] = 0;
    }
}

/* (tokens, size) of a head -> (size, wide(tokens)), with zeros behind each. */
static void pack_transposed(const float *x, int64_t apart, int tokens, int size, float *into) {
    int room = wide(tokens);
    for (int t = 0; t < tokens; t++, x += apart)
        for (int i = 0; i < size; i++) into[i * room + t] = x[i];
    for (int i = 0; i < size; i++)
        for (int t = tokens; t < room; t++) into[i * room + t] = 0;
}

/* (tokens, wide(size)) -> (tokens, size) of a head, added to what is there if it is not the first. */
static void unpack(const float *from, int64_t apart, int tokens, int size, int first, float *into) {
    for (int t = 0, room = wide(size); t < tokens; t++, from += room, into += apart)
        if (first)
            memcpy(into, from, sizeof(float) * size);
        else
            for (int i = 0; i < size; i++) into[i] += from[i];
}

/* --- one head --- */

typedef struct {
    float *q, *k, *v, *rest; /* packed vectors of one head, and what is computed from them */
    float *hidden;           /* (T, wide(S)): 0, or -infinity where a query does not see a key */
} Room;

static float *take_room(const ShortAttention *a, Room *room) {
    int64_t T = wide(a->queries), S = wide(a->keys), K = wide(a->key_dim), V = wide(a->value_dim);
    int64_t vectors = (T + S) * (K + V);
    float *all = malloc(sizeof(float) * (2 * vectors + T * S));
    if (!all) return NULL;
    *room = (Room){all, all + T * K, all + (T + S) * K, all + vectors, all + 2 * vectors};
    return all;
}

static void hide(const ShortAttention *a, int64_t row, float *hidden) {
    int room = wide(a->keys);
    for (int t = 0; t < a->queries; t++, hidden += room) {
        const uint8_t *seen = a->visible ? a->visible + row * a->batch + t * a->query : NULL;
        for (int s = 0; s < room; s++)
            hidden[s] = s < a->keys && (!seen || seen[s * a->key]) && (!a->causal || s <= t) ? 0.0f : -INFINITY;
    }
}

/* In place, (T, wide(S)) of scores -> weights; a query that sees no key has none. */
static void to_weights(const ShortAttention *a, const float *hidden, float *scores) {
    int room = wide(a->keys);
    for (int t = 0; t < a->queries; t++, scores += room, hidden += room) {
        if (largest(hidden, a->keys) < 0) {
            memset(scores, 0, sizeof(float) * room);
            continue;
        }
        for (int s = 0; s < room; s++) scores[s] = a->scale * scores[s] + hidden[s];
        float highest = largest(scores, a->keys), sum = 0;
        for (int s = 0; s < room; s++) {
            float weight = exponential(scores[s] - highest);
            scores[s] = hidden[s] < 0 ? 0 : weight;
        }
        for (int s = 0; s < room; s++) sum += scores[s];
        float factor = 1 / sum;
        for (int s = 0; s < room; s++) scores[s] *= factor;
    }
}

int EXPORT(short_stride)(int keys) {
    return wide(keys);
}

int EXPORT(short_forward)(const ShortAttention *a, const HeadVectors *q, const HeadVectors *k, const HeadVectors *v,
                          const HeadVectors *out, float *weights) {
    Room room;
    float *all = take_room(a, &room);
    if (!all) return 1;
    int group = a->heads / a->kv_heads, S = wide(a->keys);
    for (int64_t b = 0; b < a->rows; b++) {
        if (b == 0 || (a->visible && a->batch)) hide(a, b, room.hidden);
        for (int h = 0; h < a->heads; h++, weights += (int64_t)a->queries * S) {
            if (h % group == 0) {
                pack_transposed(head_of(k, b, h / group), k->token, a->keys, a->key_dim, room.k);
                pack(head_of(v, b, h / group), v->token, a->keys, a->value_dim, room.v);
            }
            product((Left){head_of(q, b, h), q->token, 1}, room.k, S, a->key_dim, weights, a->queries);
            to_weights(a, room.hidden, weights);
            product((Left){weights, S, 1}, room.v, wide(a->value_dim), a->keys, room.rest, a->queries);
            unpack(room.rest, out->token, a->queries, a->value_dim, 1, head_of(out, b, h));
        }
    }
    free(all);
    return 0;
}

/* dS from P and dP, in place of dP; what is behind the keys is 0, as P is. */
static void to_score_gradient(const ShortAttention *a, const float *weights, float *dp) {
    int room = wide(a->keys);
    for (int t = 0; t < a->queries; t++, weights += room, dp += room) {
        float sum = 0;
        for (int s = 0; s < room; s++) sum += weights[s] * dp[s];
        for (int s = 0; s < room; s++) dp[s] = a->scale * weights[s] * (dp[s] - sum);
    }
}

int EXPORT(short_backward)(const ShortAttention *a, const HeadVectors *q, const HeadVectors *k, const HeadVectors *v,
                           const HeadVectors *out, const float *weights, const HeadVectors *dq, const HeadVectors *dk,
                           const HeadVectors *dv) {
    Room room;
    float *all = take_room(a, &room);
    if (!all) return 1;
    int T = a->queries, group = a->heads / a->kv_heads, S = wide(a->keys), K = wide(a->key_dim), V = wide(a->value_dim);
    float *packed_out = room.rest, *gradient = room.rest + (int64_t)wide(T) * V, *ds = room.hidden;
    for (int64_t b = 0; b < a->rows; b++)
        for (int h = 0; h < a->heads; h++, weights += (int64_t)T * S) {
            int own = h / group, first = h % group == 0;
            const float *from = head_of(out, b, h);
            if (first) {
                pack(head_of(k, b, own), k->token, a->keys, a->key_dim, room.k);
                pack_transposed(head_of(v, b, own), v->token, a->keys, a->value_dim, room.v);
            }
            pack(from, out->token, T, a->value_dim, packed_out);
            product((Left){weights, 1, S}, packed_out, V, T, gradient, a->keys);
            unpack(gradient, dv->token, a->keys, a->value_dim, first, head_of(dv, b, own));
            product((Left){from, out->token, 1}, room.v, S, a->value_dim, ds, T);
            to_score_gradient(a, weights, ds);
            product((Left){ds, S, 1}, room.k, K, a->keys, gradient, T);
            unpack(gradient, dq->token, T, a->key_dim, 1, head_of(dq, b, h));
            pack(head_of(q, b, h), q->token, T, a->key_dim, room.q);
            product((Left){ds, 1, S}, room.q, K, T, gradient, a->keys);
            unpack(gradient, dk->token, a->keys, a->key_dim, first, head_of(dk, b, own));
        }
    free(all);
    return 0;
}
