/* One step of a decoder-only language model whose matrices are quantised: what nn/block.py computes, for all new tokens
   of all rows at once.

   Keys and values lie in slots; a row knows its tokens as a list of slots (see step.c).

   All threads go through all parts of a step, with a barrier where one needs what another has computed. A step of one
   token is short, so it meets few of them: what all threads need of one vector, its norm and its bytes, each computes
   for itself. */

#include "lm.h"

#include <stdlib.h>

#include "attention.h"
#include "multiply.h"
#include "norm.h"
#include "pack.h"
#include "threads.h"

enum { PIECE = 96, QUERIES = 16 }; /* tokens of one panel, and of one attention, at a time */

typedef struct {
    float *floats; /* (N, inputs) */
    int8_t *bytes;
    BlockScale *scales;
    int inputs; /* whole blocks; zeros beyond the vector */
} Prepared;     /* memory for Vectors */

typedef struct {
    const Matrix *matrix;
    float *y; /* (N, stride) */
    int64_t stride;
    int add; /* to what is in y */
} Product;

typedef struct {
    const LmModel *model;
    const Cache *cache;
    const LmStep *step;
    TokenView *views;              /* (N,) */
    float *x, *y, *q, *k, *v;      /* (N, D) twice; (N, H K), (N, G K), (N, G V) */
    Prepared normed, mixed, inner; /* of one token: each thread has its own `normed` */
    float *scores;                 /* (threads, score_size) */
    int64_t score_size;
} Work;

/* --- parts --- */

/* The same memory for vectors of another size. */
static Prepared sized(Prepared memory, int in) {
    return memory.inputs = in, memory;
}

static Vectors vectors_of(const Prepared *from, int64_t first, int exact) {
    return (Vectors){from->floats + first * from->inputs, exact ? NULL : from->bytes + first * from->inputs,
                     from->scales + first * (from->inputs / BLOCK)};
}

/* y = norm(x), which may be none; then as bytes, where products are made with bytes. */
static void prepare(const Norm *norm, const float *x, int dim, const Prepared *into, int64_t at, int exact) {
    float *y = into->floats + at * into->inputs;
    if (norm->kind == NO_NORM)
        memcpy(y, x, sizeof(float) * dim);
    else
        normalise(norm, y, x, dim);
    memset(y + dim, 0, sizeof(float) * (into->inputs - dim));
    if (!exact)
        quantise_vector(y, into->inputs, into->bytes + at * into->inputs, into->scales + at * (into->inputs / BLOCK));
}

/* All tokens (N, dim) as a product reads them: in memory of a thread's own where there is only one. */
static Vectors prepare_all(const Worker *worker, const Work *w, const Norm *norm, const float *x, int dim, int in) {
    int tokens = w->step->tokens, exact = w->step->exact;
    const Prepared into = sized(w->normed, in);
    if (tokens == 1) {
        prepare(norm, x, dim, &into, worker->number, exact);
        return vectors_of(&into, worker->number, exact);
    }
    Range mine = share(worker, tokens);
    for (int64_t t = mine.first; t < mine.last; t++) prepare(norm, x + t * dim, dim, &into, t, exact);
    barrier(worker);
    return vectors_of(&into, 0, exact);
}

/* One panel of a product, for all tokens. */
static void product_panel(const Product *product, int p, const Vectors *x, int tokens) {
    int begin = p * LANES, wide = product->matrix->outputs - begin < LANES ? product->matrix->outputs - begin : LANES;
    for (int64_t first = 0; first < tokens; first += PIECE) {
        float tile[PIECE * LANES];
        int some = tokens - first < PIECE ? tokens - first : PIECE;
        multiply(product->matrix, p, x, first, some, tile);
        for (int t = 0; t < some; t++) {
            float *into = product->y + (first + t) * product->stride + begin, *from = tile + t * LANES;
            if (product->add)
                for (int i = 0; i < wide; i++) into[i] += from[i];
            else
                memcpy(into, from, sizeof(float) * wide);
        }
    }
}

/* Some products of the same vectors. */
static void multiply_all(const Worker *worker, const Product *list, int count, const Vectors *x, int tokens) {
    int panels = 0;
    for (int i = 0; i < count; i++) panels += panels_of(list[i].matrix);
    Range mine = share(worker, panels);
    for (int number = mine.first; number < mine.last; number++) {
        const Product *product = list;
        int p = number;
        for (; p >= panels_of(product->matrix); product++) p -= panels_of(product->matrix);
        product_panel(product, p, x, tokens);
    }
    barrier(worker);
}

/* x <- after(x + inside(y)) */
static void add(const Worker *worker, const Residual *around, const Work *w) {
    int dim = w->model->dim;
    Range mine = share(worker, w->step->tokens);
    for (int64_t t = mine.first; t < mine.last; t++) {
        float *into = w->x + t * dim, *from = w->y + t * dim;
        if (around->inside.kind != NO_NORM) normalise(&around->inside, from, from, dim);
        for (int i = 0; i < dim; i++) into[i] += from[i];
        if (around->after.kind != NO_NORM) normalise(&around->after, into, into, dim);
    }
    barrier(worker);
}

/* The output of a sublayer: added to x at once where no norm stands between. */
static void write_output(const Worker *worker, const Residual *around, const Work *w, const Matrix *matrix,
                         const Vectors *x) {
    int plain = around->inside.kind == NO_NORM && around->after.kind == NO_NORM;
    Product product = {matrix, plain ? w->x : w->y, w->model->dim, plain};
    multiply_all(worker, &product, 1, x, w->step->tokens);
    if (!plain) add(worker, around, w);
}

/* --- attention --- */

/* Rotary positions: rotate the pairs (i, i + R / 2) of the first R numbers of a head by its position's angle. */
static void rotate(const LmAttention *a, float *x, int position) {
    int half = a->rotated / 2;
    const float *sin = a->sin + (int64_t)position * half, *cos = a->cos + (int64_t)position * half;
    for (int i = 0; i < half; i++) {
        float left = x[i], right = x[i + half];
        x[i] = left * cos[i] - right * sin[i], x[i + half] = right * cos[i] + left * sin[i];
    }
}

static void finish_heads(const LmAttention *a, const Norm *norm, float *x, int heads, int position) {
    for (int h = 0; h < heads; h++, x += a->key_dim) {
        if (norm->kind != NO_NORM) normalise(norm, x, x, a->key_dim);
        if (a->sin) rotate(a, x, position);
    }
}

static void write_heads(int format, uint8_t *cache, int64_t slot, const float *from, int heads, int size) {
    uint8_t *into = cache + slot * heads * head_bytes(format, size);
    for (int h = 0; h < heads; h++) write_head(format, into + h * head_bytes(format, size), from + h * size, size);
}

/* Queries and keys get their norms and positions; keys and values go into their slots. */
static void write_keys(const Worker *worker, const LmAttention *a, const Work *w, uint8_t *keys, uint8_t *values) {
    int Q = a->heads * a->key_dim, K = a->kv_heads * a->key_dim, V = a->kv_heads * a->value_dim,
        format = w->cache->format;
    Range mine = share(worker, w->step->tokens);
    for (int64_t t = mine.first; t < mine.last; t++) {
        const TokenView *view = w->views + t;
        finish_heads(a, &a->query_norm, w->q + t * Q, a->heads, view->position);
        finish_heads(a, &a->key_norm, w->k + t * K, a->kv_heads, view->position);
        write_heads(format, keys, view->slot, w->k + t * K, a->kv_heads, a->key_dim);
        write_heads(format, values, view->slot, w->v + t * V, a->kv_heads, a->value_dim);
    }
    barrier(worker);
}

static int smaller_window(int a, int b) {
    return a && b ? (a < b ? a : b) : a + b;
}

/* Every worker takes units in turn: those of late tokens, which see most, are spread over all of them. */
static void attend_all(const Worker *worker, const AttentionInput *input, const Work *w) {
    const LmAttention *a = input->layer;
    float *memory = w->scores + worker->number * w->score_size, *mixed = w->mixed.floats;
    int rows = w->step->rows, length = w->step->tokens / rows, pieces = (length + QUERIES - 1) / QUERIES,
        stride = a->output.inputs;
    int units = rows * (length == 1 ? a->heads : a->kv_heads * pieces);
    for (int unit = worker->number; unit < units; unit += worker->count) {
        if (length == 1) {
            attend_one(input, w->q, unit % a->heads, unit / a->heads, memory, mixed, stride);
            continue;
        }
        int g = unit % a->kv_heads, piece = unit / a->kv_heads % pieces, row = unit / a->kv_heads / pieces;
        int first = piece * QUERIES, some = length - first < QUERIES ? length - first : QUERIES;
        attend(input, w->q, g, (int64_t)row * length + first, some, memory, mixed, stride);
    }
    barrier(worker);
}

/* The heads' values, weighted, side by side in `mixed`. */
static void attention(const Worker *worker, const LmBlock *block, const Work *w, int layer) {
    const LmAttention *a = &block->attention;
    const LmStep *step = w->step;
    int64_t G = a->kv_heads, K = G * a->key_dim, V = G * a->value_dim, before = layer * w->cache->slots;
    int format = w->cache->format;
    uint8_t *keys = (uint8_t *)w->cache->keys + before * G * head_bytes(format, a->key_dim);
    uint8_t *values = (uint8_t *)w->cache->values + before * G * head_bytes(format, a->value_dim);
    Vectors x = prepare_all(worker, w, &block->around_attention.before, w->x, w->model->dim, a->query.inputs);
    Product three[] = {{&a->query, w->q, a->heads * a->key_dim, 0}, {&a->key, w->k, K, 0}, {&a->value, w->v, V, 0}};
    multiply_all(worker, three, 3, &x, step->tokens);
    write_keys(worker, a, w, keys, values);
    AttentionInput input = {a,
                            keys,
                            values,
                            format,
                            w->cache->lists,
                            w->views,
                            step->seen,
                            step->seen_count,
                            layer,
                            smaller_window(w->cache->window, a->window),
                            w->cache->length};
    attend_all(worker, &input, w);
}

/* --- feed-forward --- */

static vec activated(int activation, vec x) {
    switch (activation) {
        case ACT_RELU: return larger(x, all(0));
        case ACT_GELU: return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
        case ACT_GELU_TANH: return 0.5f * x * (1.0f + hyperbolic_tangent(0.7978845608f * (x + 0.044715f * x * x * x)));
        case ACT_QUICK_GELU: return x * sigmoid(1.702f * x);
        default: return x * sigmoid(x);
    }
}

static void activate_panel(const LmFeedForward *f, float *y, const float *inner, const float *gate) {
    for (int i = 0; i < LANES; i += WIDTH)
        store(y + i, f->gate.outputs ? load(inner + i) * activated(f->activation, load(gate + i))
                                     : activated(f->activation, load(inner + i)));
}

/* Gate, inner and activation in one pass over a block of inner numbers, which is rounded where it is made. */
static void inner_block(const LmFeedForward *f, const Work *w, const Prepared *into, const Vectors *x, int block) {
    int panels = panels_of(&f->inner), tokens = w->step->tokens;
    for (int64_t first = 0; first < tokens; first += PIECE) {
        float inner[PIECE * LANES], gate[PIECE * LANES];
        int some = tokens - first < PIECE ? tokens - first : PIECE;
        for (int p = 2 * block; p < 2 * block + 2 && p < panels; p++) {
            multiply(&f->inner, p, x, first, some, inner);
            if (f->gate.outputs) multiply(&f->gate, p, x, first, some, gate);
            for (int t = 0; t < some; t++)
                activate_panel(f, into->floats + (first + t) * into->inputs + p * LANES, inner + t * LANES,
                               gate + t * LANES);
        }
        for (int64_t t = first; !w->step->exact && t < first + some; t++) {
            int64_t at = t * into->inputs + block * BLOCK;
            quantise_vector(into->floats + at, BLOCK, into->bytes + at, into->scales + at / BLOCK);
        }
    }
}

static void feed_forward(const Worker *worker, const LmBlock *block, const Work *w, const Vectors *x) {
    const LmFeedForward *f = &block->feed_forward;
    const Prepared into = sized(w->inner, f->outer.inputs);
    Range mine = share(worker, into.inputs / BLOCK);
    for (int b = mine.first; b < mine.last; b++) inner_block(f, w, &into, x, b);
    barrier(worker);
    Vectors inner = vectors_of(&into, 0, w->step->exact);
    write_output(worker, &block->around_feed_forward, w, &f->outer, &inner);
}

/* --- the whole step --- */

static void embed(const Worker *worker, const Work *w) {
    const LmModel *model = w->model;
    int D = model->dim;
    Range mine = share(worker, w->step->tokens);
    for (int64_t t = mine.first; t < mine.last; t++) {
        float *row = w->normed.floats + t * model->table.inputs, *x = w->x + t * D;
        const float *added = model->positions ? model->positions + (int64_t)w->views[t].position * D : NULL;
        expand_row(&model->table, w->step->ids[t], row);
        for (int i = 0; i < D; i++) x[i] = row[i] * model->scale + (added ? added[i] : 0);
    }
    barrier(worker);
}

/* Attention first; its output is added to x, or with `parallel` after the feed-forward network has read x, too. */
static void block_step(const Worker *worker, const Work *w, int layer) {
    static const Norm none = {0};
    const LmBlock *block = w->model->blocks + layer;
    const Matrix *output = &block->attention.output;
    attention(worker, block, w, layer);
    Vectors mixed = prepare_all(worker, w, &none, w->mixed.floats, output->inputs, output->inputs);
    if (w->model->parallel) {
        Product apart = {output, w->y, w->model->dim, 0};
        multiply_all(worker, &apart, 1, &mixed, w->step->tokens);
    } else
        write_output(worker, &block->around_attention, w, output, &mixed);
    const Norm *norm = &block->around_feed_forward.before;
    Vectors x = prepare_all(worker, w, norm, w->x, w->model->dim, block->feed_forward.inner.inputs);
    feed_forward(worker, block, w, &x);
    if (w->model->parallel) add(worker, &block->around_attention, w);
}

static void write_logits(const Worker *worker, const Work *w) {
    const LmModel *model = w->model;
    const LmStep *step = w->step;
    int length = step->tokens / step->rows, kept = step->last ? step->rows : step->tokens;
    const Prepared last = sized(w->normed, model->output.inputs);
    Range mine = share(worker, kept);
    for (int64_t i = mine.first; i < mine.last; i++) {
        int64_t t = step->last ? (i + 1) * length - 1 : i;
        prepare(&model->final_norm, w->x + t * model->dim, model->dim, &last, i, step->exact);
    }
    barrier(worker);
    Vectors x = vectors_of(&last, 0, step->exact);
    Product output = {&model->output, step->logits, model->output.outputs, 0};
    multiply_all(worker, &output, 1, &x, kept);
    mine = share(worker, model->cap > 0 ? (int64_t)kept * model->output.outputs : 0);
    for (int64_t i = mine.first; i < mine.last; i++) step->logits[i] = model->cap * tanhf(step->logits[i] / model->cap);
}

/* The last layer of which something is seen. */
static int last_seen(const LmStep *step) {
    int last = 0;
    for (int i = 0; i < step->seen_count; i++) last = step->seen[i].layer > last ? step->seen[i].layer : last;
    return last;
}

/* Without logits nothing is computed after the attention of the last layer that is seen. */
static void run(const Worker *worker, void *context) {
    const Work *w = context;
    int layers = w->step->logits ? w->model->layers : last_seen(w->step);
    embed(worker, w);
    for (int layer = 0; layer < layers; layer++) block_step(worker, w, layer);
    if (w->step->logits)
        write_logits(worker, w);
    else
        attention(worker, w->model->blocks + layers, w, layers);
}

/* A new token sees the earlier tokens of its row, the new ones included. */
static TokenView view_of(const Cache *cache, int64_t row, int each, int t) {
    int length = cache->lengths ? cache->lengths[row] : cache->length, place = length - each + t;
    int64_t list = row * cache->stride;
    return (TokenView){list, cache->lists[list + place], place,
                       (cache->firsts ? cache->firsts[row] : cache->first) + place};
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int make_prepared(Prepared *made, int64_t tokens, int64_t in) {
    in = (in + BLOCK - 1) / BLOCK * BLOCK;
    int64_t scales = tokens * (in / BLOCK) * sizeof(BlockScale);
    *made = (Prepared){calloc(tokens * in, sizeof(float)), malloc(tokens * in), malloc(scales), in};
    return made->floats && made->bytes && made->scales;
}

static void free_prepared(Prepared *made) {
    free(made->floats), free(made->bytes), free(made->scales);
}

/* What is wrong with a step, before anything is read by its numbers; 0: nothing. */
static int problem_of(const LmModel *model, const Cache *cache, const LmStep *step) {
    if (step->rows < 1 || step->tokens < step->rows || step->tokens % step->rows) return LM_BAD_ROWS;
    for (int t = 0; t < step->tokens; t++)
        if (step->ids[t] < 0 || step->ids[t] >= model->table.outputs) return LM_BAD_TOKEN;
    for (int64_t row = 0; row < step->rows; row++) {
        int length = cache->lengths ? cache->lengths[row] : cache->length,
            first = cache->firsts ? cache->firsts[row] : cache->first;
        if (length < step->tokens / step->rows || length > cache->length || length > cache->stride)
            return LM_BAD_LENGTH;
        for (int l = 0; l < model->layers; l++)
            if (first < 0 || first + length > model->blocks[l].attention.positions) return LM_BAD_LENGTH;
        for (int i = 0; i < length; i++) {
            int32_t slot = cache->lists[row * cache->stride + i];
            if (slot < 0 || slot >= cache->slots) return LM_BAD_SLOT;
        }
    }
    for (int i = 0; i < step->seen_count; i++) {
        const LmSeen *seen = step->seen + i;
        if (seen->layer < 0 || seen->layer >= model->layers) return LM_BAD_HEAD;
        if (seen->head < 0 || seen->head >= model->blocks[seen->layer].attention.heads) return LM_BAD_HEAD;
    }
    return 0;
}

int EXPORT(lm_step)(const LmModel *model, const Cache *cache, const LmStep *step) {
    int wrong = problem_of(model, cache, step);
    if (wrong) return wrong;
    int64_t N = step->tokens, D = model->dim, Q = 0, K = 0, V = 0, mixed = 0, inner = 0, scores = 0;
    for (int l = 0; l < model->layers; l++) {
        const LmAttention *a = &model->blocks[l].attention;
        Q = most(Q, a->heads * a->key_dim), K = most(K, a->kv_heads * a->key_dim),
        V = most(V, a->kv_heads * a->value_dim);
        mixed = most(mixed, a->heads * a->value_dim), inner = most(inner, model->blocks[l].feed_forward.outer.inputs);
        scores = most(scores, attention_memory(a));
    }
    Work w = {.model = model, .cache = cache, .step = step, .score_size = (scores + 15) / 16 * 16};
    float *floats = malloc(sizeof(float) * (N * (2 * D + Q + K + V) + step->threads * w.score_size));
    w.views = malloc(sizeof(TokenView) * N);
    int ok = make_prepared(&w.normed, most(N, step->threads), most(D, mixed)) & make_prepared(&w.mixed, N, mixed);
    ok &= make_prepared(&w.inner, N, inner) & (floats && w.views);
    if (ok) {
        int each = N / step->rows;
        w.x = floats, w.y = w.x + N * D, w.q = w.y + N * D, w.k = w.q + N * Q, w.v = w.k + N * K,
        w.scores = w.v + N * V;
        for (int t = 0; t < N; t++) w.views[t] = view_of(cache, t / each, each, t % each);
        run_parallel(step->threads, run, &w);
    }
    free(floats), free(w.views), free_prepared(&w.normed), free_prepared(&w.mixed), free_prepared(&w.inner);
    return ok ? 0 : LM_NO_MEMORY;
}

/* --- one matrix --- */

int EXPORT(lm_kind)(int format) {
    return kind_of(format);
}

int64_t EXPORT(lm_panel_bytes)(int kind, int inputs) {
    return panel_bytes(kind, inputs);
}

static void pack_share(const Worker *worker, void *context) {
    const Packing *packing = context;
    Range mine = share(worker, (packing->outputs + LANES - 1) / LANES);
    for (int64_t p = mine.first; p < mine.last; p++) pack_panel(packing, p);
}

void EXPORT(lm_pack)(const uint8_t *rows, int64_t row_bytes, int format, int outputs, int columns, uint8_t *panels,
                     int threads) {
    Packing packing = {rows, panels, row_bytes, format, outputs, columns};
    run_parallel(threads, pack_share, &packing);
}

void EXPORT(lm_product)(const Matrix *matrix, const float *x, int8_t *bytes, BlockScale *scales, float *y, int count) {
    Product product = {matrix, y, matrix->outputs, 0};
    Vectors vectors = {x, bytes, scales};
    for (int64_t t = 0; t < (bytes ? count : 0); t++)
        quantise_vector(x + t * matrix->inputs, matrix->inputs, bytes + t * matrix->inputs,
                        scales + t * (matrix->inputs / BLOCK));
    for (int p = 0; p < panels_of(matrix); p++) product_panel(&product, p, &vectors, count);
}

void EXPORT(lm_row)(const Matrix *matrix, int row, float *into) {
    expand_row(matrix, row, into);
}
