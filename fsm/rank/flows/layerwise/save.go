package layerwise

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// saveLayer handles a Save. It accepts or refuses the layer at once and never waits.
func (f *Source) saveLayer(e *flow.Env, t effects.Ticket, c *Save) {
	h, r := f.findRun(c.Request, c.Run)
	if code, why := f.checkSave(e, r, c); code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, why)
		return
	}
	f.restartIdleTimer(e, h, r)
	end := min(c.First+uint32(len(c.Pages)), c.Tokens/e.Cfg.Layout.TokenCount())
	from := max(c.First, r.savedEnds[c.Layer])
	for i, key := range c.Keys {
		if at := c.First + uint32(i); at < end && at == r.knownEnd() {
			r.addChunk(key)
		}
	}
	at, s := f.saves.Add()
	*s = save{Op: engine.Op{Pages: s.Pages}}
	s.BeginCommand(&e.Env, t, c.Keys, c.Pages, 0)
	if from > c.First {
		e.Out.Mark(Marks.LayerAgain)
	}
	for i := from; i < end; i++ {
		if r.savedEnds[c.Layer] = i + 1; r.hasNoPeer() || r.chunkAt(i).wholeAtPeer {
			continue
		}
		f.enqueueLayer(e, r, at, i, c.Layer, c.Pages[i-c.First])
	}
	s.Deliver(&e.Env, effects.Deliver{Held: s.itemsLeft > 0})
	if s.itemsLeft == 0 {
		f.removeSave(at, s)
		return
	}
	f.advanceRun(e, h, r)
}

// enqueueLayer inserts a layer behind the queued layers of the same chunk.
func (f *Source) enqueueLayer(e *flow.Env, r *run, saveHandle table.Handle, chunk, layer uint32, page effects.Page) {
	f.saves.Get(saveHandle).itemsLeft++
	h, x := f.items.Add()
	*x = item{save: saveHandle, chunk: chunk, layer: layer, page: page, queued: true, savedAt: e.Now,
		readyBefore: e.Links.Outbound(r.outbound).ReadyTime(e.Now)}
	c := r.chunkAt(chunk)
	before := table.Handle(0)
	if last := f.items.Get(c.lastItem); last != nil && last.queued {
		before = f.items.Next(c.lastItem)
	}
	list := &r.queue
	if r.peerFull && !c.open {
		list = &r.blocked
	}
	if c.lastItem = h; before != 0 {
		f.items.InsertBefore(list, h, before)
		return
	}
	f.items.PushBack(list, h)
}

// checkSave returns an error if a Save cannot be accepted.
func (f *Source) checkSave(e *flow.Env, r *run, c *Save) (effects.Code, *effects.Why) {
	n := uint32(len(c.Pages))
	switch {
	case r == nil:
		return effects.NotFound, noRunReason(c.Request)
	case r.finishSave != 0:
		return effects.Ended, invalidReason("Request", "finishing", "one whose Finish did not come")
	case r.failCode != effects.OK:
		e.Out.Mark(Marks.SavedTooLate)
		return r.failCode, r.why
	case c.Layer >= f.cfg.Layers:
		return effects.Invalid, invalidReason("Layer", formatCount(c.Layer), "less than "+formatCount(f.cfg.Layers))
	case len(c.Keys) != len(c.Pages):
		return effects.Invalid, invalidReason("Pages", formatCount(n), "one for each of "+formatCount(len(c.Keys))+" keys")
	case n > e.Cfg.BatchMax:
		return effects.TooLarge, invalidReason("Pages", formatCount(n), "at most "+formatCount(e.Cfg.BatchMax))
	case c.First > r.savedEnds[c.Layer]:
		return effects.Invalid, invalidReason("First", formatCount(c.First), "at most "+formatCount(r.savedEnds[c.Layer])+
			", behind what was saved of this layer")
	case c.First+n > r.base+f.cfg.ChunksMax:
		return effects.TooLarge, invalidReason("First", formatCount(c.First+n), "at most "+formatCount(f.cfg.ChunksMax)+
			" chunks behind the first (layerwise.chunks)")
	case f.saves.Len() >= int(f.cfg.SavesMax) || f.items.Len()+int(n) > int(f.cfg.ItemsMax):
		e.Out.Mark(Marks.SavesFull)
		return effects.TooMany, tableFullReason("saves", f.cfg.SavesMax)
	}
	var check protocol.KeyChecker
	for i, key := range c.Keys {
		if code, why := checkPage(e, c.Pages[i], e.Cfg.PageBytes, i); code != effects.OK {
			return code, why
		}
		if err := check.Check(key, e.Cfg.Wire.KeyBytes-len("@1023")); err != nil {
			return effects.Invalid, invalidReason(entryName("Keys", i), effects.SanitizeText([]byte(err.Error())), "")
		}
		chunk := c.First + uint32(i)
		if chunk >= r.base && chunk < r.knownEnd() && !bytes.Equal(key, r.keyAt(chunk)) {
			return effects.Invalid, invalidReason(entryName("Keys", i), effects.SanitizeText(key), "that of the layers before: "+
				effects.SanitizeText(r.keyAt(chunk)))
		}
	}
	return e.CheckOwnTenants(c.Keys)
}

func checkPage(e *flow.Env, page effects.Page, want uint64, i int) (effects.Code, *effects.Why) {
	switch {
	case uint64(page.Length) != want:
		return effects.Invalid, invalidReason(entryName("Pages", i), formatCount(page.Length)+" bytes", formatCount(want))
	case !e.EnginePool().IsReserved(page):
		return effects.Invalid, invalidReason(entryName("Pages", i), "not a page of an open Reserve",
			"a page of a Reserve that was not released")
	}
	return effects.OK, nil
}
