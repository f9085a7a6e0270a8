/* Attention of an encoder: whole texts, end to end, whose tokens see all the others of their text.

   The keys of one head are turned round first, so that a register holds the same number of WIDTH keys and no score ends
   in a sum over the lanes of a register. TOGETHER tokens share every key and value that is loaded.

   T tokens of a text, K key size, V value size                                                                       */

#ifndef CLEARHEAD_TEXTS_H
#define CLEARHEAD_TEXTS_H

#include "clearhead.h"
#include "vector.h"

enum { TOGETHER = 4 };

/* Whole registers, and whole eights, which `softmax` needs. */
static inline int64_t in_registers(int64_t count) {
    int64_t each = max_int(WIDTH, 8);
    return (count + each - 1) / each * each;
}

/* Floats that `attend_text` needs for a text of `longest` tokens: its keys, and the scores of some tokens. */
static inline int64_t text_memory(int64_t longest, int64_t key_dim) {
    return (key_dim + TOGETHER) * in_registers(longest);
}

/* keys (T, …), `apart` floats from each other -> (K, room), zeros where there is no key. */
static void turn_keys(const float *keys, int64_t apart, int count, int64_t room, int key_dim, float *turned) {
    for (int64_t k = 0; k < key_dim; k++) {
        for (int j = 0; j < count; j++) turned[k * room + j] = keys[j * apart + k];
        for (int64_t j = count; j < room; j++) turned[k * room + j] = 0;
    }
}

/* Some tokens: queries q, `apart` floats from each other -> scores (tokens, room). */
static inline __attribute__((always_inline)) void score_keys(const float *q, int64_t apart, const float *turned,
                                                             int64_t room, int key_dim, float scale, float *scores,
                                                             const int tokens) {
    for (int64_t j = 0; j < room; j += WIDTH) {
        vec sum[TOGETHER] = {{0}};
        for (int k = 0; k < key_dim; k++) {
            vec key = *(const vec *)(turned + k * room + j);
            UNROLL(4)
            for (int t = 0; t < tokens; t++) sum[t] += q[t * apart + k] * key;
        }
        UNROLL(4)
        for (int t = 0; t < tokens; t++) *(vec *)(scores + t * room + j) = sum[t] * scale;
    }
}

/* Their weights (tokens, room) -> the mix of the values, `into` floats from each other. */
static inline __attribute__((always_inline)) void mix_values(const float *weights, int64_t room, const float *values,
                                                             int64_t apart, int count, int value_dim, float *mixed,
                                                             int64_t into, const int tokens) {
    int i = 0;
    for (; i + WIDTH <= value_dim; i += WIDTH) {
        vec sum[TOGETHER] = {{0}};
        for (int j = 0; j < count; j++) {
            vec value = *(const vec *)(values + j * apart + i);
            UNROLL(4)
            for (int t = 0; t < tokens; t++) sum[t] += weights[t * room + j] * value;
        }
        UNROLL(4)
        for (int t = 0; t < tokens; t++) *(vec *)(mixed + t * into + i) = sum[t];
    }
    for (; i < value_dim; i++)
        for (int t = 0; t < tokens; t++) {
            float sum = 0;
            for (int j = 0; j < count; j++) sum += weights[t * room + j] * values[j * apart + i];
            mixed[t * into + i] = sum;
        }
}

typedef struct {
    const float *q;                                         /* (T, …) of the head */
    const float *keys, *values;                             /* (T, …) of its key-value head */
    float *mixed;                                           /* (T, …) */
    int64_t q_apart, keys_apart, values_apart, mixed_apart; /* floats between two tokens */
    int count;                                              /* T */
} Text;                                                     /* one head of one text */

static inline __attribute__((always_inline)) void attend_tokens(const Attention *a, const Text *text, int head,
                                                                int first, float *memory, const int tokens) {
    int64_t room = in_registers(text->count);
    float *scores = memory + a->key_dim * room;
    score_keys(text->q + first * text->q_apart, text->q_apart, memory, room, a->key_dim, a->scale, scores, tokens);
    for (int t = 0; t < tokens; t++) {
        int64_t own = (int64_t)head * (2 * a->positions - 1) + a->positions - 1 + first + t;
        for (int j = 0; a->bias && j < text->count; j++) scores[t * room + j] += a->bias[own - j];
        softmax(scores + t * room, text->count);
    }
    mix_values(scores, room, text->values, text->values_apart, text->count, a->value_dim,
               text->mixed + first * text->mixed_apart, text->mixed_apart, tokens);
}

/* All tokens of a text attend to all of them with one head. */
static void attend_text(const Attention *a, const Text *text, int head, float *memory) {
    int t = 0;
    turn_keys(text->keys, text->keys_apart, text->count, in_registers(text->count), a->key_dim, memory);
    for (; t + TOGETHER <= text->count; t += TOGETHER) attend_tokens(a, text, head, t, memory, TOGETHER);
    for (; t < text->count; t++) attend_tokens(a, text, head, t, memory, 1);
}

#endif
