/* Logits -> tokens, for rows with different settings: what decode/logits.py computes with torch, row by row.

   Processors change logits in float, as torch does: a forced token, repetition, presence and frequency, n-grams, bans.
   Where one would forbid every token it does not apply. Then the likeliest token is chosen, or one is drawn:
   temperature, top-k, top-p and min-p leave some tokens, and the first is taken at which the sum of their exponentials,
   in double, exceeds the random number's share of all. */

#include "sample.h"
#include "vector.h"
#include <stdlib.h>

#define FORCED_LOGIT -1e9f /* of a forced token that the model holds impossible */

enum { TOGETHER = 8, BLOCK = 64 }; /* numbers of a vector; tokens whose sum is looked at before they are */

typedef float floats __attribute__((vector_size(4 * TOGETHER), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(8 * TOGETHER), aligned(8), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * TOGETHER)));
typedef int64_t longs __attribute__((vector_size(8 * TOGETHER)));

typedef struct {
    float *logits;       /* (V,) after the processors */
    double *exponential; /* (V,) of what is left: 0 where a filter has taken it */
    float *largest;      /* (V,) a heap of logits */
    int32_t *order;      /* (V,) a heap of tokens */
    uint8_t *marked;     /* (V,) zeros between two uses */
} Scratch;

/* No token is believed: one beyond the vocabulary is left out. */
static inline void mark(Scratch *s, int32_t token, int size) {
    if (token >= 0 && token < size) s->marked[token] = 1;
}

/* --- processors --- */

static void force(float *logits, int size, int token) {
    float kept = logits[token] > FORCED_LOGIT ? logits[token] : FORCED_LOGIT;
    for (int i = 0; i < size; i++) logits[i] = -INFINITY;
    logits[token] = kept;
}

/* A token that occurred is changed once, however often it did. */
static void penalise_repetition(float penalty, const RowText *text, Scratch *s, int size) {
    for (int t = 0; t < text->count; t++) mark(s, text->tokens[t], size);
    for (int i = 0; i < size; i++)
        if (s->marked[i]) s->logits[i] = s->logits[i] > 0 ? s->logits[i] / penalty : s->logits[i] * penalty;
    memset(s->marked, 0, size);
}

/* A token that was generated before loses `presence`, and `frequency` for each time. */
static void penalise_generated(const Choice *choice, const RowText *text, Scratch *s, int size) {
    float *times = s->largest; /* (V,) */
    memset(times, 0, sizeof(float) * size);
    for (int t = text->prompt; t < text->count; t++)
        if (text->tokens[t] >= 0 && text->tokens[t] < size) times[text->tokens[t]]++;
    for (int i = 0; i < size; i++)
        if (times[i] > 0) s->logits[i] -= choice->presence_penalty + choice->frequency_penalty * times[i];
}

static void mark_repeated_ngrams(int ngram, const RowText *text, Scratch *s, int size) {
    const int32_t *current = text->tokens + text->count - ngram + 1;
    for (int t = 0; t + ngram <= text->count; t++)
        if (!memcmp(text->tokens + t, current, sizeof(int32_t) * (ngram - 1)))
            mark(s, text->tokens[t + ngram - 1], size);
}

/* -inf where marked, unless no token would be left; then nothing is marked any more. */
static void ban(Scratch *s, int size) {
    int left = 0;
    for (int i = 0; i < size; i++) left |= !s->marked[i] & (s->logits[i] > -INFINITY);
    for (int i = 0; i < size && left; i++) s->logits[i] = s->marked[i] ? -INFINITY : s->logits[i];
    memset(s->marked, 0, size);
}

static void process(const Choice *choice, const RowText *text, Scratch *s, int size) {
    if (text && text->forced >= 0 && text->forced < size) force(s->logits, size, text->forced);
    if (text && choice->repetition_penalty != 1) penalise_repetition(choice->repetition_penalty, text, s, size);
    if (text && (choice->presence_penalty != 0 || choice->frequency_penalty != 0))
        penalise_generated(choice, text, s, size);
    if (text && choice->no_repeat_ngram && text->count >= choice->no_repeat_ngram) {
        mark_repeated_ngrams(choice->no_repeat_ngram, text, s, size);
        ban(s, size);
    }
    if (choice->banned_count) {
        for (int b = 0; b < choice->banned_count; b++) mark(s, choice->banned[b], size);
        ban(s, size);
    }
}

/* --- the likeliest --- */

static int32_t likeliest(const float *logits, int size) {
    float highest = largest(logits, size);
    for (int i = 0; i < size; i++)
        if (logits[i] == highest) return i;
    return 0;
}

/* --- filters --- */

/* e^x for x <= 0, to the last bits of a double; 0 where it is too small for one, or x is not a number. */
static inline doubles exponentials(doubles x) {
    longs large = x > -708.0;
    x = (doubles)((large & (longs)x) | (~large & (longs)((doubles){0} - 708.0)));
    ints n = __builtin_convertvector(x * 1.4426950408889634 - 0.5, ints); /* the nearest: x is not above 0 */
    doubles whole = __builtin_convertvector(n, doubles);
    doubles r = x - whole * 6.93147180369123816490e-1;
    r -= whole * 1.90821492927058770002e-10;
    doubles e = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0);
    e = 1.0 / 39916800.0 + r * e, e = 1.0 / 3628800.0 + r * e, e = 1.0 / 362880.0 + r * e, e = 1.0 / 40320.0 + r * e;
    e = 1.0 / 5040.0 + r * e, e = 1.0 / 720.0 + r * e, e = 1.0 / 120.0 + r * e, e = 1.0 / 24.0 + r * e;
    e = 1.0 / 6.0 + r * e, e = 0.5 + r * e, e = 1.0 + r + r * r * e;
    longs power = (__builtin_convertvector(n, longs) + 1023) << 52;
    return (doubles)(large & (longs)(e * (doubles)power));
}

/* x[i] = e^((logits[i] - highest) / temperature); there is room for whole vectors. */
static void exponentiate(const float *logits, int size, double highest, double temperature, double *x) {
    for (int i = 0; i < size; i += TOGETHER) {
        doubles own = __builtin_convertvector(*(const floats *)(logits + i), doubles);
        *(doubles *)(x + i) = exponentials((own - highest) / temperature);
    }
}

static double sum_of(const double *x, int size) {
    double sum = 0;
    for (int i = 0; i < size; i++) sum += x[i];
    return sum;
}

static void sift_float(float *heap, int count, int at) {
    for (int child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (heap[at] <= heap[child]) return;
        float moved = heap[at];
        heap[at] = heap[child], heap[child] = moved;
    }
}

/* The k-th largest: the least of a heap of the k largest so far. */
static float kth_largest(const float *x, int size, int k, float *heap) {
    memcpy(heap, x, sizeof(float) * k);
    for (int at = k / 2 - 1; at >= 0; at--) sift_float(heap, k, at);
    for (int i = k; i < size; i++)
        if (x[i] > heap[0]) heap[0] = x[i], sift_float(heap, k, 0);
    return heap[0];
}

/* Of two tokens the one that comes first when they are sorted: the likelier, of equal ones the lower. */
static inline int comes_first(const double *x, int32_t a, int32_t b) {
    return x[a] > x[b] || (x[a] == x[b] && a < b);
}

static void sift_token(const double *x, int32_t *heap, int count, int at) {
    for (int child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && comes_first(x, heap[child + 1], heap[child])) child++;
        if (!comes_first(x, heap[child], heap[at])) return;
        int32_t moved = heap[at];
        heap[at] = heap[child], heap[child] = moved;
    }
}

/* Keep the fewest tokens with a total probability of p, taken from a heap until they are enough. Tokens so unlikely
   that all of them have less than 1 - p together are never among them. */
static void keep_top_p(double *x, int size, double p, double total, int32_t *heap) {
    int count = 0;
    double unlikely = 0.5 * total * (1 - p) / size;
    for (int i = 0; i < size; i++)
        if (x[i] > unlikely) heap[count++] = i;
    for (int at = count / 2 - 1; at >= 0; at--) sift_token(x, heap, count, at);
    volatile double sum = 0; /* volatile: (a + b) - b is not simplified, as torch does not */
    int32_t last = count ? heap[0] : 0;
    while (count) {
        double probability = x[heap[0]] / total;
        sum += probability;
        if (sum - probability >= p) break;
        last = heap[0], heap[0] = heap[--count];
        sift_token(x, heap, count, 0);
    }
    double least = x[last];
    for (int i = 0; i < size; i++)
        if (x[i] < least || (x[i] == least && i > last)) x[i] = 0;
}

/* The first token at which the sum of x exceeds a share of all; the last that is possible where rounding leaves none.
 */
static int32_t token_at(const double *x, int size, double share) {
    double sum = 0;
    for (int first = 0; first < size; first += BLOCK) {
        int end = first + BLOCK < size ? first + BLOCK : size;
        double part = sum_of(x + first, end - first), within = 0;
        for (int i = first; i < end && sum + part > share; i++) {
            within += x[i];
            if (x[i] > 0 && sum + within > share) return i;
        }
        sum += part;
    }
    int32_t last = size - 1;
    while (last > 0 && !(x[last] > 0)) last--;
    return last;
}

static int32_t draw(const Choice *choice, double uniform, Scratch *s, int size) {
    double *x = s->exponential;
    exponentiate(s->logits, size, largest(s->logits, size), choice->temperature, x);
    if (choice->top_k && choice->top_k < size) {
        float least = kth_largest(s->logits, size, choice->top_k, s->largest);
        for (int i = 0; i < size; i++) x[i] = s->logits[i] < least ? 0.0 : x[i];
    }
    if (choice->top_p < 1) keep_top_p(x, size, choice->top_p, sum_of(x, size), s->order);
    if (choice->min_p > 0) /* the likeliest has 1 */
        for (int i = 0; i < size; i++) x[i] = x[i] < choice->min_p ? 0.0 : x[i];
    return token_at(x, size, uniform * sum_of(x, size));
}

/* --- all rows --- */

static double log_sum_exp(const float *logits, int size, Scratch *s) {
    double highest = largest(logits, size);
    memcpy(s->largest, logits, sizeof(float) * size); /* where there is room for whole vectors */
    exponentiate(s->largest, size, highest, 1.0, s->exponential);
    return highest + log(sum_of(s->exponential, size));
}

static void choose(const Sampling *sampling, int row, Scratch *s) {
    int size = sampling->size;
    const Choice *choice = sampling->choices + row;
    const RowText *text = sampling->texts ? sampling->texts + row : NULL;
    const float *logits = sampling->logits + (int64_t)row * size, *processed = logits;
    int greedy = choice->temperature == 0;
    if (!greedy || text || choice->banned_count) {
        memcpy(s->logits, logits, sizeof(float) * size);
        process(choice, text, s, size);
        processed = s->logits;
    }
    int32_t token = greedy ? likeliest(processed, size) : draw(choice, sampling->uniforms[row], s, size);
    sampling->tokens[row] = token;
    if (!sampling->logprobs) return;
    double total = log_sum_exp(logits, size, s);
    sampling->logprobs[2 * row] = logits[token] - total, sampling->logprobs[2 * row + 1] = processed[token] - total;
}

int EXPORT(sample)(const Sampling *sampling) {
    int64_t V = (sampling->size + TOGETHER - 1) / TOGETHER * TOGETHER;
    char *memory = malloc(V * (sizeof(double) + 2 * sizeof(float) + sizeof(int32_t) + 1) + 1);
    if (!memory) return 1;
    double *exponential = (double *)memory;
    float *logits = (float *)(exponential + V);
    int32_t *order = (int32_t *)(logits + 2 * V);
    Scratch s = {logits, exponential, logits + V, order, (uint8_t *)(order + V)};
    memset(s.marked, 0, V);
    for (int64_t i = sampling->size; i < V; i++) s.logits[i] = s.largest[i] = 0;
    for (int row = 0; row < sampling->rows; row++) choose(sampling, row, &s);
    free(memory);
    return 0;
}

int64_t EXPORT(sampling_size)(int number) {
    static const int64_t sizes[] = {sizeof(Choice), sizeof(RowText), sizeof(Sampling), 0};
    return sizes[number];
}
