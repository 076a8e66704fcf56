package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Carrier carries chunks for other flows, as puts of its own: they have its retries, leases and last words.
type Carrier interface {
	// Carry takes one; Room must hold. What becomes of it is told to whom it is For: its outcome once, and its memory
	// once, with the outcome or later. It may be told in the same step.
	Carry(e *Env, c *Carried) table.Handle
	// Room says whether one more can be carried.
	Room() bool
	// Stop ends one early, which has no outcome yet.
	Stop(e *Env, h table.Handle)
}

// A Carried is a put that no engine gave. Nothing in it is checked again.
type Carried struct {
	Put     engine.Put
	For     kernel.Ref
	Request table.Handle // as engine.Enter gave it
	Layers  uint32       // of a chunk, each of which has a page
	Whole   bool         // the keys are of chunks, of which all layers are here, in order; else of layers
	Epoch   uint32
	Opened  effects.GrantID // under which the first layers of its chunks came; 0: none has come
}

// A Told is what became of one.
type Told struct {
	For      kernel.Ref
	Returned bool // its memory is back, after an outcome that held; else this is the outcome
	Code     effects.Code
	Held     bool
	NoRoom   bool // its peer has no room for it now, and may have later: nothing of it went
	Why      *effects.Why
	Grant    effects.GrantID // under which its pages went; 0: none had to go
	Already  []uint32        // which of its pages' chunks were there already, by the pages' places
}
