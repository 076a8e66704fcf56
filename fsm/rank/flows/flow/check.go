package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// The functions of this file check keys and layouts before any other check.

// Check checks whether a batch could ever be served, with this number of pages of the pool. Check returns OK, or a code
// and the reason.
func (e *Env) Check(
	keys [][]byte, layout protocol.Layout, lastTokens uint32, pages int,
) (effects.Code, *effects.Why) {
	if code, why := e.CheckBatch(len(keys), pages, layout, lastTokens); code != effects.OK {
		return code, why
	}
	var check protocol.KeyCheck
	for i, key := range keys {
		if err := check.Check(key, e.Cfg.Wire.KeyBytes); err != nil {
			return effects.Malformed, &effects.Why{Field: At("keys", i), Theirs: effects.Words([]byte(err.Error()))}
		}
	}
	return effects.OK, nil
}

// CheckBatch checks the same as Check, except for the keys themselves.
func (e *Env) CheckBatch(n int, pages int, layout protocol.Layout, lastTokens uint32) (effects.Code, *effects.Why) {
	switch {
	case e.Draining:
		return effects.Draining, WhyEnded(effects.Draining)
	case n == 0:
		return effects.Invalid, &effects.Why{Field: "keys", Ours: "one or more", Theirs: "none"}
	case n > int(e.Cfg.BatchMax):
		return effects.TooLarge, &effects.Why{
			Field: "limits.keys_per_batch", Ours: Number(e.Cfg.BatchMax), Theirs: Number(n),
			Remedy: "send fewer at a time, or raise it here",
		}
	case !e.Pool.Ever(uint32(pages)):
		return effects.TooLarge, &effects.Why{
			Field: "pages for one peer", Ours: "at most " + Number(e.Pool.MostOfOne()) + " (" + e.Pool.Key() + ", peer_share_pct)",
			Theirs: Number(pages),
		}
	}
	return fits(e.Cfg, n, layout, lastTokens)
}

// fits checks whether this rank can take n chunks of this layout.
func fits(cfg *Config, n int, layout protocol.Layout, lastTokens uint32) (effects.Code, *effects.Why) {
	if layout != cfg.Layout {
		// A single partial chunk comes with its own shape.
		short, err := cfg.Layout.WithTokens(lastTokens)
		if n != 1 || err != nil || short != layout {
			why, _ := link.Differ(cfg.Layout, layout)
			return effects.Mismatch, &why
		}
	}
	if lastTokens == 0 || lastTokens > cfg.Layout.Tokens() {
		return effects.Invalid, &effects.Why{
			Field: "last_chunk_toks", Ours: "1 to " + Number(cfg.Layout.Tokens()), Theirs: Number(lastTokens),
		}
	}
	return effects.OK, nil
}

// Named returns a hash of the keys, in order, and of the number of tokens in the last chunk. A retry has the same hash
// as its first attempt. Named also stores the hashes of the keys in r.Hashes.
func (r *Rooms) Named(keys [][]byte, lastTokens uint32) uint64 {
	r.Hashes = r.Hashes[:0]
	for _, key := range keys {
		r.Hashes = append(r.Hashes, r.Store.Hash(key))
	}
	return landing.Sum(r.Hashes, lastTokens)
}

// CheckKeys checks whether an engine's command may request chunks by these keys.
func (e *Env) CheckKeys(keys [][]byte) (effects.Code, *effects.Why) {
	switch {
	case e.Draining:
		return effects.Draining, &effects.Why{}
	case len(keys) == 0:
		return effects.Invalid, &effects.Why{Field: "Keys", Theirs: "empty", Ours: "one or more"}
	case len(keys) > int(e.Cfg.BatchMax):
		return effects.TooLarge, &effects.Why{
			Field: "Keys", Theirs: Number(len(keys)), Ours: "at most " + Number(e.Cfg.BatchMax) + " (limits.keys_per_batch)",
		}
	}
	var check protocol.KeyCheck
	for i, key := range keys {
		if err := check.Check(key, e.Cfg.Wire.KeyBytes); err != nil {
			return effects.Invalid, &effects.Why{Field: At("Keys", i), Theirs: effects.Words([]byte(err.Error()))}
		}
	}
	return effects.OK, nil
}

// Waitable checks that a duration that an engine gave in a field can be waited for, that is, is not negative.
func Waitable(field string, d effects.Duration) (effects.Code, *effects.Why) {
	if d < 0 {
		return effects.Invalid, &effects.Why{Field: field, Theirs: d.String(), Ours: "0 or more"}
	}
	return effects.OK, nil
}
