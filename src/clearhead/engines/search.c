/* Whole texts: the likeliest tokens, or plain beam search, as decode/writing.py and decode/beam.py define them.

   N sentences, K beams, V vocabulary. A row is an open beginning of a sentence; a sentence has at most K of them, side
   by side, and the best stands first. What was written is a chain of nodes, which beginnings share as far as they agree.

   Goes on after step.c, in the same file for the compiler.                                                              */

enum { CHUNK = 512 }; /* tokens of a prompt that are read at once */

typedef struct {
    const int32_t *prompts;                     /* (N, prompt) */
    const int32_t *longest;                     /* (N,) tokens that may be written, at least one */
    double penalty;                             /* score = sum / length^penalty */
    int32_t sentences, prompt, beams, wanted, stop, threads;
} Order;

typedef struct {
    int32_t *tokens;                            /* (N, wanted, room), the stop included */
    double *own;                                /* (N, wanted, room) the log-probability of each */
    double *scores;                             /* (N, wanted) */
    int32_t *lengths;                           /* (N, wanted) tokens; 0: there is no such text */
    int32_t room;
} Texts;

typedef struct {
    int32_t parent, token;                      /* parent -1: the prompt is before it */
    double own;
} Node;

typedef struct {
    int32_t node;
    double score;
} Found;

typedef struct {
    int32_t row, token;
    double rank, score, own;
} Candidate;

typedef struct {
    int32_t sentence, node, token, from;        /* from: the row of the last step that it goes on from */
    double score;
} Row;

typedef struct {
    const Stack *stack;
    const Input *input;
    const Order *order;
    Memory memory;
    Past past;
    int32_t *lists, *spare;                     /* (N K, stride) of the rows, and room for those of the next step */
    int32_t *sentence, *tokens;                 /* (N K) of the rows */
    float *x, *logits, *values, *totals;        /* values (N K, offers): the largest logits of each row */
    int64_t *places;                            /* (N K, offers) their tokens */
    Node *nodes;
    Found *finished, *cut;                      /* (N, wanted), (N, wanted), the best first */
    int32_t *finished_count, *cut_count;
    Row *rows, *next;
    Candidate *candidates;
    int64_t used, room_of_nodes, count_of_nodes;
    int32_t offers;
} Search;

/* --- memory --- */

static int64_t key_width(const Stack *s) { return s->blocks->self.groups * s->blocks->self.key_dim; }
static int64_t value_width(const Stack *s) { return s->blocks->self.groups * s->blocks->self.value_dim; }

/* (layers, old, width) -> (layers, new, width); NULL where there is no memory. */
static float *more_slots(float *from, int layers, int64_t old, int64_t new, int64_t width) {
    float *into = malloc(sizeof(float) * layers * new * width);
    for (int l = 0; into && from && l < layers; l++)
        memcpy(into + l * new * width, from + l * old * width, sizeof(float) * old * width);
    if (into) free(from);
    return into;
}

static int reserve_slots(Search *s, int64_t wanted) {
    Past *past = &s->past;
    int64_t old = past->slots, new = 2 * old > wanted ? 2 * old : wanted;
    if (wanted <= old) return 1;
    float *keys = more_slots(past->keys, s->stack->layers, old, new, key_width(s->stack));
    if (!keys) return 0;
    past->keys = keys;
    float *values = more_slots(past->values, s->stack->layers, old, new, value_width(s->stack));
    if (!values) return 0;
    past->values = values, past->slots = new;
    return 1;
}

static int32_t add_node(Search *s, int32_t parent, int32_t token, double own) { /* -1: no memory */
    if (s->count_of_nodes == s->room_of_nodes) {
        Node *more = realloc(s->nodes, sizeof(Node) * 2 * s->room_of_nodes);
        if (!more) return -1;
        s->nodes = more, s->room_of_nodes *= 2;
    }
    s->nodes[s->count_of_nodes] = (Node){parent, token, own};
    return s->count_of_nodes++;
}

/* --- one step of all rows --- */

/* The next tokens of each row, (rows, each) -> its logits (rows, V). */
static int feed(Search *s, const int32_t *tokens, int64_t apart, int rows, int each) {
    Past *past = &s->past;
    int D = s->stack->dim, before = past->length;
    if (!reserve_slots(s, s->used + (int64_t)rows * each)) return 0;
    for (int row = 0; row < rows; row++)
        for (int t = 0; t < each; t++) {
            s->lists[(int64_t)row * past->stride + before + t] = s->used++;
            embed(s->input, tokens[row * apart + t], before + t, s->x + ((int64_t)row * each + t) * D, D);
        }
    past->length += each, past->lists = s->lists;
    const Memory *memory = s->memory.keys ? &s->memory : NULL;
    return clearhead_step(s->stack, past, memory, s->x, s->logits, rows, rows * each, 1, s->order->threads) == 0;
}

static int read_prompts(Search *s) {
    const Order *o = s->order;
    for (int known = 0; known < o->prompt; known += CHUNK) {
        int each = o->prompt - known < CHUNK ? o->prompt - known : CHUNK;
        if (!feed(s, o->prompts + known, o->prompt, o->sentences, each)) return 0;
    }
    return 1;
}

/* Each row goes on with its new token; its list begins as that of the row it comes from. */
static int go_on(Search *s, int rows) {
    for (int row = 0; row < rows; row++) {
        int64_t stride = s->past.stride;
        memcpy(s->spare + row * stride, s->lists + s->rows[row].from * stride, sizeof(int32_t) * s->past.length);
        s->sentence[row] = s->rows[row].sentence, s->tokens[row] = s->rows[row].token;
    }
    int32_t *old = s->lists;
    s->lists = s->spare, s->spare = old;
    return feed(s, s->tokens, 1, rows, 1);
}

/* --- which go on, and which are finished --- */

/* Into a list of at most `room`, the best first; an equal one stays before. */
static void insert(Found *list, int32_t *count, int room, Found new) {
    int at = *count < room ? (*count)++ : room;
    for (; at > 0 && new.score > list[at - 1].score; at--)
        if (at < room) list[at] = list[at - 1];
    if (at < room) list[at] = new;
}

/* The 2K best continuations of some rows of one sentence, the best first. */
static int rank(Search *s, int first, int rows) {
    int most = 2 * s->order->beams, count = 0;
    Candidate *list = s->candidates;
    for (int row = first; row < first + rows; row++)
        for (int c = 0; c < s->offers; c++) {
            int64_t place = (int64_t)row * s->offers + c;
            double before = s->rows[row].score, own = (double)s->values[place] - s->totals[row];
            double rank = before - s->totals[row] + s->values[place];
            if (count == most && !(rank > list[most - 1].rank)) break; /* those after it are smaller */
            int at = count < most ? count++ : most - 1;
            for (; at > 0 && rank > list[at - 1].rank; at--) list[at] = list[at - 1];
            list[at] = (Candidate){row, s->places[place], rank, before + own, own};
        }
    return count;
}

/* Whether nothing is open, or enough is finished and no open beginning can beat it. */
static int decided(const Search *s, int sentence, int open, double best) {
    const Order *o = s->order;
    int found = s->finished_count[sentence];
    if (!open || (o->beams == 1 && found)) return 1;
    double hope = best / pow(o->longest[sentence], o->penalty);
    return found >= o->wanted && s->finished[(int64_t)(sentence + 1) * o->wanted - 1].score >= hope;
}

/* From the logits of some rows of one sentence to the rows that follow them, put at `into`; their number, or -1. */
static int extend(Search *s, int first, int rows, int length, Row *into) {
    const Order *o = s->order;
    int sentence = s->rows[first].sentence, count = rank(s, first, rows), open = 0;
    Found *finished = s->finished + (int64_t)sentence * o->wanted, *cut = s->cut + (int64_t)sentence * o->wanted;
    double shorter = pow(length, o->penalty), best = -INFINITY;
    for (int c = 0; c < count; c++) {
        Candidate each = s->candidates[c];
        int stops = each.token == o->stop;
        if (stops ? c >= o->beams : open == o->beams) continue;
        int32_t node = add_node(s, s->rows[each.row].node, each.token, each.own);
        if (node < 0) return -1;
        if (stops) insert(finished, s->finished_count + sentence, o->wanted, (Found){node, each.score / shorter});
        else into[open++] = (Row){sentence, node, each.token, each.row, each.score};
        if (!stops && each.score > best) best = each.score;
    }
    if (decided(s, sentence, open, best)) return 0;
    if (length < o->longest[sentence]) return open;
    for (int i = 0; i < open; i++)
        insert(cut, s->cut_count + sentence, o->wanted, (Found){into[i].node, into[i].score / shorter});
    return 0;
}

/* All sentences that are open; the number of rows that go on, or -1. */
static int choose(Search *s, int rows, int length) {
    clearhead_best(s->logits, rows, s->stack->output.out, s->offers, s->values, s->places, s->totals, s->order->threads);
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

static void write_down(const Search *s, Texts *texts) {
    int wanted = s->order->wanted;
    for (int64_t sentence = 0; sentence < s->order->sentences; sentence++)
        for (int n = 0; n < wanted; n++) {
            int64_t at = sentence * wanted + n;
            int whole = s->finished_count[sentence], length = 0;
            texts->lengths[at] = 0;
            if (n >= whole + s->cut_count[sentence]) continue;
            const Found *found = n < whole ? s->finished + at : s->cut + sentence * wanted + n - whole;
            for (int node = found->node; node >= 0; node = s->nodes[node].parent) length++;
            texts->scores[at] = found->score, texts->lengths[at] = length;
            for (int node = found->node; node >= 0; node = s->nodes[node].parent) {
                texts->tokens[at * texts->room + --length] = s->nodes[node].token;
                texts->own[at * texts->room + length] = s->nodes[node].own;
            }
        }
}

static int run(Search *s, Texts *texts) {
    int rows = s->order->sentences, length = 0;
    for (int row = 0; row < rows; row++) s->rows[row] = (Row){row, -1, 0, row, 0.0}, s->sentence[row] = row;
    if (!read_prompts(s)) return -1;
    for (;;) {
        rows = choose(s, rows, ++length);
        if (rows < 0) return -1;
        if (rows == 0) break;
        if (!go_on(s, rows)) return -1;
    }
    write_down(s, texts);
    return length;
}

/* Go on from each prompt, all of one length -> the texts; the number of steps, or -1 where memory ran out. */
int clearhead_search(const Stack *stack, const Input *input, const Memory *memory, const Order *order, Texts *texts) {
    int64_t N = order->sentences, R = N * order->beams, D = stack->dim, V = stack->output.out, W = order->wanted;
    int64_t stride = order->prompt + texts->room, each = most(1, order->prompt < CHUNK ? order->prompt : CHUNK);
    int64_t offers = V < 2 * order->beams ? V : 2 * order->beams, tokens = N * each > R ? N * each : R;
    Search s = {stack, input, order, .offers = offers, .room_of_nodes = 2 * R + 64};
    if (memory) s.memory = *memory;
    s.past.stride = stride;
    s.lists = malloc(sizeof(int32_t) * R * stride), s.spare = malloc(sizeof(int32_t) * R * stride);
    s.memory.sentence = s.sentence = malloc(sizeof(int32_t) * R);
    s.tokens = malloc(sizeof(int32_t) * R), s.x = malloc(sizeof(float) * tokens * D);
    s.logits = malloc(sizeof(float) * R * V);
    s.values = malloc(sizeof(float) * R * offers), s.totals = malloc(sizeof(float) * R);
    s.places = malloc(sizeof(int64_t) * R * offers), s.nodes = malloc(sizeof(Node) * s.room_of_nodes);
    s.finished = malloc(sizeof(Found) * N * W), s.cut = malloc(sizeof(Found) * N * W);
    s.finished_count = calloc(N, sizeof(int32_t)), s.cut_count = calloc(N, sizeof(int32_t));
    s.rows = malloc(sizeof(Row) * R), s.next = malloc(sizeof(Row) * R);
    s.candidates = malloc(sizeof(Candidate) * 2 * order->beams);
    int there = s.lists && s.spare && s.sentence && s.tokens && s.x && s.logits && s.values && s.totals && s.places && s.nodes &&
                s.finished && s.cut && s.finished_count && s.cut_count && s.rows && s.next && s.candidates;
    int steps = there && reserve_slots(&s, N * order->prompt + 16 * R) ? run(&s, texts) : -1;
    free(s.lists), free(s.spare), free(s.sentence), free(s.tokens), free(s.x), free(s.logits), free(s.values), free(s.totals);
    free(s.places), free(s.nodes), free(s.finished), free(s.cut), free(s.finished_count), free(s.cut_count);
    free(s.rows), free(s.next), free(s.candidates), free(s.past.keys), free(s.past.values);
    return steps;
}
