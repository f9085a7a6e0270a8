/* Tokens chosen from memory that is exactly as large as it must be, with settings, texts and numbers of every kind. */

#include "expect.h"
#include "sample.h"
#include <math.h>

static int32_t *copy(const int32_t *from, int count) {
    int32_t *own = malloc(sizeof(int32_t) * count);
    for (int i = 0; i < count; i++) own[i] = from[i];
    return own;
}

static void check(int size, int rows) {
    float *logits = malloc(sizeof(float) * rows * size);
    Choice *choices = calloc(rows, sizeof(Choice));
    RowText *texts = calloc(rows, sizeof(RowText));
    double *uniforms = malloc(sizeof(double) * rows), *logprobs = malloc(sizeof(double) * 2 * rows);
    int32_t *tokens = malloc(sizeof(int32_t) * rows), *banned = copy((int32_t[]){0, size + 9, -3}, 3);
    int32_t *so_far = copy((int32_t[]){0, 0, size - 1, size, 0, -1, 0}, 7);
    for (int i = 0; i < rows * size; i++) logits[i] = (float)((i * 7919) % 101) / 17 - 3;
    for (int row = 0; row < rows; row++) {
        double temperature = row % 3 * 0.7, top_p = row % 4 ? 1 : 0.6, min_p = row % 5 ? 0 : 0.2;
        int top_k = row % 6 ? row : 0, ngram = row % 4;
        choices[row] = (Choice){.temperature = temperature, .top_p = top_p, .min_p = min_p, .top_k = top_k};
        choices[row].banned = banned, choices[row].banned_count = row % 2 * 3, choices[row].no_repeat_ngram = ngram;
        choices[row].repetition_penalty = row % 2 ? 1 : 1.7f;
        choices[row].presence_penalty = row % 3 * 0.5f, choices[row].frequency_penalty = row % 7 * 0.25f;
        texts[row] = (RowText){.tokens = so_far, .count = row % 8, .prompt = row % 5};
        texts[row].forced = row % 9 ? -1 : row * size;
        uniforms[row] = (double)row / rows;
    }
    if (rows > 4) logits[4 * size] = NAN, logits[3 * size] = -INFINITY, logits[2 * size] = INFINITY;
    Sampling call = {logits, choices, texts, uniforms, tokens, logprobs, rows, size};
    expect(EXPORT(sample)(&call) == 0, "the memory");
    for (int row = 0; row < rows; row++) expect(tokens[row] >= 0 && tokens[row] < size, "a token");
    call.texts = NULL, call.logprobs = NULL;
    expect(EXPORT(sample)(&call) == 0, "the memory without texts");
    for (int row = 0; row < rows; row++) expect(tokens[row] >= 0 && tokens[row] < size, "a token without a text");
    free(logits), free(choices), free(texts), free(uniforms), free(logprobs), free(tokens), free(banned), free(so_far);
}

int main(void) {
    int sizes[] = {1, 2, 17, 331};
    for (int s = 0; s < 4; s++)
        for (int rows = 0; rows < 41; rows += 8) check(sizes[s], rows);
    return 0;
}
