package layerwise

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
)

// Begin starts the push of a request to a peer. Tokens before Skip are present at the peer already, or are not
// wanted: whole chunks of these tokens are never sent. For a request without a peer nothing is sent. The outcome is
// delivered at once.
type Begin struct {
	// Peer is the receiver; without a host nothing is sent.
	Peer    engine.Peer
	Request []byte
	Skip    uint32
	// Figures are the measurements from which the way of sending is decided.
	Figures Figures
	// Trace is the span of the request, if it is traced.
	Trace effects.Trace
}

// Save says that a layer was computed for the first Tokens tokens of a request, and in which pages it is: that layer
// of chunk First+i, whose key as a whole chunk is Keys[i], is in Pages[i]. Only whole chunks are sent, each layer
// once: chunks that were saved before are ignored. The outcome is delivered at once. If any of the pages is to be
// sent, the outcome says Held, and a Return follows when the pages belong to the engine again.
type Save struct {
	Request []byte
	// Run is the ticket of the Begin. A run of the same name with another Begin is not affected. 0: any run of the
	// request.
	Run    effects.Ticket
	Layer  uint32
	Tokens uint32
	First  uint32
	Keys   [][]byte
	Pages  []effects.Page
}

// Preempt says that a request lost what was computed. Chunks with all layers accepted remain whole at the peer. All
// other chunks begin again, and the Saves start again at Skip. The outcome is delivered at once.
type Preempt struct {
	Request []byte
	Run     effects.Ticket // as in Save
}

// Finish says that all layers were computed for Tokens tokens, and supplies the incomplete chunk at the end: chunk
// Key, with layer i in Pages[i]. There is none if the tokens fill whole chunks. The outcome is delivered when
// everything was sent, or cannot be sent. Then the proxy is notified.
type Finish struct {
	Request []byte
	Run     effects.Ticket // as in Save
	Tokens  uint32
	Key     []byte
	Pages   []effects.Page
	Timeout effects.Duration // 0: the configured default of a put
}

// Drop ends a request of which nothing more is to be sent. The proxy is not notified. The outcome is delivered at
// once. Pages that are still being read are returned later.
type Drop struct {
	Request []byte
	Run     effects.Ticket // as in Save
}

// IsCommand marks a command body.
func (*Begin) IsCommand() {}

// IsCommand marks a command body.
func (*Save) IsCommand() {}

// IsCommand marks a command body.
func (*Preempt) IsCommand() {}

// IsCommand marks a command body.
func (*Finish) IsCommand() {}

// IsCommand marks a command body.
func (*Drop) IsCommand() {}
