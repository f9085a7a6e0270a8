/* Quantised language models under AddressSanitizer and UBSan: every array is exactly as large as it must be. Products
   are compared with the rows of their matrix, steps of one token with one step of all, and each kind of cache with
   floats; a step that native code could not read is refused. test_sanitizers.py compiles and runs it once for each
   variant.   */

#include "expect.h"
#include "lm.h"
#include <math.h>

enum { D = 45, HEADS = 4, KV_HEADS = 2, KEY = 10, VALUE = 37, INNER = 83, LAYERS = 2, VOCABULARY = 53, ROOM = 23 };
enum { KINDS_OF_CACHE = 3 };

static void *kept[512]; /* freed at the end of a check */
static int kept_count = 0;

static void *keep(void *memory) {
    expect(kept_count < 512, "room for what is kept");
    return kept[kept_count++] = memory;
}

static void free_all(void) {
    while (kept_count) free(kept[--kept_count]);
}

static float *random_floats(int64_t count) {
    float *made = keep(malloc(sizeof(float) * count));
    for (int64_t i = 0; i < count; i++) made[i] = uniform();
    return made;
}

/* --- matrices --- */

static const struct {
    int format, bytes, weights; /* of a block */
} FORMATS[] = {{GGUF_F32, 4, 1},      {GGUF_F16, 2, 1},      {GGUF_BF16, 2, 1},    {GGUF_Q4_0, 18, 32},
               {GGUF_Q4_1, 20, 32},   {GGUF_Q5_0, 22, 32},   {GGUF_Q5_1, 24, 32},  {GGUF_Q8_0, 34, 32},
               {GGUF_Q4_K, 144, 256}, {GGUF_Q5_K, 176, 256}, {GGUF_Q6_K, 210, 256}};
enum { FORMAT_COUNT = sizeof FORMATS / sizeof *FORMATS };

/* Random rows whose float16 numbers are small: no byte of them is the upper one of a large number. */
static Matrix make_matrix(int number, int inputs, int outputs, int biased) {
    int blocks = inputs / FORMATS[number].weights, format = FORMATS[number].format;
    int64_t row_bytes = (int64_t)blocks * FORMATS[number].bytes, padded = (inputs + BLOCK - 1) / BLOCK * BLOCK;
    uint8_t *rows = keep(malloc(row_bytes * outputs));
    for (int64_t i = 0; i < row_bytes * outputs; i++) rows[i] = (uint8_t)(32 + 5 * uniform());
    for (int64_t i = 0; format == GGUF_F32 && i < (int64_t)inputs * outputs; i++) {
        float x = 0.3f * uniform();
        memcpy(rows + 4 * i, &x, 4);
    }
    int kind = EXPORT(lm_kind)(format);
    int64_t stride = EXPORT(lm_panel_bytes)(kind, padded), panels = (outputs + LANES - 1) / LANES;
    uint8_t *packed = keep(calloc(panels, stride));
    EXPORT(lm_pack)(rows, row_bytes, format, outputs, inputs, packed, 2);
    return (Matrix){packed, biased ? random_floats(panels * LANES) : NULL, stride, padded, outputs, kind};
}

static void check_product(int number, int blocks, int outputs, int count) {
    int inputs = FORMATS[number].weights == 1 ? 33 * blocks : blocks * FORMATS[number].weights;
    Matrix matrix = make_matrix(number, inputs, outputs, 1);
    float *x = random_floats((int64_t)count * matrix.inputs), *y = random_floats((int64_t)count * outputs);
    float *row = random_floats(matrix.inputs);
    int8_t *bytes = keep(malloc((int64_t)count * matrix.inputs));
    BlockScale *scales = keep(malloc(sizeof(BlockScale) * count * (matrix.inputs / BLOCK)));
    for (int exact = 0; exact < 2; exact++) {
        EXPORT(lm_product)(&matrix, x, exact ? NULL : bytes, exact ? NULL : scales, y, count);
        for (int o = 0; o < outputs; o++) {
            EXPORT(lm_row)(&matrix, o, row);
            for (int t = 0; t < count; t++) {
                double sum = matrix.bias[o], near = 1e-5;
                for (int i = 0; i < matrix.inputs; i++) {
                    sum += (double)x[t * matrix.inputs + i] * row[i];
                    near += fabs(row[i]) * (exact ? 1e-5 : 1.0 / 200);
                }
                expect(fabs(sum - y[t * outputs + o]) <= near, "a product");
            }
        }
    }
    free_all();
}

/* --- a model --- */

static LmBlock blocks[LAYERS];

static Norm any_norm(int size) {
    return (Norm){random_floats(size), random_floats(size), 1e-5f, LAYER_NORM};
}

static LmModel make_model(int bias) {
    for (int l = 0; l < LAYERS; l++) {
        LmAttention a = {.heads = HEADS, .kv_heads = KV_HEADS, .key_dim = KEY, .value_dim = VALUE, .positions = ROOM};
        a.query = make_matrix(0, D, HEADS * KEY, 1), a.key = make_matrix(0, D, KV_HEADS * KEY, 0);
        a.value = make_matrix(0, D, KV_HEADS * VALUE, 1), a.output = make_matrix(0, HEADS * VALUE, D, 0);
        a.query_norm = any_norm(KEY), a.key_norm = any_norm(KEY);
        if (bias)
            a.bias = random_floats(HEADS * (2 * ROOM - 1));
        else
            a.sin = random_floats(ROOM * 3), a.cos = random_floats(ROOM * 3), a.rotated = 6;
        a.window = l ? 7 : 0, a.scale = 0.3f, a.cap = bias ? 5.0f : 0;
        LmFeedForward f = {make_matrix(0, D, INNER, 1), make_matrix(0, D, INNER, 0), make_matrix(0, INNER, D, 1),
                           ACT_SILU};
        blocks[l] = (LmBlock){{.before = any_norm(D)}, {.before = any_norm(D), .after = any_norm(D)}, a, f};
    }
    Matrix table = make_matrix(0, D, VOCABULARY, 0);
    return (LmModel){blocks, any_norm(D), table, table, random_floats(ROOM * D), 1.5f, 0, LAYERS, D, 0};
}

typedef struct {
    Cache cache;
    int32_t *lists;
} Store;

/* An empty cache of exactly as many slots as all rows need, in an order of its own. */
static Store make_store(int format, int rows) {
    static const int64_t EACH[] = {4, 2, 1}, MORE[] = {0, 0, 4};
    int64_t slots = rows * ROOM;
    void *keys = keep(malloc(LAYERS * slots * KV_HEADS * (KEY * EACH[format] + MORE[format])));
    void *values = keep(malloc(LAYERS * slots * KV_HEADS * (VALUE * EACH[format] + MORE[format])));
    int32_t *lists = keep(malloc(sizeof(int32_t) * slots));
    for (int i = 0; i < slots; i++) lists[i] = slots - 1 - i;
    return (Store){{keys, values, lists, NULL, NULL, slots, 0, ROOM, 0, 0, format}, lists};
}

static void read_all(const LmModel *model, int format, int rows, int each, int threads, const int32_t *ids,
                     float *logits, LmSeen *seen) {
    Store store = make_store(format, rows);
    float *some = random_floats((int64_t)rows * each * VOCABULARY);
    int32_t *part = keep(malloc(sizeof(int32_t) * rows * each));
    for (int done = 0; done < ROOM;) {
        int now = ROOM - done < each ? ROOM - done : each;
        for (int row = 0; row < rows; row++) memcpy(part + row * now, ids + row * ROOM + done, sizeof(int32_t) * now);
        done += now, store.cache.length = done;
        LmSeen one = {1, HEADS - 1, random_floats((int64_t)rows * now * done)};
        LmStep step = {part, some, &one, rows, rows * now, 0, 1, 1, threads};
        expect(EXPORT(lm_step)(model, &store.cache, &step) == 0, "a step");
        for (int row = 0; row < rows; row++)
            memcpy(logits + ((int64_t)row * ROOM + done - now) * VOCABULARY, some + (int64_t)row * now * VOCABULARY,
                   sizeof(float) * now * VOCABULARY);
        *seen = one;
    }
}

static void check_model(int bias, int threads) {
    enum { ROWS = 3 };
    static const float NEAR[KINDS_OF_CACHE] = {2e-4f, 2e-2f, 0.3f};
    LmModel model = make_model(bias);
    int32_t *ids = keep(malloc(sizeof(int32_t) * ROWS * ROOM));
    for (int i = 0; i < ROWS * ROOM; i++) ids[i] = (11 * i + 5) % VOCABULARY;
    float *whole = random_floats(ROWS * ROOM * VOCABULARY), *parts = random_floats(ROWS * ROOM * VOCABULARY);
    LmSeen seen, last;
    read_all(&model, CACHE_FLOAT, ROWS, ROOM, threads, ids, whole, &seen);
    float sum = 0;
    for (int i = 0; i < ROOM; i++) sum += seen.weights[(ROOM - 1) * ROOM + i];
    expect(fabsf(sum - 1) < 1e-4f, "weights that sum to 1");
    for (int format = 0; format < KINDS_OF_CACHE; format++)
        for (int each = 1; each < 18; each += 8) {
            read_all(&model, format, ROWS, each, threads, ids, parts, &last);
            for (int i = 0; i < ROWS * ROOM * VOCABULARY; i++)
                expect(fabsf(whole[i] - parts[i]) < NEAR[format] * (1 + fabsf(whole[i])), "logits of parts");
        }
    free_all();
}

static int outcome(const LmModel *model, Cache cache, const int32_t *ids, int rows, int tokens, LmSeen seen) {
    float *logits = random_floats(tokens * VOCABULARY + 1);
    LmStep step = {ids, logits, &seen, rows, tokens, 0, 0, 1, 1};
    return EXPORT(lm_step)(model, &cache, &step);
}

static void check_refusals(void) {
    LmModel model = make_model(0);
    Store store = make_store(CACHE_HALF, 2);
    int32_t ids[] = {1, 2, 3, 4}, wrong[] = {1, VOCABULARY}, negative[] = {-1, 2};
    LmSeen seen = {0, 0, random_floats(4 * ROOM)};
    Cache cache = store.cache, longer = store.cache, elsewhere = store.cache;
    cache.length = 2;
    expect(outcome(&model, cache, ids, 2, 4, seen) == 0, "a good step");
    LmStep only_seen = {ids, NULL, &seen, 2, 4, 0, 0, 1, 1};
    expect(EXPORT(lm_step)(&model, &cache, &only_seen) == 0, "a step without logits");
    expect(outcome(&model, cache, ids, 0, 0, seen) == LM_BAD_ROWS, "no rows");
    expect(outcome(&model, cache, ids, 2, 3, seen) == LM_BAD_ROWS, "unequal rows");
    expect(outcome(&model, cache, wrong, 1, 2, seen) == LM_BAD_TOKEN, "a token too high");
    expect(outcome(&model, cache, negative, 1, 2, seen) == LM_BAD_TOKEN, "a token below zero");
    longer.length = ROOM + 1, longer.stride = ROOM + 1;
    expect(outcome(&model, longer, ids, 1, 1, seen) == LM_BAD_LENGTH, "more positions than there are");
    cache.first = ROOM - 1;
    expect(outcome(&model, cache, ids, 1, 2, seen) == LM_BAD_LENGTH, "a position past the table");
    cache.first = 0, cache.length = 1;
    expect(outcome(&model, cache, ids, 1, 2, seen) == LM_BAD_LENGTH, "fewer slots than tokens");
    elsewhere.length = 2, store.lists[1] = 2 * ROOM;
    expect(outcome(&model, elsewhere, ids, 1, 1, seen) == LM_BAD_SLOT, "a slot that is not there");
    store.lists[1] = 0, seen.head = HEADS;
    expect(outcome(&model, elsewhere, ids, 1, 1, seen) == LM_BAD_HEAD, "a head that is not there");
    free_all();
}

int main(void) {
    int outputs[] = {1, 19, 33}, counts[] = {1, 5, 17};
    for (int number = 0; number < FORMAT_COUNT; number++)
        for (int i = 0; i < 3; i++) check_product(number, 1 + i, outputs[i], counts[i]);
    for (int threads = 1; threads < 4; threads++) check_model(0, threads), check_model(1, threads);
    check_refusals();
    return 0;
}
