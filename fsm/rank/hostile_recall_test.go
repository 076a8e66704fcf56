package rank

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/protocol"
)

// What hostile peers do to recalls.

// hostileRecall goes on until a message is under way, or changes a question or an answer about chunks in place.
func (r *rig) hostileRecall(cmd, first string, arg func(string) []string) bool {
	switch cmd {
	case "upto":
		under := func() bool {
			return slices.ContainsFunc(r.items, func(it item) bool { return strings.HasPrefix(it.name, first) })
		}
		for !under() {
			if !r.deliverNext() {
				r.t.Fatalf("no %s ever is under way", first)
			}
		}
		return true
	case "twist":
	default:
		return false
	}
	body, lim := r.findPending(first).message(), protocol.DefaultLimits()
	var ask protocol.CacheQueryRequest
	var answer protocol.CacheQueryResponse
	how := arg("how")[0]
	if r.twistLookup(body, how, arg("at")) {
		return true
	}
	if err := ask.Decode(*body, &lim); err == nil {
		switch how {
		case "stranger": // who knows what everybody may
			ask.Ext.Incarnation = protocol.UUID{1}
		case "name": // of another life, or another peer
			ask.Ext.To = protocol.UUID{2}
		case "operation":
			ask.Ext.Operation = 0
		case "plain":
			ask.HasExt = false
		default:
			r.t.Fatalf("a question cannot be twisted as %q", how)
		}
		*body = ask.Append(nil)
		return true
	}
	if err := answer.Decode(*body, &lim); err != nil {
		r.t.Fatalf("%s is neither a question nor an answer: %v", first, err)
	}
	switch how {
	case "keys": // another chunk than the first that was asked for
		answer.CachedKeys[0] = []byte("z")
	case "more": // than was asked for
		answer.CachedKeys = append(answer.CachedKeys, answer.CachedKeys[0])
		answer.CachedIndexes = append(answer.CachedIndexes, 0)
		answer.Ext.Generations = append(answer.Ext.Generations, 1)
	case "index":
		n, err := strconv.ParseInt(arg("at")[0], 10, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		answer.CachedIndexes[0] = n
	case "generations":
		answer.Ext.Generations = nil
	case "length": // more than a page has
		answer.Ext.Lengths = []uint64{1 << 40}
	case "grant":
		answer.Ext.Grant = 0
	case "plain":
		answer.HasExt = false
	default:
		r.t.Fatalf("an answer cannot be twisted as %q", how)
	}
	*body = answer.Append(nil)
	return true
}
