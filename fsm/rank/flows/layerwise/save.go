package layerwise

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// save handles a Save. It accepts or refuses the layer at once and never waits.
func (f *Source) save(e *flow.Env, t effects.Ticket, c *Save) {
	h, r := f.find(c.Request, c.Run)
	if code, why := f.checkSave(e, r, c); code != effects.OK {
		engine.TurnDown(&e.Env, t, code, why)
		return
	}
	f.live(e, h, r)
	end := min(c.First+uint32(len(c.Pages)), c.Tokens/e.Cfg.Layout.Tokens())
	from := max(c.First, r.sent[c.Layer])
	for i, key := range c.Keys {
		if at := c.First + uint32(i); at < end && at == r.known() {
			r.know(key)
		}
	}
	at, s := f.saves.Add()
	*s = save{Op: engine.Op{Pages: s.Pages}}
	s.Begin(&e.Env, t, c.Pages, 0)
	if from > c.First {
		e.Out.Mark(Marks.LayerAgain)
	}
	for i := from; i < end; i++ {
		if r.sent[c.Layer] = i + 1; r.nowhere() || r.chunk(i).there {
			continue
		}
		f.enqueue(r, at, i, c.Layer, c.Pages[i-c.First])
	}
	s.Deliver(&e.Env, effects.Deliver{Held: s.left > 0})
	if s.left == 0 {
		f.over(at, s)
		return
	}
	f.flush(e, h, r)
}

// enqueue inserts a layer behind the queued layers of the same chunk.
func (f *Source) enqueue(r *run, of table.Handle, chunk, layer uint32, page effects.Page) {
	f.saves.Get(of).left++
	h, x := f.items.Add()
	*x = item{save: of, chunk: chunk, layer: layer, page: page, queued: true}
	c := r.chunk(chunk)
	before := table.Handle(0)
	if last := f.items.Get(c.last); last != nil && last.queued {
		before = f.items.Next(c.last)
	}
	list := &r.queue
	if r.full && !c.open {
		list = &r.shut
	}
	if c.last = h; before != 0 {
		f.items.Insert(list, h, before)
		return
	}
	f.items.PushBack(list, h)
}

// checkSave returns an error if a Save cannot be accepted.
func (f *Source) checkSave(e *flow.Env, r *run, c *Save) (effects.Code, *effects.Why) {
	n := uint32(len(c.Pages))
	switch {
	case r == nil:
		return effects.NotFound, noRun(c.Request)
	case r.finish != 0:
		return effects.Ended, invalid("Request", "finishing", "one whose Finish did not come")
	case r.failed != effects.OK:
		e.Out.Mark(Marks.SavedTooLate)
		return r.failed, r.why
	case c.Layer >= f.cfg.Layers:
		return effects.Invalid, invalid("Layer", number(c.Layer), "less than "+number(f.cfg.Layers))
	case len(c.Keys) != len(c.Pages):
		return effects.Invalid, invalid("Pages", number(n), "one for each of "+number(len(c.Keys))+" keys")
	case n > e.Cfg.BatchMax:
		return effects.TooLarge, invalid("Pages", number(n), "at most "+number(e.Cfg.BatchMax))
	case c.First > r.sent[c.Layer]:
		return effects.Invalid, invalid("First", number(c.First), "at most "+number(r.sent[c.Layer])+
			", behind what was saved of this layer")
	case c.First+n > r.base+f.cfg.ChunksMax:
		return effects.TooLarge, invalid("First", number(c.First+n), "at most "+number(f.cfg.ChunksMax)+
			" chunks behind the first (layerwise.chunks)")
	case f.saves.Len() >= int(f.cfg.SavesMax) || f.items.Len()+int(n) > int(f.cfg.ItemsMax):
		e.Out.Mark(Marks.SavesFull)
		return effects.TooMany, full("saves", f.cfg.SavesMax)
	}
	var check protocol.KeyCheck
	for i, key := range c.Keys {
		if code, why := checkPage(e, c.Pages[i], e.Cfg.PageBytes, i); code != effects.OK {
			return code, why
		}
		if err := check.Check(key, e.Cfg.Wire.KeyBytes-len("@1023")); err != nil {
			return effects.Invalid, invalid(at("Keys", i), effects.Words([]byte(err.Error())), "")
		}
		chunk := c.First + uint32(i)
		if chunk >= r.base && chunk < r.known() && !bytes.Equal(key, r.key(chunk)) {
			return effects.Invalid, invalid(at("Keys", i), effects.Words(key), "that of the layers before: "+
				effects.Words(r.key(chunk)))
		}
	}
	return effects.OK, nil
}

func checkPage(e *flow.Env, page effects.Page, want uint64, i int) (effects.Code, *effects.Why) {
	switch {
	case uint64(page.Length) != want:
		return effects.Invalid, invalid(at("Pages", i), number(page.Length)+" bytes", number(want))
	case !e.Filled().Reserved(page):
		return effects.Invalid, invalid(at("Pages", i), "none of a Reserve that was not released", "one")
	}
	return effects.OK, nil
}
