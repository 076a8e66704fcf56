package rank

import (
	"github.com/kvferry/kvferry/effects"
)

// startCopy puts the end of a copy on its way.
func (r *rig) startCopy(n *node, e *effects.Copy) {
	var from, to []effects.Page
	for _, p := range e.Pairs {
		from, to = append(from, p.From), append(to, p.To)
		if p.From.Pool != 0 || p.From.Index >= n.rank.cfg.Pages || p.To.Pool != 0 || p.To.Index < n.rank.cfg.Pages ||
			p.From.Length != p.To.Length {
			r.t.Fatalf("%s copies %v to %v", n.name, p.From, p.To)
		}
	}
	r.printf("%s Copy %s to arena pages %s", n.name, indexes(from), indexes(to))
	r.push(n, "CopyDone", &effects.CopyDone{Corr: e.Corr, Settled: true, At: r.now})
}

// unsettle lets a copy or a read under way fail, and go on for a while.
func (r *rig) unsettle(it *item, code effects.Code) {
	var corr effects.Corr
	switch ev := it.ev.(type) {
	case *effects.CopyDone:
		ev.Code, ev.Settled, corr = code, false, ev.Corr
	case *effects.TransferDone:
		ev.Code, ev.Settled, corr = code, false, ev.Corr
	default:
		r.t.Fatalf("%s is always settled here", it.name)
	}
	r.push(it.to, "Settled", &effects.Settled{Corr: corr, Code: code})
}

// checkPool is S5 of one pool, or of the arena behind it.
func (r *rig) checkPool(n *node, pool effects.PoolID, first, free, total int) {
	used := 0
	for i := range total {
		if p := n.rank.PageState(pool, uint32(first+i)); p.Refs+p.Holds+p.Loans > 0 || p.Grant != 0 {
			used++
		}
	}
	if used+free != total {
		r.t.Fatalf("%s: pool %d has %d pages used, %d free, %d in all", n.name, pool, used, free, total)
	}
}

func keys(names []string) (out [][]byte) {
	for _, name := range names {
		out = append(out, []byte("m@1@0@"+name+"@half"))
	}
	return out
}
