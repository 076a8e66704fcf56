package engine

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Taken describes a Put that was accepted: its flow owes the Put an outcome and the return of its memory.
type Taken struct {
	Ticket    effects.Ticket
	Request   table.Handle // zero: the put belongs to no request
	Operation uint64       // a number that no other put has
	Patience  effects.Duration
}

// Fits is the number of chunks, counted from the first, that one put can contain, and the configuration key that sets
// this limit.
type Fits struct {
	Chunks int
	By     string
}

// Take accepts a Put and counts the Put into its request, or refuses the Put and changes nothing. open is the number of
// puts that are open already; fits is how many of these chunks one put can contain.
func (x *Engine) Take(v *env.Env, t effects.Ticket, c *Put, open int, fits Fits, draining bool) (Taken, bool) {
	if code, why := x.check(v, c, fits, draining); code != effects.OK {
		TurnDown(v, t, code, why)
		return Taken{}, false
	}
	if !x.parts.mayFollow(c, open, int(x.cfg.PutsMax)) {
		v.Out.Mark(Marks.PutsFull)
		TurnDown(v, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: number(x.cfg.PutsMax) + ", and " + number(open) + " puts are in progress",
			Remedy: "retry when one has ended, or raise tables.commands",
		})
		return Taken{}, false
	}
	request, code, why := x.requests.join(v, c.Request, c.Last)
	if code != effects.OK {
		TurnDown(v, t, code, why)
		return Taken{}, false
	}
	x.parts.follow(t, c)
	patience := c.Patience
	if patience == 0 {
		patience = x.cfg.PutTimeout
	}
	return Taken{Ticket: t, Request: request, Operation: x.Operation(), Patience: patience}, true
}

// check checks the arguments of a Put, and returns the code and the reason if they are not valid.
func (x *Engine) check(v *env.Env, c *Put, fits Fits, draining bool) (effects.Code, *effects.Why) {
	n := len(c.Keys)
	switch {
	case draining:
		return effects.Draining, &effects.Why{}
	case n == 0:
		return effects.Invalid, &effects.Why{Field: "Keys", Theirs: "empty", Ours: "one or more"}
	case n != len(c.Pages):
		return effects.Invalid, &effects.Why{
			Field: "Pages", Theirs: number(len(c.Pages)), Ours: "one for each of " + number(n) + " keys",
		}
	case c.Patience < 0:
		return effects.Invalid, &effects.Why{Field: "Patience", Theirs: c.Patience.String(), Ours: "0 or more"}
	case c.Peer.Host == "" || c.Peer.InitPort == 0 || c.Peer.AllocPort == 0:
		return effects.Invalid, &effects.Why{
			Field: "Peer", Theirs: c.Peer.words(),
			Ours: "a host and two ports",
		}
	case n > fits.Chunks:
		return effects.TooLarge, &effects.Why{
			Field: "Keys", Theirs: number(n), Ours: "at most " + number(fits.Chunks) + " of these (" + fits.By + ")",
		}
	case len(c.Request) > int(x.cfg.RequestIDMax):
		return effects.TooLarge, &effects.Why{
			Field: "Request", Theirs: number(len(c.Request)) + " bytes", Ours: "at most " + number(x.cfg.RequestIDMax) +
				" (limits.request_bytes)",
		}
	case c.Last && len(c.Request) == 0:
		return effects.Invalid, &effects.Why{Field: "Request", Theirs: "empty", Ours: "a request that Last is of"}
	}
	if c.Layout != x.cfg.Layout {
		why, _ := link.Differ(x.cfg.Layout, c.Layout)
		why.Field = "Layout" + why.Field[len("layout"):]
		return effects.Mismatch, &why
	}
	if c.LastChunkTokens == 0 || c.LastChunkTokens > c.Layout.Tokens() {
		return effects.Invalid, &effects.Why{
			Field: "LastChunkTokens", Theirs: number(c.LastChunkTokens), Ours: "1 to " + number(c.Layout.Tokens()),
		}
	}
	var check protocol.KeyCheck
	for i, key := range c.Keys {
		want := x.cfg.PageBytes
		if i == n-1 {
			want = x.cfg.Layout.TokenBytes() * uint64(c.LastChunkTokens)
		}
		switch got := uint64(c.Pages[i].Length); {
		case got != want:
			return effects.Invalid, &effects.Why{Field: at("Pages", i), Theirs: number(got) + " bytes", Ours: number(want)}
		case !v.Filled().Reserved(c.Pages[i]):
			return effects.Invalid, &effects.Why{
				Field: at("Pages", i), Theirs: "none of a Reserve that was not released", Ours: "one",
			}
		}
		if err := check.Check(key, x.cfg.Wire.KeyBytes); err != nil {
			return effects.Invalid, &effects.Why{Field: at("Keys", i), Theirs: effects.Words([]byte(err.Error()))}
		}
	}
	return effects.OK, nil
}

func (p *Peer) words() string {
	return effects.Words([]byte(p.Host)) + ":" + number(uint32(p.InitPort)) + "," + number(uint32(p.AllocPort))
}

func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
