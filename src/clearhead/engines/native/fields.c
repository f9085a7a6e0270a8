/* The structures of clearhead.h, field by field, so that Python can compare them with its own. */

#include "clearhead.h"
#include <stddef.h>

typedef struct {
    const char *structure, *field; /* field "": the whole structure */
    int64_t offset, size;
} FieldInfo;

#define WHOLE(S) {#S, "", 0, sizeof(S)}
#define FIELD(S, F) {#S, #F, offsetof(S, F), sizeof(((S *)0)->F)}

static const FieldInfo fields[] = {
    WHOLE(Linear),
    FIELD(Linear, panels),
    FIELD(Linear, scales),
    FIELD(Linear, bias),
    FIELD(Linear, sums),
    FIELD(Linear, inputs),
    FIELD(Linear, outputs),
    FIELD(Linear, bytes),
    WHOLE(Norm),
    FIELD(Norm, gain),
    FIELD(Norm, shift),
    FIELD(Norm, eps),
    FIELD(Norm, kind),
    WHOLE(Residual),
    FIELD(Residual, before),
    FIELD(Residual, inside),
    FIELD(Residual, after),
    WHOLE(Attention),
    FIELD(Attention, project),
    FIELD(Attention, output),
    FIELD(Attention, source),
    FIELD(Attention, sin),
    FIELD(Attention, cos),
    FIELD(Attention, bias),
    FIELD(Attention, heads),
    FIELD(Attention, kv_heads),
    FIELD(Attention, key_dim),
    FIELD(Attention, value_dim),
    FIELD(Attention, positions),
    FIELD(Attention, scale),
    WHOLE(FeedForward),
    FIELD(FeedForward, inner),
    FIELD(FeedForward, gate),
    FIELD(FeedForward, outer),
    FIELD(FeedForward, activation),
    WHOLE(Block),
    FIELD(Block, residual_self),
    FIELD(Block, residual_cross),
    FIELD(Block, residual_feed_forward),
    FIELD(Block, self),
    FIELD(Block, cross),
    FIELD(Block, feed_forward),
    WHOLE(Stack),
    FIELD(Stack, blocks),
    FIELD(Stack, final_norm),
    FIELD(Stack, output),
    FIELD(Stack, layers),
    FIELD(Stack, dim),
    WHOLE(Cache),
    FIELD(Cache, keys),
    FIELD(Cache, values),
    FIELD(Cache, lists),
    FIELD(Cache, lengths),
    FIELD(Cache, firsts),
    FIELD(Cache, slots),
    FIELD(Cache, length),
    FIELD(Cache, stride),
    FIELD(Cache, first),
    FIELD(Cache, window),
    WHOLE(Memory),
    FIELD(Memory, keys),
    FIELD(Memory, values),
    FIELD(Memory, lists),
    FIELD(Memory, lengths),
    FIELD(Memory, sentence),
    FIELD(Memory, slots),
    FIELD(Memory, stride),
    WHOLE(Input),
    FIELD(Input, table),
    FIELD(Input, positions),
    FIELD(Input, scale),
    WHOLE(SearchSettings),
    FIELD(SearchSettings, prompts),
    FIELD(SearchSettings, max_tokens),
    FIELD(SearchSettings, length_penalty),
    FIELD(SearchSettings, sentences),
    FIELD(SearchSettings, prompt),
    FIELD(SearchSettings, beam_width),
    FIELD(SearchSettings, n_best),
    FIELD(SearchSettings, stop),
    FIELD(SearchSettings, threads),
    FIELD(SearchSettings, scored),
    WHOLE(SearchResults),
    FIELD(SearchResults, tokens),
    FIELD(SearchResults, logprobs),
    FIELD(SearchResults, scores),
    FIELD(SearchResults, lengths),
    FIELD(SearchResults, room),
    {NULL, NULL, 0, 0},
};

/* Of the sources that this library was made of. */
PUBLIC const char *clearhead_source_hash(void) {
    return SOURCE_HASH;
}

/* By which tools/build_native.py recognises what it has built. */
PUBLIC const char clearhead_build_stamp[] = BUILD_STAMP;

/* Ends with a NULL. */
PUBLIC const FieldInfo *clearhead_fields(void) {
    return fields;
}
