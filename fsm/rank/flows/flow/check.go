package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// The functions of this file check keys and layouts before any other check.

// CheckServable checks whether a batch could ever be served, with this number of pages of the pool. CheckServable
// returns OK, or a code and the reason.
func (e *Env) CheckServable(
	keys [][]byte, layout protocol.Layout, lastTokens uint32, pages int,
) (effects.Code, *effects.Why) {
	if code, why := e.CheckBatch(len(keys), pages, layout, lastTokens); code != effects.OK {
		return code, why
	}
	var check protocol.KeyChecker
	for i, key := range keys {
		if err := check.Check(key, e.Cfg.Wire.KeyBytes); err != nil {
			return effects.Malformed, &effects.Why{Field: EntryName("keys", i), Theirs: effects.SanitizeText([]byte(err.Error()))}
		}
	}
	return effects.OK, nil
}

// CheckBatch checks the same as Check, except for the keys themselves.
func (e *Env) CheckBatch(n int, pages int, layout protocol.Layout, lastTokens uint32) (effects.Code, *effects.Why) {
	switch {
	case e.Draining:
		return effects.Draining, EndReason(effects.Draining)
	case n == 0:
		return effects.Invalid, &effects.Why{Field: "keys", Ours: "one or more", Theirs: "none"}
	case n > int(e.Cfg.BatchMax):
		return effects.TooLarge, &effects.Why{
			Field: "limits.keys_per_batch", Ours: FormatCount(e.Cfg.BatchMax), Theirs: FormatCount(n),
			Remedy: "send fewer at a time, or raise the limit here",
		}
	case !e.Pool.CanEverGrant(uint32(pages)):
		return effects.TooLarge, &effects.Why{
			Field: "pages for one peer", Ours: "at most " + FormatCount(e.Pool.ClassLimit()) + " (" + e.Pool.ConfigKey() + ", peer_share_pct)",
			Theirs: FormatCount(pages),
		}
	}
	return checkLayout(e.Cfg, n, layout, lastTokens)
}

// checkLayout checks whether this rank can take n chunks of this layout.
func checkLayout(cfg *Config, n int, layout protocol.Layout, lastTokens uint32) (effects.Code, *effects.Why) {
	if layout != cfg.Layout {
		// A single partial chunk comes with its own shape.
		short, err := cfg.Layout.WithTokens(lastTokens)
		if n != 1 || err != nil || short != layout {
			why, _ := link.CompareLayouts(cfg.Layout, layout)
			return effects.Mismatch, &why
		}
	}
	if lastTokens == 0 || lastTokens > cfg.Layout.TokenCount() {
		return effects.Invalid, &effects.Why{
			Field: "last_chunk_toks", Ours: "1 to " + FormatCount(cfg.Layout.TokenCount()), Theirs: FormatCount(lastTokens),
		}
	}
	return effects.OK, nil
}

// HashBatch returns a hash of the keys that a peer of a class names, in order, and of the number of tokens in the last
// chunk. A retry has the same hash as its first attempt. HashBatch also stores the hashes of the keys in e.Hashes.
func (e *Env) HashBatch(class int, keys [][]byte, lastTokens uint32) uint64 {
	e.Hashes = e.Hashes[:0]
	realm := e.RealmOf(class)
	for _, key := range keys {
		e.Hashes = append(e.Hashes, e.Store.HashIn(realm, key))
	}
	return landing.ContentHash(e.Hashes, lastTokens)
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
			Field: "Keys", Theirs: FormatCount(len(keys)), Ours: "at most " + FormatCount(e.Cfg.BatchMax) + " (limits.keys_per_batch)",
		}
	}
	var check protocol.KeyChecker
	for i, key := range keys {
		if err := check.Check(key, e.Cfg.Wire.KeyBytes); err != nil {
			return effects.Invalid, &effects.Why{Field: EntryName("Keys", i), Theirs: effects.SanitizeText([]byte(err.Error()))}
		}
	}
	return e.CheckOwnTenants(keys)
}

// CheckDuration checks that a duration that an engine gave in a field can be waited for, that is, is not negative.
func CheckDuration(field string, d effects.Duration) (effects.Code, *effects.Why) {
	if d < 0 {
		return effects.Invalid, &effects.Why{Field: field, Theirs: d.String(), Ours: "0 or more"}
	}
	return effects.OK, nil
}
