package layerwise

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
)

// Begin begins with a request whose chunks are to go to a peer as they are computed. Tokens before Skip are there
// already, or nobody's wish: whole chunks of them are never sent. A request without a peer sends nothing. Its outcome
// comes at once.
type Begin struct {
	Peer    engine.Peer // no host: nobody
	Request []byte
	Skip    uint32
	Figures Figures // by which it is decided how it goes
}

// Save says that a layer is computed of the first Tokens of a request, and what of that lies in which page: chunk
// First+i, which has key Keys[i] as a whole, in Pages[i]. Only whole chunks go, each once: what went before is not
// looked at again. Its outcome comes at once, and keeps the pages if any of them goes (Held): Return says when they are
// the engine's again.
type Save struct {
	Request []byte
	Run     effects.Ticket // of its Begin: another run of that name is not meant; 0: whichever there is
	Layer   uint32
	Tokens  uint32
	First   uint32
	Keys    [][]byte
	Pages   []effects.Page
}

// Preempt says that a request lost what it had computed. Chunks of which every layer was taken stay whole at the other
// end; all others begin anew, and so do its Saves, from Skip on. Its outcome comes at once.
type Preempt struct {
	Request []byte
	Run     effects.Ticket // as in Save
}

// Finish says that all layers are computed of Tokens tokens, and brings what is less than a chunk at their end: chunk
// Key, layer i of it in Pages[i]. There is none if the tokens come to whole chunks. Its outcome comes when all has
// gone, or cannot. Then the proxy is told.
type Finish struct {
	Request  []byte
	Run      effects.Ticket // as in Save
	Tokens   uint32
	Key      []byte
	Pages    []effects.Page
	Patience effects.Duration // 0: the configured default of a put
}

// Drop ends a request of which nothing more is to go. The proxy is not told. Its outcome comes at once, pages that are
// read still come back when they are not.
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
