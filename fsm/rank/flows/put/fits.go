package put

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
)

// What a message says of each chunk besides its key's bytes: the key's head, and where a page is, in an offer or in the
// answer to an AllocRequest. Beside that it has at most HeadBytes.
const (
	KeyHeadBytes = 3
	PlaceBytes   = 38 + 9 + 9 // a UUID as text, an index, a generation
	HeadBytes    = 1024
)

// Fitting says which bound it is by which a put can have so many chunks.
func Fitting(cfg *flow.Config, chunks int) engine.Fits {
	if chunks < int(cfg.BatchMax) {
		return engine.Fits{Chunks: chunks, By: "limits.message_bytes"}
	}
	return engine.Fits{Chunks: chunks, By: "limits.keys_per_batch"}
}
