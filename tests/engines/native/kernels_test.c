/* Native code under AddressSanitizer and UBSan: every array is exactly as large as it must be, so whatever is read or
   written beyond one ends the program. Products and sums are compared with their definition, a greedy search with its
   steps, and texts together with each alone. test_sanitizers.py compiles and runs it once for each variant.          */

#include "expect.h"
#include "linear.h"

static float *random_floats(int64_t count) {
    float *made = malloc(sizeof(float) * count);
    for (int64_t i = 0; i < count; i++) made[i] = uniform();
    return made;
}

/* --- products --- */

static int64_t padded(int outputs) {
    return (outputs + PANEL - 1) / PANEL * (int64_t)PANEL;
}

/* A byte beside the one before it: two that share 16 bits are at most 128 together if they have one sign, and some are
   exactly that. */
static int random_byte(int before) {
    int whole = (int)(127.99 * uniform()), most = 128 - abs(before);
    return whole * before > 0 && abs(whole) > most ? (whole > 0 ? most : -most) : whole;
}

/* A random matrix in panels, as layout.py packs it; `weights` (outputs, inputs) is what it stands for. */
static Linear make_linear(int inputs, int outputs, int bytes, float *weights) {
    int64_t group = bytes ? GROUP : 1, wide = (inputs + group - 1) / group * group, rows = padded(outputs);
    float *panels = calloc(rows * wide, sizeof(float)), *sums = calloc(rows, sizeof(float));
    int8_t *small = calloc(rows * wide, 1);
    Linear made = {NULL, random_floats(rows), random_floats(rows), sums, inputs, outputs, bytes};
    for (int64_t o = 0, whole; o < outputs; o++)
        for (int64_t i = 0; i < inputs; i++) {
            int64_t at = o / PANEL * PANEL * wide + (i / group * PANEL + o % PANEL) * group + i % group;
            whole = random_byte(i % 2 ? whole : 0);
            weights[o * inputs + i] = bytes ? whole * made.scales[o] : (panels[at] = uniform());
            small[at] = whole, sums[o] += whole;
        }
    made.panels = bytes ? (void *)small : (void *)panels;
    free(bytes ? (void *)panels : (void *)small);
    return made;
}

static void free_linear(Linear *f) {
    free((void *)f->panels), free((void *)f->scales), free((void *)f->bias), free((void *)f->sums);
}

typedef struct {
    const Linear *f;
    const float *x;
    float *y;
    Quantized quantized;
    int tokens;
} Product;

static void multiply(const Worker *worker, void *context) {
    Product *p = context;
    quantize_tokens(worker, p->f, p->x, &p->quantized, p->tokens);
    barrier(worker);
    linear(worker, p->f, p->x, &p->quantized, p->y, p->tokens);
}

static void check_product(int inputs, int outputs, int tokens, int bytes, int threads) {
    float *weights = malloc(sizeof(float) * inputs * outputs);
    Linear f = make_linear(inputs, outputs, bytes, weights);
    Product p = {&f, random_floats((int64_t)tokens * inputs), random_floats((int64_t)tokens * outputs), {0}, tokens};
    for (int i = 0; i < inputs; i++) ((float *)p.x)[i] = 1.0f; /* the largest byte everywhere */
    expect(make_quantized(&p.quantized, tokens, inputs), "memory");
    run_parallel(threads, multiply, &p);
    for (int t = 0; t < tokens; t++)
        for (int o = 0; o < outputs; o++) {
            double sum = f.bias[o], near = 1e-4 * inputs;
            for (int i = 0; i < inputs; i++) {
                double product = (double)p.x[t * inputs + i] * weights[o * inputs + i];
                sum += product, near += bytes && GROUP > 1 ? fabs(weights[o * inputs + i]) / 254 : 0;
            }
            expect(fabs(sum - p.y[t * outputs + o]) <= near, bytes ? "a product of bytes" : "a product of floats");
        }
    free(weights), free((void *)p.x), free(p.y), free_quantized(&p.quantized), free_linear(&f);
}

/* --- what attention adds --- */

/* Numbers as a cache keeps them, which become what they stand for. */
static char *kept_numbers(float *x, int64_t count, int halves) {
    char *kept = malloc(count * number_size(halves));
    if (!halves) return memcpy(kept, x, sizeof(float) * count);
    store_halves(kept, x, count);
    for (int64_t i = 0; i < count; i++) {
        float old = x[i];
        x[i] = half_at(kept + 2 * i);
        expect(fabs(x[i] - old) <= fabs(old) / 2048 + 1e-7, "a float16");
    }
    return kept;
}

static void check_dots(int size, int halves) {
    float *a = random_floats(size), *others[8];
    char *kept[8];
    for (int n = 0; n < 8; n++) others[n] = random_floats(size), kept[n] = kept_numbers(others[n], size, halves);
    vec8 found =
        halves ? dot_eight(1, a, (const char *const *)kept, size) : dot_eight(0, a, (const char *const *)kept, size);
    for (int n = 0; n < 8; n++) {
        double expected = 0;
        for (int i = 0; i < size; i++) expected += (double)a[i] * others[n][i];
        expect(fabs(found[n] - expected) < 1e-5, "one of eight dot products");
        free(others[n]), free(kept[n]);
    }
    free(a);
}

static void check_mix(int size, int count, int halves) {
    int64_t apart = size + 3, last = 2 * count - 1, numbers = count ? last * apart + size : 0;
    float *x = random_floats(numbers), *weights = random_floats(count);
    float *y = random_floats(size);
    char *kept = kept_numbers(x, numbers, halves);
    int32_t *list = malloc(sizeof(int32_t) * count);
    for (int j = 0; j < count; j++) list[j] = last - 5 * j % (2 * count);
    if (halves)
        mix(1, kept, apart, list, weights, count, y, size);
    else
        mix(0, kept, apart, list, weights, count, y, size);
    for (int i = 0; i < size; i++) {
        double expected = 0;
        for (int j = 0; j < count; j++) expected += (double)weights[j] * x[list[j] * apart + i];
        expect(fabs(y[i] - expected) < 1e-5, "a mix of rows");
    }
    free(x), free(weights), free(y), free(list), free(kept);
}

/* --- a language model --- */

enum { D = 12, HEADS = 3, KV_HEADS = 1, KEY = 5, VALUE = 7, INNER = 29, LAYERS = 2, VOCABULARY = 37 };

typedef struct {
    Block blocks[LAYERS];
    Stack stack;
    Input input;
} Model;

static Linear any_linear(int inputs, int outputs, int bytes) {
    float *weights = malloc(sizeof(float) * inputs * outputs);
    Linear made = make_linear(inputs, outputs, bytes, weights);
    for (int64_t o = 0; o < padded(outputs); o++) ((float *)made.scales)[o] = 0.003f;
    free(weights);
    return made;
}

static Norm any_norm(void) {
    return (Norm){random_floats(D), random_floats(D), 1e-5f, LAYER_NORM};
}

static void make_model(Model *m, int bytes, int room) {
    memset(m, 0, sizeof *m);
    for (int l = 0; l < LAYERS; l++) {
        Block *b = m->blocks + l;
        b->residual_self.before = any_norm(), b->residual_feed_forward.after = any_norm();
        b->self.project = any_linear(D, HEADS * KEY + KV_HEADS * (KEY + VALUE), bytes);
        b->self.output = any_linear(HEADS * VALUE, D, bytes);
        b->self.bias = random_floats(HEADS * (2 * room - 1)), b->self.positions = room;
        b->self.heads = HEADS, b->self.kv_heads = KV_HEADS, b->self.key_dim = KEY, b->self.value_dim = VALUE;
        b->self.scale = 0.5f;
        b->feed_forward = (FeedForward){any_linear(D, INNER, bytes), any_linear(D, INNER, bytes),
                                        any_linear(INNER, D, bytes), SWIGLU};
    }
    m->stack = (Stack){m->blocks, any_norm(), any_linear(D, VOCABULARY, bytes), LAYERS, D};
    m->input = (Input){random_floats(VOCABULARY * D), random_floats(room * D), 2.0f};
}

static void free_model(Model *m) {
    for (int l = 0; l < LAYERS; l++) {
        Block *b = m->blocks + l;
        Norm norms[] = {b->residual_self.before, b->residual_feed_forward.after};
        Linear *linears[] = {&b->self.project, &b->self.output, &b->feed_forward.inner, &b->feed_forward.gate,
                             &b->feed_forward.outer};
        for (int i = 0; i < 2; i++) free((void *)norms[i].gain), free((void *)norms[i].shift);
        for (int i = 0; i < 5; i++) free_linear(linears[i]);
        free((void *)b->self.bias);
    }
    free((void *)m->stack.final_norm.gain), free((void *)m->stack.final_norm.shift);
    free_linear(&m->stack.output), free((void *)m->input.table), free((void *)m->input.positions);
}

/* The most likely continuation of a prompt, by steps. */
static void generate(const Model *m, const int32_t *prompt, int length, int new, int format, int32_t *found) {
    int room = length + new;
    int64_t slots = LAYERS * room * KV_HEADS * number_size(format == CACHE_HALF);
    void *keys = malloc(slots * KEY), *values = malloc(slots * VALUE);
    int32_t *list = malloc(sizeof(int32_t) * room);
    float *x = malloc(sizeof(float) * length * D), *logits = malloc(sizeof(float) * VOCABULARY);
    for (int i = 0; i < room; i++) list[i] = room - 1 - i; /* slots may be in any order */
    for (int done = 0, each = length; done - length + 1 <= new - 1 || !done; each = 1) {
        for (int t = 0; t < each; t++) {
            const float *row = m->input.table + (done ? found[done - length] : prompt[t]) * D;
            for (int i = 0; i < D; i++) x[t * D + i] = row[i] * 2.0f + m->input.positions[(done + t) * D + i];
        }
        done += each;
        Cache cache = {keys, values, list, NULL, NULL, room, done, room, 0, 0, format};
        expect(EXPORT(step)(&m->stack, &cache, NULL, x, logits, 1, each, 1, 1) == 0, "a step");
        int best = 0;
        for (int i = 1; i < VOCABULARY; i++) best = logits[i] > logits[best] ? i : best;
        found[done - length] = best;
    }
    free(keys), free(values), free(list), free(x), free(logits);
}

static void check_search(int bytes, int beams, int threads) {
    enum { N = 3, PROMPT = 5, NEW = 11, STOP = -1 };
    Model m;
    make_model(&m, bytes, PROMPT + NEW);
    int32_t prompts[N * PROMPT], limits[N], expected[NEW];
    for (int i = 0; i < N * PROMPT; i++) prompts[i] = (7 * i + 3) % VOCABULARY;
    for (int i = 0; i < N; i++) limits[i] = NEW - 3 * i;
    int32_t *tokens = malloc(sizeof(int32_t) * N * NEW), *lengths = malloc(sizeof(int32_t) * N);
    double *logprobs = malloc(sizeof(double) * N * NEW), *scores = malloc(sizeof(double) * N);
    SearchSettings settings = {prompts, limits, 1.0, N, PROMPT, beams, 1, STOP, threads, beams > 1};
    SearchResults results = {tokens, logprobs, scores, lengths, NEW};
    expect(EXPORT(search)(&m.stack, &m.input, NULL, &settings, &results) == NEW, "the steps of a search");
    for (int i = 0; i < N; i++) {
        expect(lengths[i] == limits[i], "the length of a text");
        generate(&m, prompts + i * PROMPT, PROMPT, limits[i], CACHE_FLOAT, expected);
        if (beams == 1) expect(!memcmp(expected, tokens + i * NEW, sizeof(int32_t) * limits[i]), "a greedy text");
        generate(&m, prompts + i * PROMPT, PROMPT, limits[i], CACHE_HALF, expected);
        for (int t = 0; t < limits[i]; t++) expect(expected[t] >= 0 && expected[t] < VOCABULARY, "a token");
    }
    free(tokens), free(lengths), free(logprobs), free(scores), free_model(&m);
}

/* Many texts end to end, in parts and threads, have the states that each has by itself. */
static void check_texts(int bytes, int causal, int threads) {
    enum { TEXTS = 61, LONGEST = 23 };
    Model m;
    int32_t begins[TEXTS + 1] = {0};
    make_model(&m, bytes, LONGEST);
    for (int i = 0; i < TEXTS; i++) begins[i + 1] = begins[i] + 1 + 7 * i % LONGEST;
    size_t size = sizeof(float) * begins[TEXTS] * D;
    float *alone = random_floats((int64_t)begins[TEXTS] * D), *together = malloc(size);
    memcpy(together, alone, size);
    expect(EXPORT(encode)(&m.stack, together, begins, TEXTS, causal, threads) == 0, "texts together");
    for (int i = 0; i < TEXTS; i++) {
        int32_t own[] = {0, begins[i + 1] - begins[i]};
        expect(EXPORT(encode)(&m.stack, alone + begins[i] * D, own, 1, causal, 1) == 0, "a text alone");
    }
    expect(!memcmp(alone, together, size), "the states of a text do not depend on its neighbours");
    free(alone), free(together), free_model(&m);
}

int main(void) {
    for (int size = 1; size < 140; size++) {
        for (int halves = 0; halves < 2; halves++) {
            check_dots(size, halves);
            for (int count = 0; count < 12; count++) check_mix(size, count, halves);
        }
    }
    int inputs[] = {1, 7, 33}, outputs[] = {1, 19, 67}, tokens[] = {1, 5, 13, 29};
    for (int bytes = 0; bytes < 2; bytes++)
        for (int threads = 1; threads < 4; threads++) {
            for (int i = 0; i < 3; i++)
                for (int o = 0; o < 3; o++)
                    for (int t = 0; t < 4; t++) check_product(inputs[i], outputs[o], tokens[t], bytes, threads);
            check_search(bytes, 1, threads), check_search(bytes, 3, threads);
            check_texts(bytes, 0, threads), check_texts(bytes, 1, threads);
        }
    return 0;
}
