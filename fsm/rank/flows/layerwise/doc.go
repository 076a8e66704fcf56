// Package layerwise pushes the KV cache of a prefill to a peer layer by layer: layers that are ready are sent while
// the next layers are being computed. A run is the push of a single request. The engine reports which layers of which
// chunks are ready. The layers are sent as batches of the push flow (flow.Carrier), and the receiver assembles whole
// chunks from them (fsm/rank/memory/bundle). A peer that stores all layers of a chunk in one page receives whole
// chunks, each as soon as all layers of the chunk are ready.
//
// Example, a request of two chunks and two layers:
//
//	Begin                    the run starts; the link to the peer is requested
//	Save layer 0, chunks 0-1 a batch opens both chunks at the peer
//	Save layer 1, chunks 0-1 a batch completes both chunks
//	Finish                   waits for both batches, then has the outcome OK, and the proxy is notified
//
// A caller may rely on the following:
//
//   - Save has its outcome in the step that receives the command.
//   - A page is returned to the engine exactly once, when nothing reads the page any more.
//   - No layer of a chunk is sent twice in an epoch, and no layer is sent of a chunk that is whole at the peer.
//   - Finish has the outcome OK only if every chunk is whole at the peer.
//   - The proxy is notified at most once for a request: when the request has ended by Finish, after all chunks were
//     sent or the run has failed. Drop does not notify the proxy.
//   - Whether a request is sent by layers, by chunks or as a whole is decided at the first flush and does not change.
package layerwise
