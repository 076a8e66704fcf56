// Package layerwise pushes what a prefill computes layer by layer: what is ready goes while the next layers are
// computed. A run is one request. Its engine says which layers of which chunks are ready; they go as batches of the
// flow that pushes (flow.Carrier), and the other end makes whole chunks of them (fsm/rank/memory/bundle). A peer that
// has all layers of a chunk in one page gets chunks, each once all its layers are ready.
//
// A caller may rely on this: Save has its outcome in the step that takes it; a page is the engine's again once, when
// nothing reads it; no layer of a chunk goes twice in an epoch, nor at all once the chunk is whole at the other end;
// Finish says OK only if every chunk is; the proxy hears of a request once, after all of it; what is decided at the
// first flush, layer by layer, by chunks or as a whole, stays so.
package layerwise
