/* Attention of short sequences under AddressSanitizer and UBSan, compared with its definition. Two sums of products
   belong to its gradients: Σ q dq = Σ k dk, since a score is a product of both, and Σ v dv = Σ out dout.             */

#include "clearhead.h"
#include "expect.h"
#include <math.h>

static HeadVectors random_vectors(int rows, int heads, int tokens, int size) {
    int64_t count = (int64_t)rows * heads * tokens * size;
    float *made = malloc(sizeof(float) * count);
    for (int64_t i = 0; i < count; i++) made[i] = uniform();
    return (HeadVectors){made, (int64_t)tokens * heads * size, size, (int64_t)heads * size};
}

static const float *vector_of(const HeadVectors *x, int row, int head, int token) {
    return x->numbers + row * x->batch + head * x->head + token * x->token;
}

static double product_of(const float *a, const float *b, int size) {
    double sum = 0;
    for (int i = 0; i < size; i++) sum += (double)a[i] * b[i];
    return sum;
}

static double all_products(const HeadVectors *a, const HeadVectors *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)a->numbers[i] * b->numbers[i];
    return sum;
}

static int sees(const ShortAttention *a, int row, int query, int key) {
    if (a->causal && key > query) return 0;
    return !a->visible || a->visible[row * a->batch + query * a->query + key * a->key];
}

static void check_head(const ShortAttention *a, const HeadVectors *x, int row, int head, int query) {
    int own = head / (a->heads / a->kv_heads);
    const float *q = vector_of(x, row, head, query);
    double sum = 0, weights[97];
    for (int s = 0; s < a->keys; s++) {
        double score = a->scale * product_of(q, vector_of(x + 1, row, own, s), a->key_dim);
        sum += weights[s] = sees(a, row, query, s) ? exp(score) : 0;
    }
    for (int i = 0; i < a->value_dim; i++) {
        double mixed = 0;
        for (int s = 0; sum > 0 && s < a->keys; s++) mixed += weights[s] / sum * vector_of(x + 2, row, own, s)[i];
        expect(fabs(mixed - vector_of(x + 3, row, head, query)[i]) < 1e-5, "attention of a short sequence");
    }
}

static void check(int rows, int group, int queries, int keys, int key_dim, int value_dim, int hidden, int causal) {
    int G = 2, H = G * group;
    uint8_t *visible = malloc((int64_t)rows * keys);
    for (int i = 0; i < rows * keys; i++) visible[i] = uniform() > -0.4f;
    ShortAttention a = {
        hidden ? visible : NULL, keys, 0, 1, rows, H, G, queries, keys, key_dim, value_dim, causal, 0.7f};
    HeadVectors x[4] = {random_vectors(rows, H, queries, key_dim), random_vectors(rows, G, keys, key_dim),
                        random_vectors(rows, G, keys, value_dim), random_vectors(rows, H, queries, value_dim)};
    HeadVectors upstream = random_vectors(rows, H, queries, value_dim);
    HeadVectors found[3] = {random_vectors(rows, H, queries, key_dim), random_vectors(rows, G, keys, key_dim),
                            random_vectors(rows, G, keys, value_dim)};
    float *weights = malloc(sizeof(float) * rows * H * queries * EXPORT(short_stride)(keys));
    expect(EXPORT(short_forward)(&a, x, x + 1, x + 2, x + 3, weights) == 0, "memory");
    for (int b = 0; b < rows; b++)
        for (int h = 0; h < H; h++)
            for (int t = 0; t < queries; t++) check_head(&a, x, b, h, t);
    expect(EXPORT(short_backward)(&a, x, x + 1, x + 2, &upstream, weights, found, found + 1, found + 2) == 0, "memory");
    int64_t each = rows * H * queries, others = rows * G * keys;
    double by_queries = all_products(x, found, each * key_dim);
    double by_keys = all_products(x + 1, found + 1, others * key_dim);
    double by_values = all_products(x + 2, found + 2, others * value_dim);
    double by_outputs = all_products(x + 3, &upstream, each * value_dim);
    expect(fabs(by_queries - by_keys) < 1e-3, "gradients of queries and keys");
    expect(fabs(by_values - by_outputs) < 1e-3, "gradients of values");
    for (int i = 0; i < 4; i++) free(x[i].numbers);
    for (int i = 0; i < 3; i++) free(found[i].numbers);
    free(upstream.numbers), free(weights), free(visible);
}

int main(void) {
    int sizes[] = {1, 5, 16, 23, 37, 64};
    for (int q = 0; q < 6; q++)
        for (int k = 0; k < 6; k++)
            for (int hidden = 0; hidden < 2; hidden++) {
                check(3, 1, sizes[q], sizes[k], 8, 19, hidden, 0);
                check(2, 3, sizes[q], sizes[k], 33, 7, hidden, 1);
            }
    return 0;
}
