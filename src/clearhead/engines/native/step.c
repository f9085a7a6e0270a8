/* Encoding a source and one decoding step, for every stack of the lectures' blocks: what nn/block.py computes, without
   Python between its parts.

   The cache holds keys and values in slots, one for each token that any row has read. A row knows its tokens as a list
   of slots, so beams that change places or leave move no keys: only their lists change. Rows may be of unequal length.

   All threads go through all parts of a step. What follows a loop over tokens is done by the thread that has the same
   tokens; only where one needs what another has computed there is a barrier.

   N tokens (all new ones of all rows), D width, H heads, G key-value heads, K key size, V value size                 */

#include "clearhead.h"
#include "embed.h"
#include "linear.h"
#include "norm.h"
#include "texts.h"
#include <stdatomic.h>

enum { LINE = 64 }; /* bytes of a line of the processor's cache */

typedef struct {
    int64_t list, slot;            /* where its list begins; the slot of its own key and value */
    int32_t seen, place, position; /* visible slots; which of them is its own; its position in the text */
    int32_t hidden;                /* slots of its list before those that it sees */
} TokenView;                       /* what self-attention of one token sees */

typedef struct {
    char *keys, *values; /* (layers, slots, G K), (layers, slots, G V) */
    const int32_t *lists;
    const TokenView *views; /* (N,) */
    int64_t slots;
    int32_t longest;       /* the maximum number of slots that a token sees */
    int32_t alone;         /* no token sees another of this step */
    const int32_t *begins; /* (texts + 1,) of whole texts that lie in the slots from 0 on, or NULL */
    int32_t texts;
    int32_t halves; /* whether keys and values are float16, not floats */
} KeyValues;

typedef struct {
    const Stack *stack;
    const KeyValues *kv;
    const Memory *memory; /* NULL: no cross-attention */
    float *x;             /* (N, D): embeddings in, hidden states out */
    float *logits;        /* (kept, vocabulary), or NULL */
    int rows, tokens;
    int kept;                 /* tokens whose logits are wanted: all, or the last of each row */
    float *normal, *y;        /* (N, D) input and output of a sublayer */
    float *projected, *mixed; /* (N, …) queries (with keys and values); heads after attention */
    float *inner, *gate;      /* (N, …) of the feed-forward layer */
    float *scores;            /* (threads, scores_size) */
    int64_t scores_size;      /* of one thread */
    Quantized quantized;      /* the input of the next product, where it multiplies bytes */
    const Seen *seen;         /* (seen_count,) heads whose weights are wanted */
    int seen_count;
} Pass;

int EXPORT(panel)(void) {
    return PANEL;
}

int EXPORT(group)(void) {
    return GROUP;
}

/* --- norms and residual connections --- */

/* The input of a sublayer, ready for the product f: x itself, or its norm. */
static const float *sublayer_input(const Worker *worker, Pass *p, const Residual *residual, const Linear *f) {
    const float *input = p->x;
    int dim = p->stack->dim;
    if (residual->before.kind != NO_NORM) {
        Range mine = share(worker, p->tokens);
        for (int64_t t = mine.first; t < mine.last; t++)
            normalise(&residual->before, p->normal + t * dim, p->x + t * dim, dim);
        input = p->normal;
    }
    quantize_tokens(worker, f, input, &p->quantized, p->tokens);
    barrier(worker);
    return input;
}

/* x <- after(x + inside(y)), for the tokens of this thread. */
static void add_residual(const Worker *worker, Pass *p, const Residual *residual) {
    int dim = p->stack->dim;
    Range mine = share(worker, p->tokens);
    for (int64_t t = mine.first; t < mine.last; t++) {
        float *into = p->x + t * dim, *from = p->y + t * dim;
        if (residual->inside.kind != NO_NORM) normalise(&residual->inside, from, from, dim);
        for (int i = 0; i < dim; i++) into[i] += from[i];
        if (residual->after.kind != NO_NORM) normalise(&residual->after, into, into, dim);
    }
}

/* --- attention --- */

typedef struct {
    const Pass *pass;
    int layer, cross;
    int64_t token, hidden;
} Seeing; /* one token of one attention layer */

/* Hand out the scores or weights of one head, if they are wanted; what the token does not see is 0. */
static inline void show(const Seeing *seeing, int head, int weights, const float *numbers, int count) {
    for (int i = 0; i < seeing->pass->seen_count; i++) {
        const Seen *seen = seeing->pass->seen + i;
        float *into = weights ? seen->weights : seen->scores;
        if (!into || seen->layer != seeing->layer || seen->head != head || seen->cross != seeing->cross) continue;
        into += seeing->token * seen->width;
        memset(into, 0, sizeof(float) * seen->width);
        memcpy(into + seeing->hidden, numbers, sizeof(float) * count);
    }
}

typedef struct {
    const char *keys, *values; /* (slots, G K), (slots, G V) */
    const int32_t *list;       /* (count,) the slots that are seen */
    int count, place, halves;  /* place: of the token among them */
} Visible;                     /* what one token attends to */

/* Some key-value heads of one token: its queries q (H, K) attend to the slots of a list -> mixed (H, V). All heads read
   eight slots together; meanwhile their values and the keys of the next eight are fetched.                           */
INLINE void attend_as(const int halves, const Attention *a, Range groups, const float *q, const Visible *visible,
                      const Seeing *seeing, float *scores, float *mixed) {
    int64_t K = a->key_dim, V = a->value_dim, G = a->kv_heads, each = number_size(halves);
    const int32_t *list = visible->list;
    int heads = a->heads / a->kv_heads, first = groups.first * heads, last = groups.last * heads;
    int count = visible->count, room = in_eights(count);
    for (int j = 0; j < count; j += 8) {
        const char *key[8];
        for (int n = 0; n < 8; n++) { /* the last ones again, where there are no eight */
            int own = j + n < count ? j + n : count - 1, later = own + 8 < count ? own + 8 : own;
            const char *next = visible->keys + list[later] * G * K * each,
                       *value = visible->values + list[own] * G * V * each;
            for (int64_t i = groups.first * K * each; i < groups.last * K * each; i += LINE)
                __builtin_prefetch(next + i, 0, 3);
            for (int64_t i = groups.first * V * each; i < groups.last * V * each; i += LINE)
                __builtin_prefetch(value + i, 0, 2);
            key[n] = visible->keys + (list[own] * G + groups.first) * K * each;
        }
        for (int64_t group = groups.first; group < groups.last; group++) {
            for (int64_t h = group * heads; h < (group + 1) * heads; h++)
                *(vec8 *)(scores + h * room + j) = dot_eight(halves, q + h * K, key, K) * a->scale;
            for (int n = 0; n < 8; n++) key[n] += K * each;
        }
    }
    for (int h = first; a->bias && h < last; h++) {
        const float *bias = a->bias + (int64_t)h * (2 * a->positions - 1) + a->positions - 1 + visible->place;
        for (int j = 0; j < count; j++) scores[h * room + j] += bias[-j];
    }
    for (int h = first; h < last; h++) {
        show(seeing, h, 0, scores + h * room, count);
        softmax(scores + h * room, count);
        show(seeing, h, 1, scores + h * room, count);
        mix(halves, visible->values + h / heads * V * each, G * V, list, scores + h * room, count, mixed + h * V, V);
    }
}

static void attend(const Attention *a, Range groups, const float *q, const Visible *visible, const Seeing *seeing,
                   float *scores, float *mixed) {
    if (visible->halves)
        attend_as(1, a, groups, q, visible, seeing, scores, mixed);
    else
        attend_as(0, a, groups, q, visible, seeing, scores, mixed);
}

/* The heads of one token that are among the key-value heads from i to `last` of all tokens. */
static inline Range groups_of(int64_t i, int64_t last, int64_t groups) {
    int64_t first = i % groups, left = last - i;
    return (Range){first, first + left < groups ? first + left : groups};
}

/* Rotary positions: rotate each pair (i, i + K / 2) of some heads by its position's angle. */
static void rotate(const Attention *a, float *x, int heads, int position) {
    int half = a->key_dim / 2;
    const float *sin = a->sin + (int64_t)position * half, *cos = a->cos + (int64_t)position * half;
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < half; i++) {
            float *left = x + h * a->key_dim + i, *right = left + half, old = *left;
            *left = old * cos[i] - *right * sin[i];
            *right = *right * cos[i] + old * sin[i];
        }
}

static void keep_numbers(int halves, char *cache, int64_t place, const float *from, int count) {
    char *into = cache + place * count * number_size(halves);
    if (halves)
        store_halves(into, from, count);
    else
        memcpy(into, from, sizeof(float) * count);
}

/* One key-value head of one token: its key and value go into its slot. */
static void keep_key_and_value(const Attention *a, const KeyValues *kv, const TokenView *view, int group, float *q,
                               char *keys, char *values) {
    int K = a->key_dim, V = a->value_dim, heads = a->heads / a->kv_heads;
    float *k = q + (a->heads + group) * K, *v = q + (a->heads + a->kv_heads) * K + group * V;
    if (a->sin) rotate(a, q + group * heads * K, heads, view->position), rotate(a, k, 1, view->position);
    keep_numbers(kv->halves, keys, view->slot * a->kv_heads + group, k, K);
    keep_numbers(kv->halves, values, view->slot * a->kv_heads + group, v, V);
}

/* Whole texts, head by head: threads share the heads, because texts are of unequal length. */
static void attend_texts(const Worker *worker, Pass *p, const Attention *a, const float *keys, const float *values,
                         float *memory) {
    const KeyValues *kv = p->kv;
    int64_t K = a->key_dim, V = a->value_dim, shared = a->heads / a->kv_heads;
    Text text = {.q_apart = a->project.outputs, .mixed_apart = a->heads * V};
    text.keys_apart = a->kv_heads * K, text.values_apart = a->kv_heads * V;
    Range mine = share(worker, (int64_t)a->heads * kv->texts);
    for (int64_t i = mine.first; i < mine.last; i++) {
        int64_t head = i / kv->texts, begin = kv->begins[i % kv->texts] - kv->begins[0];
        text.count = kv->begins[i % kv->texts + 1] - kv->begins[0] - begin;
        text.q = p->projected + begin * text.q_apart + head * K;
        text.keys = keys + begin * text.keys_apart + head / shared * K;
        text.values = values + begin * text.values_apart + head / shared * V;
        text.mixed = p->mixed + begin * text.mixed_apart + head * V;
        attend_text(a, &text, head, memory);
    }
}

static void attend_self(const Worker *worker, Pass *p, const Attention *a, int layer) {
    const KeyValues *kv = p->kv;
    int64_t G = a->kv_heads, K = a->key_dim, V = a->value_dim, before = layer * kv->slots * number_size(kv->halves);
    char *keys = kv->keys + before * G * K, *values = kv->values + before * G * V;
    float *scores = p->scores + worker->number * p->scores_size;
    Range mine = share(worker, p->tokens * G);
    for (int64_t i = mine.first; i < mine.last; i++)
        keep_key_and_value(a, kv, kv->views + i / G, i % G, p->projected + i / G * a->project.outputs, keys, values);
    if (!kv->alone) barrier(worker);
    if (kv->begins) {
        attend_texts(worker, p, a, (const float *)keys, (const float *)values, scores);
        barrier(worker);
        return;
    }
    for (int64_t i = mine.first; i < mine.last;) {
        int64_t t = i / G;
        const TokenView *view = kv->views + t;
        Visible visible = {keys, values, kv->lists + view->list, view->seen, view->place, kv->halves};
        Range groups = groups_of(i, mine.last, G);
        Seeing seeing = {p, layer, 0, t, view->hidden};
        attend(a, groups, p->projected + t * a->project.outputs, &visible, &seeing, scores,
               p->mixed + t * a->heads * V);
        i += groups.last - groups.first;
    }
    barrier(worker);
}

static void attend_cross(const Worker *worker, Pass *p, const Attention *a, int layer) {
    const Memory *memory = p->memory;
    int64_t G = a->kv_heads, K = a->key_dim, V = a->value_dim, each = p->tokens / p->rows;
    const float *keys = memory->keys + layer * memory->slots * G * K;
    const float *values = memory->values + layer * memory->slots * G * V;
    float *scores = p->scores + worker->number * p->scores_size;
    Range mine = share(worker, p->tokens * G);
    for (int64_t i = mine.first; i < mine.last;) {
        int64_t t = i / G, sentence = memory->sentence[t / each];
        Visible visible = {(const char *)keys, (const char *)values, memory->lists + sentence * memory->stride,
                           memory->lengths[sentence]};
        Range groups = groups_of(i, mine.last, G);
        Seeing seeing = {p, layer, 1, t, 0};
        attend(a, groups, p->projected + t * a->heads * K, &visible, &seeing, scores, p->mixed + t * a->heads * V);
        i += groups.last - groups.first;
    }
    barrier(worker);
}

/* mixed -> y, of the sublayer */
static void attention_output(const Worker *worker, Pass *p, const Attention *a) {
    if (a->output.bytes && GROUP > 1) {
        quantize_tokens(worker, &a->output, p->mixed, &p->quantized, p->tokens);
        barrier(worker);
    }
    linear(worker, &a->output, p->mixed, &p->quantized, p->y, p->tokens);
}

/* --- the feed-forward layer --- */

/* Some outputs of one token: x <- activation(x), or x times the activation of the gate. */
static void activate(int activation, float *restrict x, const float *restrict gate, int size) {
    if (activation == RELU)
        for (int i = 0; i < size; i++) x[i] = x[i] > 0 ? x[i] : 0;
    else if (activation == GELU)
        for (int i = 0; i < size; i++) x[i] = 0.5f * x[i] * (1.0f + error_function(x[i] * 0.70710678f));
    else
        for (int i = 0; i < size; i++) {
            float e = exponential(-fabsf(gate[i]));
            x[i] *= gate[i] * (gate[i] >= 0 ? 1.0f : e) / (1.0f + e);
        }
}

static void feed_forward(const Worker *worker, Pass *p, const FeedForward *f, const float *x) {
    int64_t size = f->inner.outputs;
    enum { SIDE_BY_SIDE = 4 };
    Range mine = share(worker, panels_of(&f->inner));
    for (int64_t first = mine.first; first < mine.last; first += SIDE_BY_SIDE) { /* activated while in the cache */
        Range panels = {first, first + SIDE_BY_SIDE < mine.last ? first + SIDE_BY_SIDE : mine.last};
        int64_t begin = panels.first * PANEL, end = panels.last * PANEL < size ? panels.last * PANEL : size;
        linear_panels(&f->inner, panels, x, &p->quantized, p->inner, p->tokens);
        if (f->activation == SWIGLU) linear_panels(&f->gate, panels, x, &p->quantized, p->gate, p->tokens);
        for (int64_t t = 0; t < p->tokens; t++)
            activate(f->activation, p->inner + t * size + begin, p->gate + t * size + begin, end - begin);
    }
    barrier(worker);
    if (f->outer.bytes && GROUP > 1) {
        quantize_tokens(worker, &f->outer, p->inner, &p->quantized, p->tokens);
        barrier(worker);
    }
    linear(worker, &f->outer, p->inner, &p->quantized, p->y, p->tokens);
}

/* --- the whole stack --- */

static void pass_block(const Worker *worker, Pass *p, const Block *b, int layer) {
    const float *x = sublayer_input(worker, p, &b->residual_self, &b->self.project);
    linear(worker, &b->self.project, x, &p->quantized, p->projected, p->tokens);
    attend_self(worker, p, &b->self, layer);
    attention_output(worker, p, &b->self);
    add_residual(worker, p, &b->residual_self);
    if (b->cross.heads) {
        x = sublayer_input(worker, p, &b->residual_cross, &b->cross.project);
        linear(worker, &b->cross.project, x, &p->quantized, p->projected, p->tokens);
        attend_cross(worker, p, &b->cross, layer);
        attention_output(worker, p, &b->cross);
        add_residual(worker, p, &b->residual_cross);
    }
    x = sublayer_input(worker, p, &b->residual_feed_forward, &b->feed_forward.inner);
    feed_forward(worker, p, &b->feed_forward, x);
    add_residual(worker, p, &b->residual_feed_forward);
}

static void pass_stack(const Worker *worker, void *context) {
    Pass *p = context;
    const Stack *stack = p->stack;
    int64_t D = stack->dim, each = p->tokens / p->kept;
    for (int l = 0; l < stack->layers; l++) pass_block(worker, p, stack->blocks + l, l);
    barrier(worker);
    Range mine = share(worker, p->kept);
    for (int64_t t = mine.first; t < mine.last; t++) { /* of each row its last token, or all */
        float *hidden = p->x + ((t + 1) * each - 1) * D;
        if (stack->final_norm.kind != NO_NORM) normalise(&stack->final_norm, hidden, hidden, D);
        if (p->logits) memcpy(p->normal + t * D, hidden, sizeof(float) * D);
    }
    if (!p->logits) return;
    quantize_tokens(worker, &stack->output, p->normal, &p->quantized, p->kept);
    barrier(worker);
    linear(worker, &stack->output, p->normal, &p->quantized, p->logits, p->kept);
}

/* Make memory for a pass and go through the stack; 0 if memory ran out. */
static int run_pass(Pass *p, int threads) {
    const Stack *stack = p->stack;
    int64_t N = p->tokens, D = stack->dim, wide = D, inner = 0, mixing = 0, heads = 0, keys = 0;
    for (int l = 0; l < stack->layers; l++) {
        const Block *b = stack->blocks + l;
        wide = max_int(wide, max_int(b->self.project.outputs, b->cross.heads ? b->cross.project.outputs : 0));
        mixing = max_int(mixing, max_int(b->self.heads * b->self.value_dim, b->cross.heads * b->cross.value_dim));
        inner = max_int(inner, b->feed_forward.inner.outputs);
        heads = max_int(heads, max_int(b->self.heads, b->cross.heads));
        keys = max_int(keys, b->self.key_dim);
    }
    p->scores_size = heads * in_eights(p->memory ? max_int(p->kv->longest, p->memory->stride) : p->kv->longest);
    if (p->kv->begins) p->scores_size = text_memory(p->kv->longest, keys);
    float *work = malloc(sizeof(float) * (N * (2 * D + wide + mixing + 2 * inner) + threads * p->scores_size));
    int ok = make_quantized(&p->quantized, N, max_int(max_int(D, mixing), inner)) && work;
    if (ok) {
        p->normal = work, p->y = p->normal + N * D, p->projected = p->y + N * D, p->mixed = p->projected + N * wide;
        p->inner = p->mixed + N * mixing, p->gate = p->inner + N * inner, p->scores = p->gate + N * inner;
        run_parallel(threads, pass_stack, p);
    }
    free(work), free_quantized(&p->quantized);
    return ok;
}

/* A new token sees the earlier tokens of its row, the new ones included. */
static TokenView view_of(const Cache *cache, int64_t row, int each, int t) {
    int length = cache->lengths ? cache->lengths[row] : cache->length;
    int start = cache->firsts ? cache->firsts[row] : cache->first, place = length - each + t, seen = place + 1;
    int first = cache->window && seen > cache->window ? seen - cache->window : 0;
    int64_t list = row * cache->stride;
    return (TokenView){list + first, cache->lists[list + place], seen - first, place - first, start + place, first};
}

/* A pass over the new tokens of all rows; 0 if memory ran out. */
static int run_step(Pass *p, const Cache *cache, int threads) {
    int each = p->tokens / p->rows;
    TokenView *views = malloc(sizeof(TokenView) * p->tokens);
    if (!views) return 0;
    for (int t = 0; t < p->tokens; t++) views[t] = view_of(cache, t / each, each, t % each);
    KeyValues kv = {cache->keys, cache->values, cache->lists, views, cache->slots, cache->length, each == 1};
    kv.halves = cache->format == CACHE_HALF;
    p->kv = &kv;
    int ok = run_pass(p, threads);
    free(views);
    return ok;
}

int EXPORT(step)(const Stack *stack, const Cache *cache, const Memory *memory, float *x, float *logits, int rows,
                 int tokens, int last, int threads) {
    Pass p = {stack, NULL, memory, x, logits, rows, tokens, last ? rows : tokens};
    return !run_step(&p, cache, threads);
}

int EXPORT(step_tokens)(const Stack *stack, const Input *input, const Cache *cache, const Memory *memory,
                        const int32_t *ids, float *logits, const Seen *seen, int seen_count, int rows, int tokens,
                        int last, int threads) {
    int each = tokens / rows;
    int64_t D = stack->dim;
    float *x = malloc(sizeof(float) * tokens * D);
    if (!x) return 1;
    for (int t = 0; t < tokens; t++)
        embed(input, ids[t], view_of(cache, t / each, each, t % each).position, x + t * D, D);
    Pass p = {
        stack, NULL, memory, x, logits, rows, tokens, last ? rows : tokens, .seen = seen, .seen_count = seen_count};
    int ok = run_step(&p, cache, threads);
    free(x);
    return !ok;
}

int64_t EXPORT(take_slots)(int32_t *lists, int64_t stride, int32_t *counts, int32_t *next, int32_t *left, int rows,
                           int tokens, int block, int64_t used, const int32_t *free, int32_t *free_count) {
    for (int row = 0; row < rows; row++) {
        if (left[row] < tokens && tokens <= block && *free_count > 0)
            next[row] = free[--*free_count], left[row] = block;
        else if (left[row] < tokens) {
            int taken = max_int(tokens, block);
            next[row] = used, left[row] = taken, used += taken;
        }
        for (int t = 0; t < tokens; t++) lists[row * stride + counts[row]++] = next[row]++;
        left[row] -= tokens;
    }
    return used;
}

/* --- encoding a source --- */

typedef struct {
    const Stack *decoder;
    const float *x;       /* (N, D) */
    float *both;          /* (N, G K + G V) */
    float *keys, *values; /* (layers, N, G K), (layers, N, G V) */
    int tokens;
    Quantized quantized;
} Projection; /* of the encoder's output, to keys and values of each layer with cross-attention */

static void project_source(const Worker *worker, void *context) {
    Projection *p = context;
    int64_t N = p->tokens;
    Range mine = share(worker, N);
    quantize_tokens(worker, &p->decoder->blocks->cross.source, p->x, &p->quantized, p->tokens);
    barrier(worker);
    for (int64_t l = 0; l < p->decoder->layers; l++) {
        const Attention *a = &p->decoder->blocks[l].cross;
        int64_t K = a->kv_heads * a->key_dim, V = a->kv_heads * a->value_dim;
        linear(worker, &a->source, p->x, &p->quantized, p->both, p->tokens);
        for (int64_t t = mine.first; t < mine.last; t++) {
            memcpy(p->keys + (l * N + t) * K, p->both + t * (K + V), sizeof(float) * K);
            memcpy(p->values + (l * N + t) * V, p->both + t * (K + V) + K, sizeof(float) * V);
        }
        barrier(worker);
    }
}

/* 0 if memory ran out. */
static int keys_and_values(const Stack *decoder, const float *x, float *keys, float *values, int tokens, int threads) {
    const Linear *source = &decoder->blocks->cross.source;
    float *both = malloc(sizeof(float) * tokens * source->outputs);
    Projection p = {decoder, x, both, keys, values, tokens};
    int ok = make_quantized(&p.quantized, tokens, source->inputs) && both;
    if (ok) run_parallel(threads, project_source, &p);
    free(both), free_quantized(&p.quantized);
    return ok;
}

/* Sentences end to end: every token sees those of its sentence, with `causal` only the earlier ones. x (N, D) -> hidden
   states (N, D). 0 if memory ran out.                                                                                */
static int pass_sentences(const Stack *encoder, float *x, const int32_t *begins, int sentences, int causal,
                          int threads) {
    int N = begins[sentences] - begins[0], longest = 0;
    const Attention *a = &encoder->blocks->self;
    int64_t size = (int64_t)a->kv_heads * (a->key_dim + a->value_dim);
    float *keys = malloc(sizeof(float) * N * size);
    int32_t *lists = malloc(sizeof(int32_t) * N);
    TokenView *views = malloc(sizeof(TokenView) * N);
    int ok = keys && lists && views;
    for (int i = 0; ok && i < sentences; i++) {
        int begin = begins[i] - begins[0], count = begins[i + 1] - begins[i];
        longest = max_int(longest, count);
        for (int t = 0; t < count; t++)
            lists[begin + t] = begin + t,
                          views[begin + t] = (TokenView){begin, begin + t, causal ? t + 1 : count, t, t};
    }
    if (ok) {
        float *values = keys + (int64_t)N * a->kv_heads * a->key_dim;
        /* 0 slots: every layer reuses the memory */
        KeyValues kv = {(char *)keys, (char *)values, lists, views, 0, longest};
        if (!causal) kv.begins = begins, kv.texts = sentences;
        Pass p = {encoder, &kv, NULL, x, NULL, sentences, N, N};
        ok = run_pass(&p, threads);
    }
    free(keys), free(lists), free(views);
    return ok;
}

/* Tokens of a part of many sentences: so many that the weights are not the most of what is read, so few that what is
   computed of them stays in the cache of a core.                                                                     */
enum { FEWEST = 96, MOST = 384, PARTS = 8 }; /* parts for each thread, where there are enough tokens */

typedef struct {
    const Stack *encoder;
    float *x;
    const int32_t *begins;
    int32_t *firsts; /* (count + 1,) the first sentence of each part */
    int count, causal;
    atomic_int next, failed; /* the next part that nobody has taken; whether memory ran out */
} Parts;

/* Cut sentences into parts of `most` tokens, or of one sentence that has more -> the tokens of the largest. */
static int cut_sentences(Parts *p, int sentences, int most) {
    int largest = 0;
    p->count = p->firsts[0] = 0;
    for (int i = 0; i < sentences; i++) {
        int first = p->firsts[p->count], tokens = p->begins[i + 1] - p->begins[first];
        if (i > first && tokens > most) p->firsts[++p->count] = i, tokens = p->begins[i + 1] - p->begins[i];
        largest = max_int(largest, tokens);
    }
    p->firsts[++p->count] = sentences;
    return largest;
}

static void pass_parts(const Worker *worker, void *context) {
    Parts *p = context;
    (void)worker;
    for (int part = atomic_fetch_add(&p->next, 1); part < p->count; part = atomic_fetch_add(&p->next, 1)) {
        int first = p->firsts[part], sentences = p->firsts[part + 1] - first;
        float *x = p->x + (int64_t)(p->begins[first] - p->begins[0]) * p->encoder->dim;
        if (!pass_sentences(p->encoder, x, p->begins + first, sentences, p->causal, 1)) atomic_store(&p->failed, 1);
    }
}

/* The same for any number of sentences. Each thread takes parts and waits for none; only where there are too few parts
   for that, all threads work on one after the other.                                                                 */
static int encode_sentences(const Stack *encoder, float *x, const int32_t *begins, int sentences, int causal,
                            int threads) {
    int64_t N = begins[sentences] - begins[0], each = N / ((int64_t)PARTS * threads);
    Parts p = {encoder, x, begins, malloc(sizeof(int32_t) * (sentences + 1)), 0, causal, 0, 0};
    if (!p.firsts) return 0;
    int largest = cut_sentences(&p, sentences, each < FEWEST ? FEWEST : each < MOST ? each : MOST);
    if ((int64_t)largest * threads <= N)
        run_parallel(threads, pass_parts, &p);
    else
        for (int part = 0; part < p.count; part++) {
            int first = p.firsts[part], count = p.firsts[part + 1] - first;
            float *from = x + (int64_t)(begins[first] - begins[0]) * encoder->dim;
            if (!pass_sentences(encoder, from, begins + first, count, causal, threads)) p.failed = 1;
        }
    free(p.firsts);
    return !p.failed;
}

int EXPORT(encode)(const Stack *encoder, float *x, const int32_t *begins, int sentences, int causal, int threads) {
    return !encode_sentences(encoder, x, begins, sentences, causal, threads);
}

int EXPORT(read)(const Stack *encoder, const Input *input, const Stack *decoder, const int32_t *tokens,
                 const int32_t *begins, int sentences, float *keys, float *values, int threads) {
    int64_t N = begins[sentences], D = encoder->dim;
    float *x = malloc(sizeof(float) * N * D);
    if (!x) return 1;
    for (int i = 0; i < sentences; i++)
        for (int64_t t = begins[i]; t < begins[i + 1]; t++) embed(input, tokens[t], t - begins[i], x + t * D, D);
    int ok = encode_sentences(encoder, x, begins, sentences, 0, threads);
    ok = ok && keys_and_values(decoder, x, keys, values, N, threads);
    free(x);
    return !ok;
}
