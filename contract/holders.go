package contract

import "github.com/kvferry/kvferry/effects"

// A HoldStage is a DataStage that can hold up its drivers' accesses to pages in their middle. A driver has two threads
// there for the pages of a node.
type HoldStage interface {
	DataStage
	// Hold holds up each access of a node's driver to a page from now on, once it has begun.
	Hold(at End)
	// Stands waits until so many accesses at a node are held up.
	Stands(at End, n int)
	// Passes lets the access that was held up first go on to the end of its page, and waits until another one is held up
	// that came after it: by then whoever made it has left the page. There must be more to do.
	Passes(at End)
	// Leaves is Passes where nothing more is done, and does not wait.
	Leaves(at End)
	// Rests lets the drivers' threads do what they can, so that who says too much has said it.
	Rests()
	// Frees lets all accesses at a node go on, and holds none up any more.
	Frees(at End)
	// Told says whether an event that fits was told to a node and is not taken yet.
	Told(at End, fits func(effects.Event) bool) bool
	// Closes begins to close a node's driver; closed says whether that is done, and wait waits for it.
	Closes(at End) (closed func() bool, wait func())
}

// Holders are the scenarios of two that are at pages of one grant, or at one page, as something ends: nothing is said
// to be quiet before the last of them has left. A stage that is no HoldStage plays them as they come. Sends says that
// owners send what is read of them, so that they hold their pages meanwhile.
func Holders(sends bool) []Scenario[DataStage] {
	return append(append(holdersOfPushes(), holdersOfReads()...), holdersWhoSend(sends)...)
}

// holders are two threads in the middle of pages, and another transfer that waits behind them.
type holders struct {
	*play
	stage  HoldStage // nil: nobody holds anything up
	at     End       // whose pages they are at
	peers  aLink
	corr   effects.Corr // of the transfer that they are at
	beside effects.Corr // of the one that waits
	grant  effects.GrantID
	other  effects.GrantID // that the one that waits is under
}

// hold begins to hold up accesses at a node, where the stage can.
func hold(l aLink, at End) *holders {
	h := &holders{play: l.play, at: at, peers: l}
	if h.stage, _ = l.stage.(HoldStage); h.stage != nil && h.err == nil {
		h.stage.Hold(at)
	}
	return h
}

// stand waits until both threads are in the middle of a page.
func (h *holders) stand() {
	if h.stage != nil && h.err == nil {
		h.stage.Stands(h.at, 2)
	}
}

// quiet lets one of the two go on, demands that what would be quiet then is not said, lets the other go on and waits
// for it. More says that the first one has something else to do then.
func quiet[E effects.Event](h *holders, of End, more bool, fits func(E) bool) {
	if h.err != nil {
		return
	}
	if h.stage != nil {
		early := func(ev effects.Event) bool { e, is := ev.(E); return is && fits(e) }
		if h.stage.Rests(); h.stage.Told(of, early) {
			var none E
			h.fail("%T is told to %v while two are at its pages", none, of)
		}
		if more {
			h.stage.Passes(h.at)
		} else {
			h.stage.Leaves(h.at)
		}
		if h.stage.Rests(); h.stage.Told(of, early) {
			var none E
			h.fail("%T is told to %v when the first of two has left its pages", none, of)
		}
		h.stage.Frees(h.at)
	}
	eventually(h.play, of, fits)
}

// closed is quiet for a driver that is closed: then is what waits for that.
func (h *holders) closed(of End) {
	if h.err != nil {
		return
	}
	if h.stage == nil {
		h.kill(of)
		return
	}
	h.sides[of].killed = true
	closed, wait := h.stage.Closes(of)
	for _, when := range []string{"two are", "the second of two is"} {
		if h.stage.Rests(); closed() {
			h.fail("%v has closed while %s at its pages", of, when)
		}
		if when == "two are" {
			h.stage.Leaves(h.at)
		}
	}
	h.stage.Frees(h.at)
	wait()
}

// revoke takes a grant of B back.
func (h *holders) revoke(id effects.GrantID) { h.do(B, &effects.Revoke{Grant: id}) }

// isRevoked fits the end of that.
func isRevoked(id effects.GrantID) func(*effects.Revoked) bool {
	return func(e *effects.Revoked) bool { return e.Grant == id }
}

// isSettled fits what a transfer owed.
func isSettled(corr effects.Corr) func(*effects.Settled) bool {
	return func(e *effects.Settled) bool { return e.Corr == corr }
}

// isDone fits the end of a transfer.
func isDone(corr effects.Corr) func(*effects.TransferDone) bool {
	return func(e *effects.TransferDone) bool { return e.Corr == corr }
}

// left is A's loss, as B is told of it.
func (h *holders) left() func(*effects.LinkLost) bool {
	who := h.peers.a.Incarnation
	return func(e *effects.LinkLost) bool { return e.Peer == who && e.Link == 0 }
}

// ended waits for a transfer's end, and for its Settled, which is not told before the last has left.
func (h *holders) ended(corr effects.Corr, more bool) Ending {
	ev := eventually(h.play, A, isDone(corr))
	if ev == nil {
		return Ending{}
	}
	end, _ := EndingOf(ev)
	switch {
	case !ev.Settled:
		quiet(h, A, more, isSettled(corr))
	case h.stage != nil:
		h.stage.Frees(h.at)
	}
	return end
}

// ends waits for a transfer's end, and for its Settled if that is owed.
func (h *holders) ends(corr effects.Corr) Ending {
	ev := eventually(h.play, A, isDone(corr))
	if ev == nil {
		return Ending{}
	}
	if !ev.Settled {
		eventually(h.play, A, isSettled(corr))
	}
	end, _ := EndingOf(ev)
	return end
}

// innocent waits for the end of the transfer that waited, which nothing happened to.
func (h *holders) innocent() {
	if end := h.ends(h.beside); h.err == nil && end.Code != effects.OK {
		h.fail("a transfer that nothing happened to ended as %v", end)
	}
}
