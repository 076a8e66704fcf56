package put

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
)

// Bytes of a message that carries chunks or names their pages. KeyHeadBytes is the size of what precedes each key, with
// the checksum of its chunk, PageNameBytes is the size of what names a page in an offer or in the reply to an
// AllocRequest (a UUID as text, an index, a generation), and HeadBytes bounds everything else in the message.
const (
	KeyHeadBytes  = 3 + 5
	PageNameBytes = 38 + 9 + 9 // UUID as text, index, generation
	HeadBytes     = 1024
)

// LimitChunks returns the number of chunks that a put can contain, with the configuration key that sets this limit.
func LimitChunks(cfg *flow.Config, chunks int) engine.ChunkLimit {
	if chunks < int(cfg.BatchMax) {
		return engine.ChunkLimit{Chunks: chunks, Key: "limits.message_bytes"}
	}
	return engine.ChunkLimit{Chunks: chunks, Key: "limits.keys_per_batch"}
}
