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

typedef struct {
    int64_t list, slot;            /* where its list begins; the slot of its own key and value */
    int32_t seen, place, position; /* visible slots; which of them is its own; its position in the text */
} TokenView;                       /* what self-attention of one token sees */

typedef struct {
    float *keys, *values; /* (layers, slots, G K), (layers, slots, G V) */
    const int32_t *lists;
    const TokenView *views; /* (N,) */
    int64_t slots;
    int32_t longest; /* the maximum number of slots that a token sees */
    int32_t alone;   /* no token sees another of this step */
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

/* The queries of one token that share a key-value head, q (H / G, K), attend to the slots of a list -> (H / G, V). */
static void attend(const Attention *a, int group, const float *q, const float *keys, const float *values,
                   const int32_t *list, int count, int place, float *scores, float *restrict mixed) {
    int64_t K = a->key_dim, V = a->value_dim, G = a->kv_heads;
    int heads = a->heads / a->kv_heads, room = in_eights(count);
    for (int j = 0; j < count; j++) {
        const float *key = keys + (list[j] * G + group) * K;
        for (int h = 0; h < heads; h++) scores[h * room + j] = dot(q + h * K, key, K) * a->scale;
    }
    for (int h = 0; a->bias && h < heads; h++) {
        const float *bias = a->bias + (int64_t)(group * heads + h) * (2 * a->positions - 1) + a->positions - 1 + place;
        for (int j = 0; j < count; j++) scores[h * room + j] += bias[-j];
    }
    for (int h = 0; h < heads; h++) {
        softmax(scores + h * room, count);
        mix(values + group * V, G * V, list, scores + h * room, count, mixed + h * V, V);
    }
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

/* One key-value head of one token: its key and value go into its slot. */
static void keep_key_and_value(const Attention *a, const TokenView *view, int group, float *q, float *keys,
                               float *values) {
    int K = a->key_dim, V = a->value_dim, heads = a->heads / a->kv_heads;
    float *k = q + (a->heads + group) * K, *v = q + (a->heads + a->kv_heads) * K + group * V;
    if (a->sin) rotate(a, q + group * heads * K, heads, view->position), rotate(a, k, 1, view->position);
    memcpy(keys + (view->slot * a->kv_heads + group) * K, k, sizeof(float) * K);
    memcpy(values + (view->slot * a->kv_heads + group) * V, v, sizeof(float) * V);
}

static void attend_self(const Worker *worker, Pass *p, const Attention *a, int layer) {
    const KeyValues *kv = p->kv;
    int64_t G = a->kv_heads, K = a->key_dim, V = a->value_dim, heads = a->heads / G;
    float *keys = kv->keys + layer * kv->slots * G * K, *values = kv->values + layer * kv->slots * G * V;
    float *scores = p->scores + worker->number * p->scores_size;
    Range mine = share(worker, p->tokens * G);
    for (int64_t i = mine.first; i < mine.last; i++)
        keep_key_and_value(a, kv->views + i / G, i % G, p->projected + i / G * a->project.outputs, keys, values);
    if (!kv->alone) barrier(worker);
    for (int64_t i = mine.first; i < mine.last; i++) {
        const TokenView *view = kv->views + i / G;
        const float *q = p->projected + i / G * a->project.outputs + i % G * heads * K;
        attend(a, i % G, q, keys, values, kv->lists + view->list, view->seen, view->place, scores,
               p->mixed + i * heads * V);
    }
    barrier(worker);
}

static void attend_cross(const Worker *worker, Pass *p, const Attention *a, int layer) {
    const Memory *memory = p->memory;
    int64_t G = a->kv_heads, K = a->key_dim, V = a->value_dim, heads = a->heads / G, each = p->tokens / p->rows;
    const float *keys = memory->keys + layer * memory->slots * G * K;
    const float *values = memory->values + layer * memory->slots * G * V;
    float *scores = p->scores + worker->number * p->scores_size;
    Range mine = share(worker, p->tokens * G);
    for (int64_t i = mine.first; i < mine.last; i++) {
        int64_t sentence = memory->sentence[i / G / each];
        attend(a, i % G, p->projected + i * heads * K, keys, values, memory->lists + sentence * memory->stride,
               memory->lengths[sentence], 0, scores, p->mixed + i * heads * V);
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
        for (int i = 0; i < size; i++) x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
    else
        for (int i = 0; i < size; i++) {
            float e = exponential(-fabsf(gate[i]));
            x[i] *= gate[i] * (gate[i] >= 0 ? 1.0f : e) / (1.0f + e);
        }
}

static void feed_forward(const Worker *worker, Pass *p, const FeedForward *f, const float *x) {
    int64_t size = f->inner.outputs;
    enum { TOGETHER = 4 };
    Range mine = share(worker, panels_of(&f->inner));
    for (int64_t first = mine.first; first < mine.last; first += TOGETHER) { /* activated while they are in the cache */
        Range panels = {first, first + TOGETHER < mine.last ? first + TOGETHER : mine.last};
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
    int64_t N = p->tokens, D = stack->dim, wide = D, inner = 0, mixing = 0, heads = 0;
    for (int l = 0; l < stack->layers; l++) {
        const Block *b = stack->blocks + l;
        wide = max_int(wide, max_int(b->self.project.outputs, b->cross.heads ? b->cross.project.outputs : 0));
        mixing = max_int(mixing, max_int(b->self.heads * b->self.value_dim, b->cross.heads * b->cross.value_dim));
        inner = max_int(inner, b->feed_forward.inner.outputs);
        heads = max_int(heads, max_int(b->self.heads, b->cross.heads));
    }
    p->scores_size = heads * in_eights(p->memory ? max_int(p->kv->longest, p->memory->stride) : p->kv->longest);
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
    return (TokenView){list + first, cache->lists[list + place], seen - first, place - first, start + place};
}

int EXPORT(step)(const Stack *stack, const Cache *cache, const Memory *memory, float *x, float *logits, int rows,
                 int tokens, int last, int threads) {
    int each = tokens / rows;
    TokenView *views = malloc(sizeof(TokenView) * tokens);
    if (!views) return 1;
    for (int t = 0; t < tokens; t++) views[t] = view_of(cache, t / each, each, t % each);
    KeyValues kv = {cache->keys, cache->values, cache->lists, views, cache->slots, cache->length, each == 1};
    Pass p = {stack, &kv, memory, x, logits, rows, tokens, last ? rows : tokens};
    int ok = run_pass(&p, threads);
    free(views);
    return !ok;
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

int EXPORT(read)(const Stack *encoder, const Input *input, const Stack *decoder, const int32_t *tokens,
                 const int32_t *begins, int sentences, float *keys, float *values, int threads) {
    int N = begins[sentences], longest = 0;
    const Attention *a = &encoder->blocks->self;
    int64_t D = encoder->dim, size = (int64_t)a->kv_heads * (a->key_dim + a->value_dim);
    float *x = malloc(sizeof(float) * N * D), *self_keys = malloc(sizeof(float) * N * size);
    int32_t *lists = malloc(sizeof(int32_t) * N);
    TokenView *views = malloc(sizeof(TokenView) * N);
    int ok = x && self_keys && lists && views;
    for (int i = 0; ok && i < sentences; i++) {
        int begin = begins[i], count = begins[i + 1] - begin;
        longest = max_int(longest, count);
        for (int t = 0; t < count; t++) {
            embed(input, tokens[begin + t], t, x + (begin + t) * D, D);
            lists[begin + t] = begin + t, views[begin + t] = (TokenView){begin, begin + t, count, t, t};
        }
    }
    if (ok) {
        float *self_values = self_keys + (int64_t)N * a->kv_heads * a->key_dim;
        KeyValues kv = {self_keys, self_values, lists, views, 0, longest}; /* 0 slots: every layer reuses the memory */
        Pass p = {encoder, &kv, NULL, x, NULL, sentences, N, N};
        ok = run_pass(&p, threads) && keys_and_values(decoder, x, keys, values, N, threads);
    }
    free(x), free(self_keys), free(lists), free(views);
    return !ok;
}
