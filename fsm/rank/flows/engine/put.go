package engine

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// An AcceptedPut describes a Put that was accepted: its flow owes the Put an outcome and the return of its memory.
type AcceptedPut struct {
	Ticket    effects.Ticket
	Request   table.Handle // zero: the put belongs to no request
	Operation uint64       // a number that no other put has
	Timeout   effects.Duration
}

// ChunkLimit is the number of chunks, counted from the first, that one put can contain, and the configuration key that
// sets this limit.
type ChunkLimit struct {
	Chunks int
	Key    string
}

// AcceptPut accepts a Put and counts the Put into its request, or refuses the Put and changes nothing. open is the
// number of puts that are open already; fits is how many of these chunks one put can contain.
func (x *Engine) AcceptPut(v *env.Env, t effects.Ticket, c *Put, open int, fits ChunkLimit, draining bool) (AcceptedPut, bool) {
	if code, why := x.validatePut(v, c, fits, draining); code != effects.OK {
		RefuseCommand(v, t, code, why)
		return AcceptedPut{}, false
	}
	if !x.following.mayFollow(c, open, int(x.cfg.PutsMax)) {
		v.Out.Mark(Marks.PutsFull)
		RefuseCommand(v, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: formatCount(x.cfg.PutsMax) + ", and " + formatCount(open) + " puts are in progress",
			Remedy: "retry when one has ended, or raise tables.commands",
		})
		return AcceptedPut{}, false
	}
	request, code, why := x.requests.joinRequest(v, c.Request, c.Last)
	if code != effects.OK {
		RefuseCommand(v, t, code, why)
		return AcceptedPut{}, false
	}
	x.following.recordPut(t, c)
	timeout := c.Timeout
	if timeout == 0 {
		timeout = x.cfg.PutTimeout
	}
	return AcceptedPut{Ticket: t, Request: request, Operation: x.NextOperation(), Timeout: timeout}, true
}

// countTenant counts reserved pages for the tenant of the chunks that a command has named for them.
func countTenant(v *env.Env, keys [][]byte, pages []effects.Page) {
	if len(keys) > 0 {
		v.EnginePool().CountTenant(effects.Tenant(protocol.TenantOf(keys[0])), pages)
	}
}

// validatePut checks the arguments of a Put, and returns the code and the reason if they are not valid.
func (x *Engine) validatePut(v *env.Env, c *Put, fits ChunkLimit, draining bool) (effects.Code, *effects.Why) {
	n := len(c.Keys)
	switch {
	case draining:
		return effects.Draining, &effects.Why{}
	case n == 0:
		return effects.Invalid, &effects.Why{Field: "Keys", Theirs: "empty", Ours: "one or more"}
	case n != len(c.Pages):
		return effects.Invalid, &effects.Why{
			Field: "Pages", Theirs: formatCount(len(c.Pages)), Ours: "one for each of " + formatCount(n) + " keys",
		}
	case c.Timeout < 0:
		return effects.Invalid, &effects.Why{Field: "Timeout", Theirs: c.Timeout.String(), Ours: "0 or more"}
	case c.Peer.Host == "" || c.Peer.InitPort == 0 || c.Peer.AllocPort == 0:
		return effects.Invalid, &effects.Why{
			Field: "Peer", Theirs: c.Peer.addrText(),
			Ours: "a host and two ports",
		}
	case n > fits.Chunks:
		return effects.TooLarge, &effects.Why{
			Field: "Keys", Theirs: formatCount(n), Ours: "at most " + formatCount(fits.Chunks) + " of these (" + fits.Key + ")",
		}
	case len(c.Request) > int(x.cfg.RequestIDMax):
		return effects.TooLarge, &effects.Why{
			Field: "Request", Theirs: formatCount(len(c.Request)) + " bytes", Ours: "at most " + formatCount(x.cfg.RequestIDMax) +
				" (limits.request_bytes)",
		}
	case c.Last && len(c.Request) == 0:
		return effects.Invalid, &effects.Why{Field: "Request", Theirs: "empty", Ours: "the request that Last ends"}
	}
	if c.Layout != x.cfg.Layout {
		why, _ := link.CompareLayouts(x.cfg.Layout, c.Layout)
		why.Field = "Layout" + why.Field[len("layout"):]
		return effects.Mismatch, &why
	}
	if c.LastChunkTokens == 0 || c.LastChunkTokens > c.Layout.TokenCount() {
		return effects.Invalid, &effects.Why{
			Field: "LastChunkTokens", Theirs: formatCount(c.LastChunkTokens), Ours: "1 to " + formatCount(c.Layout.TokenCount()),
		}
	}
	var check protocol.KeyChecker
	for i, key := range c.Keys {
		want := x.cfg.PageBytes
		if i == n-1 {
			want = x.cfg.Layout.TokenBytes() * uint64(c.LastChunkTokens)
		}
		switch got := uint64(c.Pages[i].Length); {
		case got != want:
			return effects.Invalid, &effects.Why{Field: entryName("Pages", i), Theirs: formatCount(got) + " bytes", Ours: formatCount(want)}
		case !v.EnginePool().IsReserved(c.Pages[i]):
			return effects.Invalid, &effects.Why{
				Field: entryName("Pages", i), Theirs: "not a page of an open Reserve", Ours: "a page of a Reserve that was not released",
			}
		}
		if err := check.Check(key, x.cfg.Wire.KeyBytes); err != nil {
			return effects.Invalid, &effects.Why{Field: entryName("Keys", i), Theirs: effects.SanitizeText([]byte(err.Error()))}
		}
	}
	return effects.OK, nil
}

func (p *Peer) addrText() string {
	return effects.SanitizeText([]byte(p.Host)) + ":" + formatCount(uint32(p.InitPort)) + "," + formatCount(uint32(p.AllocPort))
}

func entryName(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
