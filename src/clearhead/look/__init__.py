"""Looking inside: what a model computes on the way to its answer. Each idea is a module of its own.

look            what `Model.look` gives: tokens, weights, scores, queries, keys, values, states, probabilities
capture         named probes on any model: `with capture(model, "decoder.*.cross.weights") as seen`
probes          everything in a model that can be seen, by name
see, writing    from a model and an example to a look: of a text that is there, or while it is written
foreign         the same of torch's and transformers' models
steps           one query's attention step by step; beams: the tree of a beam search
rollout, flow   attention through all layers; relevance and gradients: what the answer depends on
interventions   parts switched off, averaged or patched; effects and importance: what that changes
cells, induction, lens, positions, patches, words, scaling      what single parts have learned
history         the attention of one example at every evaluation of a run
figures, terminal, html, widgets                                all of it to be looked at
"""
