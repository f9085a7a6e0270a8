/* Whole texts: greedy generation or plain beam search, as decode/loop.py and decode/beam.py define them.

   N sentences, K beams, V vocabulary. A row is an open hypothesis of a sentence; a sentence has at most K of them, side
   by side, the best first. The generated tokens are a chain of nodes, which hypotheses share as far as they agree.
                                                                                                                      */

#include "clearhead.h"
#include "embed.h"
#include "threads.h"
#include "vector.h"
#include <stdlib.h>

enum { CHUNK = 512 }; /* tokens of a prompt that are read at once */

typedef struct {
    int32_t parent, token; /* parent -1: the first token after the prompt */
    double logprob;
} Node;

typedef struct {
    int32_t node;
    double score;
} ScoredNode;

typedef struct {
    int32_t row, token;
    double rank, score, logprob;
} Candidate;

typedef struct {
    int32_t sentence, node, token, from; /* from: the row of the last step that it continues */
    double score;
} Row;

typedef struct {
    const Stack *stack;
    const Input *input;
    const SearchSettings *settings;
    Memory memory;
    Cache cache;
    int32_t *lists, *spare;              /* (N K, stride) slots of the rows, and memory for those of the next step */
    int32_t *sentence, *tokens;          /* (N K) of the rows */
    float *x, *logits, *values, *totals; /* values (N K, offers): the largest logits of each row */
    int64_t *indices;                    /* (N K, offers) their tokens */
    Node *nodes;
    ScoredNode *finished, *cut; /* (N, n_best), (N, n_best), the best first */
    int32_t *finished_count, *cut_count;
    Row *rows, *next;
    Candidate *candidates;
    int64_t used, room_of_nodes, count_of_nodes;
    int32_t offers;
} Search;

/* --- memory --- */

static int64_t key_width(const Stack *s) {
    return s->blocks->self.kv_heads * s->blocks->self.key_dim;
}
static int64_t value_width(const Stack *s) {
    return s->blocks->self.kv_heads * s->blocks->self.value_dim;
}

/* (layers, old, width) -> (layers, new, width); NULL if memory ran out. */
static float *more_slots(float *from, int layers, int64_t old, int64_t new, int64_t width) {
    float *into = malloc(sizeof(float) * layers * new * width);
    for (int l = 0; into && from && l < layers; l++)
        memcpy(into + l * new * width, from + l * old * width, sizeof(float) * old * width);
    if (into) free(from);
    return into;
}

static int reserve_slots(Search *s, int64_t needed) {
    Cache *cache = &s->cache;
    int64_t old = cache->slots, new = 2 * old > needed ? 2 * old : needed;
    if (needed <= old) return 1;
    float *keys = more_slots(cache->keys, s->stack->layers, old, new, key_width(s->stack));
    if (!keys) return 0;
    cache->keys = keys;
    float *values = more_slots(cache->values, s->stack->layers, old, new, value_width(s->stack));
    if (!values) return 0;
    cache->values = values, cache->slots = new;
    return 1;
}

static int32_t add_node(Search *s, int32_t parent, int32_t token, double logprob) { /* -1: no memory */
    if (s->count_of_nodes == s->room_of_nodes) {
        Node *more = realloc(s->nodes, sizeof(Node) * 2 * s->room_of_nodes);
        if (!more) return -1;
        s->nodes = more, s->room_of_nodes *= 2;
    }
    s->nodes[s->count_of_nodes] = (Node){parent, token, logprob};
    return s->count_of_nodes++;
}

/* --- one step of all rows --- */

/* The next tokens of each row, (rows, each) -> its logits (rows, V). */
static int read_tokens(Search *s, const int32_t *tokens, int64_t apart, int rows, int each) {
    Cache *cache = &s->cache;
    int D = s->stack->dim, before = cache->length;
    if (!reserve_slots(s, s->used + (int64_t)rows * each)) return 0;
    for (int row = 0; row < rows; row++)
        for (int t = 0; t < each; t++) {
            s->lists[(int64_t)row * cache->stride + before + t] = s->used++;
            embed(s->input, tokens[row * apart + t], before + t, s->x + ((int64_t)row * each + t) * D, D);
        }
    cache->length += each, cache->lists = s->lists;
    const Memory *memory = s->memory.keys ? &s->memory : NULL;
    return EXPORT(step)(s->stack, cache, memory, s->x, s->logits, rows, rows * each, 1, s->settings->threads) == 0;
}

static int read_prompts(Search *s) {
    const SearchSettings *o = s->settings;
    for (int known = 0; known < o->prompt; known += CHUNK) {
        int each = o->prompt - known < CHUNK ? o->prompt - known : CHUNK;
        if (!read_tokens(s, o->prompts + known, o->prompt, o->sentences, each)) return 0;
    }
    return 1;
}

/* Read the new token of each row; its list continues that of the row it comes from. */
static int continue_rows(Search *s, int rows) {
    for (int row = 0; row < rows; row++) {
        int64_t stride = s->cache.stride;
        memcpy(s->spare + row * stride, s->lists + s->rows[row].from * stride, sizeof(int32_t) * s->cache.length);
        s->sentence[row] = s->rows[row].sentence, s->tokens[row] = s->rows[row].token;
    }
    int32_t *old = s->lists;
    s->lists = s->spare, s->spare = old;
    return read_tokens(s, s->tokens, 1, rows, 1);
}

/* --- the best tokens --- */

typedef struct {
    const float *logits;
    float *values, *totals;
    int64_t *indices;
    int rows, size, count;
} Ranking;

enum { SPANS = 1024, SPAN = 64 }; /* spans of a row, at the most; numbers of one, at the least */

/* Put a number where it belongs among the largest found so far, behind its equals; `count` are kept. */
static inline int insert_largest(float x, int64_t i, float *value, int64_t *index, int found, int count) {
    if (found == count && !(x > value[count - 1])) return found;
    int at = found < count ? found++ : count - 1;
    for (; at > 0 && x > value[at - 1]; at--) value[at] = value[at - 1], index[at] = index[at - 1];
    value[at] = x, index[at] = i;
    return found;
}

/* The `count` largest numbers and their places. As many spans have a largest number that is not below the count-th of
   all of those, so nothing below it is looked at. */
static void find_largest(const float *x, int size, int count, float *value, int64_t *index) {
    float highest[SPANS], least = -INFINITY;
    int span = size <= SPANS * SPAN ? SPAN : (size + SPANS - 1) / SPANS, found = 0;
    for (int first = 0, s = 0; first < size; first += span, s++) {
        highest[s] = largest(x + first, first + span < size ? span : size - first);
        found = insert_largest(highest[s], s, value, index, found, count);
    }
    if (found == count) least = value[count - 1];
    found = 0;
    for (int first = 0, s = 0; first < size; first += span, s++) {
        if (highest[s] < least) continue;
        for (int i = first; i < size && i < first + span; i++)
            if (!(x[i] < least)) found = insert_largest(x[i], i, value, index, found, count);
    }
}

enum { TERMS = 1024 }; /* that are added as floats: of a whole row the sum would be too large for its small terms */

static void rank_rows(const Worker *worker, void *context) {
    const Ranking *r = context;
    Range mine = share(worker, r->rows);
    for (int64_t row = mine.first; row < mine.last; row++) {
        const float *x = r->logits + row * r->size;
        float *value = r->values + row * r->count;
        find_largest(x, r->size, r->count, value, r->indices + row * r->count);
        if (!r->totals) continue;
        double sum = 0;
        for (int first = 0; first < r->size; first += TERMS) {
            int last = first + TERMS < r->size ? first + TERMS : r->size;
            float part = 0;
            for (int i = first; i < last; i++) part += exponential(x[i] - value[0]);
            sum += part;
        }
        r->totals[row] = value[0] + logf(sum);
    }
}

void EXPORT(best)(const float *logits, int rows, int size, int count, float *values, int64_t *indices, float *totals,
                  int threads) {
    Ranking ranking = {logits, values, totals, indices, rows, size, count};
    run_parallel(threads, rank_rows, &ranking);
}

/* --- which hypotheses go on, and which are finished --- */

/* Insert into a list of at most `room`, the best first; of equal ones the older stays before. */
static void insert(ScoredNode *list, int32_t *count, int room, ScoredNode new) {
    int at = *count < room ? (*count)++ : room;
    for (; at > 0 && new.score > list[at - 1].score; at--)
        if (at < room) list[at] = list[at - 1];
    if (at < room) list[at] = new;
}

/* The 2K best continuations of some rows of one sentence, the best first. */
static int rank(Search *s, int first, int rows) {
    int limit = 2 * s->settings->beam_width, count = 0;
    Candidate *list = s->candidates;
    for (int row = first; row < first + rows; row++)
        for (int c = 0; c < s->offers; c++) {
            int64_t place = (int64_t)row * s->offers + c;
            double before = s->rows[row].score, logprob = (double)s->values[place] - s->totals[row];
            double rank = before - s->totals[row] + s->values[place];
            if (count == limit && !(rank > list[limit - 1].rank)) break; /* those after it are smaller */
            int at = count < limit ? count++ : limit - 1;
            for (; at > 0 && rank > list[at - 1].rank; at--) list[at] = list[at - 1];
            list[at] = (Candidate){row, s->indices[place], rank, before + logprob, logprob};
        }
    return count;
}

/* Whether enough is finished, and no continuation of an open hypothesis can beat it. */
static int is_beaten(const Search *s, int sentence, double score) {
    const SearchSettings *o = s->settings;
    double bound = score / pow(o->max_tokens[sentence], o->length_penalty);
    return s->finished_count[sentence] >= o->n_best &&
           s->finished[(int64_t)(sentence + 1) * o->n_best - 1].score >= bound;
}

/* Whether nothing is open, or what is finished cannot be beaten. */
static int decided(const Search *s, int sentence, int open, double best) {
    if (!open || (s->settings->beam_width == 1 && s->finished_count[sentence])) return 1;
    return is_beaten(s, sentence, best);
}

/* How many of the open hypotheses go on, the best first. One that is beaten can be left out, and changes nothing: what
   it would have kept out of the beam has a smaller score, and is beaten too. */
static int unbeaten(const Search *s, int sentence, const Row *rows, int open) {
    if (s->settings->length_penalty < 0) return open; /* there a longer text is worse, so this is no bound */
    while (open > 1 && is_beaten(s, sentence, rows[open - 1].score)) open--;
    return open;
}

/* From the logits of some rows of one sentence to the rows that follow them, written to `into`; their number, or -1 if
 * memory ran out. */
static int extend(Search *s, int first, int rows, int length, Row *into) {
    const SearchSettings *o = s->settings;
    int sentence = s->rows[first].sentence, count = rank(s, first, rows), open = 0;
    ScoredNode *finished = s->finished + (int64_t)sentence * o->n_best, *cut = s->cut + (int64_t)sentence * o->n_best;
    double divisor = pow(length, o->length_penalty), best = -INFINITY;
    for (int c = 0; c < count; c++) {
        Candidate each = s->candidates[c];
        int stops = each.token == o->stop;
        if (stops ? c >= o->beam_width : open == o->beam_width) continue;
        int32_t node = add_node(s, s->rows[each.row].node, each.token, each.logprob);
        if (node < 0) return -1;
        if (stops)
            insert(finished, s->finished_count + sentence, o->n_best, (ScoredNode){node, each.score / divisor});
        else
            into[open++] = (Row){sentence, node, each.token, each.row, each.score};
        if (!stops && each.score > best) best = each.score;
    }
    if (decided(s, sentence, open, best)) return 0;
    if (length < o->max_tokens[sentence]) return unbeaten(s, sentence, into, open);
    for (int i = 0; i < open; i++)
        insert(cut, s->cut_count + sentence, o->n_best, (ScoredNode){into[i].node, into[i].score / divisor});
    return 0;
}

/* Extend all open sentences; the number of rows that go on, or -1 if memory ran out. */
static int choose_rows(Search *s, int rows, int length) {
    float *totals = s->settings->scored ? s->totals : NULL; /* they stay 0, which changes no order within a row */
    int size = s->stack->output.outputs, threads = s->settings->threads;
    EXPORT(best)(s->logits, rows, size, s->offers, s->values, s->indices, totals, threads);
    int going = 0;
    for (int first = 0, after; first < rows; first = after) {
        for (after = first; after < rows && s->rows[after].sentence == s->rows[first].sentence;) after++;
        int more = extend(s, first, after - first, length, s->next + going);
        if (more < 0) return -1;
        going += more;
    }
    Row *old = s->rows;
    s->rows = s->next, s->next = old;
    return going;
}

/* --- the whole search --- */

static void write_results(const Search *s, SearchResults *results) {
    int n_best = s->settings->n_best;
    for (int64_t sentence = 0; sentence < s->settings->sentences; sentence++)
        for (int n = 0; n < n_best; n++) {
            int64_t at = sentence * n_best + n;
            int whole = s->finished_count[sentence], length = 0;
            results->lengths[at] = 0;
            if (n >= whole + s->cut_count[sentence]) continue;
            const ScoredNode *found = n < whole ? s->finished + at : s->cut + sentence * n_best + n - whole;
            for (int node = found->node; node >= 0; node = s->nodes[node].parent) length++;
            results->scores[at] = found->score, results->lengths[at] = length;
            for (int node = found->node; node >= 0; node = s->nodes[node].parent) {
                results->tokens[at * results->room + --length] = s->nodes[node].token;
                results->logprobs[at * results->room + length] = s->nodes[node].logprob;
            }
        }
}

static int run(Search *s, SearchResults *results) {
    int rows = s->settings->sentences, length = 0;
    for (int row = 0; row < rows; row++) s->rows[row] = (Row){row, -1, 0, row, 0.0}, s->sentence[row] = row;
    if (!read_prompts(s)) return -1;
    for (;;) {
        rows = choose_rows(s, rows, ++length);
        if (rows < 0) return -1;
        if (rows == 0) break;
        if (!continue_rows(s, rows)) return -1;
    }
    write_results(s, results);
    return length;
}

int EXPORT(search)(const Stack *stack, const Input *input, const Memory *memory, const SearchSettings *settings,
                   SearchResults *results) {
    int64_t N = settings->sentences, K = settings->beam_width, R = N * K, W = settings->n_best,
            prompt = settings->prompt;
    int64_t D = stack->dim, V = stack->output.outputs, stride = prompt + results->room;
    int64_t each = max_int(1, prompt < CHUNK ? prompt : CHUNK), tokens = N * each > R ? N * each : R;
    int64_t offers = V < 2 * K ? V : 2 * K;
    Search s = {stack, input, settings, .offers = offers, .room_of_nodes = 2 * R + 64};
    if (memory) s.memory = *memory;
    s.cache.stride = stride;
    s.lists = malloc(sizeof(int32_t) * R * stride), s.spare = malloc(sizeof(int32_t) * R * stride);
    s.memory.sentence = s.sentence = malloc(sizeof(int32_t) * R);
    s.tokens = malloc(sizeof(int32_t) * R), s.x = malloc(sizeof(float) * tokens * D);
    s.logits = malloc(sizeof(float) * R * V);
    s.values = malloc(sizeof(float) * R * offers), s.totals = calloc(R, sizeof(float));
    s.indices = malloc(sizeof(int64_t) * R * offers), s.nodes = malloc(sizeof(Node) * s.room_of_nodes);
    s.finished = malloc(sizeof(ScoredNode) * N * W), s.cut = malloc(sizeof(ScoredNode) * N * W);
    s.finished_count = calloc(N, sizeof(int32_t)), s.cut_count = calloc(N, sizeof(int32_t));
    s.rows = malloc(sizeof(Row) * R), s.next = malloc(sizeof(Row) * R);
    s.candidates = malloc(sizeof(Candidate) * 2 * K);
    int ok = s.lists && s.spare && s.sentence && s.tokens && s.x && s.logits && s.values && s.totals && s.indices &&
             s.nodes && s.finished && s.cut && s.finished_count && s.cut_count && s.rows && s.next && s.candidates;
    int steps = ok && reserve_slots(&s, N * prompt + 16 * R) ? run(&s, results) : -1;
    void *memory_used[] = {s.lists,    s.spare,      s.sentence,       s.tokens,      s.x,
                           s.logits,   s.values,     s.totals,         s.indices,     s.nodes,
                           s.finished, s.cut,        s.finished_count, s.cut_count,   s.rows,
                           s.next,     s.candidates, s.cache.keys,     s.cache.values};
    for (size_t i = 0; i < sizeof memory_used / sizeof *memory_used; i++) free(memory_used[i]);
    return steps;
}
