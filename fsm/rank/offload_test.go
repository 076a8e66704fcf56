package rank

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// offload puts the end of a copy on its way.
func (r *rig) offload(n *node, e *effects.Copy) {
	var from, to []effects.Page
	for _, p := range e.Pairs {
		from, to = append(from, p.From), append(to, p.To)
		if arena := n.rank.cfg.ArenaPages > 0 && p.To.Pool == 0 && p.To.Index >= n.rank.cfg.Pages; p.From.Pool != 0 ||
			p.From.Index >= n.rank.cfg.Pages || p.To.Pool != HostPool && !arena || p.From.Length != p.To.Length {
			r.t.Fatalf("%s copies %v to %v", n.name, p.From, p.To)
		}
	}
	where := "host"
	if n.rank.cfg.ArenaPages > 0 {
		where = "arena"
	}
	r.printf("%s Copy %s to %s pages %s", n.name, indexes(from), where, indexes(to))
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
		r.t.Fatalf("%s is always settled here", it.what)
	}
	r.push(it.to, "Settled", &effects.Settled{Corr: corr, Code: code})
}

// conserves is S5 of one pool, or of the arena behind it.
func (r *rig) conserves(n *node, pool effects.PoolID, first, free, total int) {
	used := 0
	for i := range total {
		if p := n.rank.Page(pool, uint32(first+i)); p.Refs+p.Holds+p.Loans > 0 || p.Grant != 0 {
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

// Who may offload, and that the high-water mark is of the pool that is offered from.
func TestOffloadConfiguration(t *testing.T) {
	base := Config{
		Role: RoleSender, Planes: []Plane{{Name: "p"}},
		Common:   Common{Layout: layout},
		Memory:   Memory{Pages: 4, HostPages: 100},
		Offering: Offering{Pull: true, DoneAddr: effects.Addr{Host: "h", Port: 1}},
	}
	r, err := New(base, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Stats(); s.PagesTotal != 4 || s.HostTotal != 100 || s.HostFree != 100 || r.cfg.highWater() != 98 {
		t.Errorf("high water %d of %+v", r.cfg.highWater(), s)
	}
	if got := r.Limits().Copies; got != 100 {
		t.Errorf("%d copies at a time, with 100 host pages", got)
	}
	push, receiver := base, base
	push.Pull = false
	receiver.Role = RoleReceiver
	for _, cfg := range []Config{push, receiver} {
		if _, err := New(cfg, 1, 0); err == nil || !strings.Contains(err.Error(), "pd_use_cpu_offload needs pd_pull_mode") {
			t.Errorf("refused with %v", err)
		}
	}
}
