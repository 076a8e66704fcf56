package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/land"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/protocol"
)

// What is asked of keys and layouts before anything else is.

// check says whether a batch could ever be served, with so many pages of the pool, and if not, why.
func (r *rooms) check(
	v *env.Env, keys [][]byte, layout protocol.Layout, lastTokens uint32, pages int,
) (effects.Code, *effects.Why) {
	n := len(keys)
	switch {
	case r.draining:
		return effects.Draining, ended(effects.Draining)
	case n == 0:
		return effects.Invalid, &effects.Why{Field: "keys", Ours: "one or more", Theirs: "none"}
	case n > int(r.cfg.BatchMax):
		return effects.TooLarge, &effects.Why{
			Field: "limits.keys_per_batch", Ours: number(r.cfg.BatchMax), Theirs: number(n),
			Remedy: "send fewer at a time, or raise it here",
		}
	case !v.Pool.Ever(uint32(pages)):
		return effects.TooLarge, &effects.Why{
			Field: "pages for one peer", Ours: "at most " + number(v.Pool.MostOfOne()) + " (pd_buffer_size, peer_share_pct)",
			Theirs: number(pages),
		}
	}
	if code, why := r.fits(n, layout, lastTokens); code != effects.OK {
		return code, why
	}
	var check protocol.KeyCheck
	for i, key := range keys {
		if err := check.Check(key, r.cfg.Wire.KeyBytes); err != nil {
			return effects.Malformed, &effects.Why{Field: at("keys", i), Theirs: effects.Words([]byte(err.Error()))}
		}
	}
	return effects.OK, nil
}

// fits says whether chunks of this layout are ours.
func (r *rooms) fits(n int, layout protocol.Layout, lastTokens uint32) (effects.Code, *effects.Why) {
	if layout != r.cfg.Layout {
		// A single partial chunk comes with its own shape.
		short, err := r.cfg.Layout.WithTokens(lastTokens)
		if n != 1 || err != nil || short != layout {
			why, _ := link.Differ(r.cfg.Layout, layout)
			return effects.Mismatch, &why
		}
	}
	if lastTokens == 0 || lastTokens > r.cfg.Layout.Tokens() {
		return effects.Invalid, &effects.Why{
			Field: "last_chunk_toks", Ours: "1 to " + number(r.cfg.Layout.Tokens()), Theirs: number(lastTokens),
		}
	}
	return effects.OK, nil
}

// named is a hash of keys, in order, and of how many tokens the last one has: a retry names those of its first
// attempt. r.hashes gets those of the keys.
func (r *rooms) named(keys [][]byte, lastTokens uint32) uint64 {
	r.hashes = r.hashes[:0]
	for _, key := range keys {
		r.hashes = append(r.hashes, r.Store.Hash(key))
	}
	return land.Sum(r.hashes, lastTokens)
}

func (r *rooms) checkKeys(keys [][]byte) (effects.Code, *effects.Why) {
	switch {
	case r.draining:
		return effects.Draining, &effects.Why{}
	case len(keys) == 0:
		return effects.Invalid, &effects.Why{Field: "Keys", Theirs: "empty", Ours: "one or more"}
	case len(keys) > int(r.cfg.BatchMax):
		return effects.TooLarge, &effects.Why{
			Field: "Keys", Theirs: number(len(keys)), Ours: "at most " + number(r.cfg.BatchMax) + " (limits.keys_per_batch)",
		}
	}
	var check protocol.KeyCheck
	for i, key := range keys {
		if err := check.Check(key, r.cfg.Wire.KeyBytes); err != nil {
			return effects.Invalid, &effects.Why{Field: at("Keys", i), Theirs: effects.Words([]byte(err.Error()))}
		}
	}
	return effects.OK, nil
}

// waitable says whether a wait can be one.
func waitable(field string, d effects.Duration) (effects.Code, *effects.Why) {
	if d < 0 {
		return effects.Invalid, &effects.Why{Field: field, Theirs: d.String(), Ours: "0 or more"}
	}
	return effects.OK, nil
}
