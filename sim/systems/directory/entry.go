package directory

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// An entry is what was told of one worker since it registered.
type entry struct {
	who     who
	is, was protocol.UUID
	url     string
	at      string       // as addressOf says
	heard   effects.Time // by the time that the directory was awake
	told    []uint64     // all that it may be believed to have
	sure    *account     // what it must be believed to have; nil: nobody can say
	sync    *syncing
	begun   bool   // operations of it are believed
	counts  bool   // the number of the next operation is known
	next    uint64 // that is it
	gaps    []gap
	last    map[uint64]effects.Time // when a chunk was told of last
}

// A gap is where operations are missing.
type gap struct {
	at   effects.Time
	half effects.Time // the directory's first step that far behind it; 0: there was none yet
}

// An account is what operations come to that are whole.
type account struct {
	chunks []uint64
	next   uint64 // the number of the next one
}

// syncing is a full sync under way.
type syncing struct {
	id      string
	began   effects.Time
	went    effects.Time
	seen    []bool
	full    int // batches of them that told of a chunk
	ended   bool
	account *account // nil: something is missing
}

// operates follows what a worker says that it did.
func (t *entry) operates(now effects.Time, ops []protocol.KVOperation) {
	for i := range ops {
		op := &ops[i]
		t.begun = t.begun || op.Seq == 0
		t.misses(now, op)
		switch {
		case op.Type == protocol.OpAdmit:
			t.told = with(t.told, op.Key.Bits)
		case t.begun:
			t.told = without(t.told, op.Key.Bits)
		}
		t.sure = t.sure.follow(op)
		if t.sync != nil {
			t.sync.account = t.sync.account.follow(op)
		}
	}
}

// does is an operation without a number.
func (t *entry) does(chunk uint64, evict bool) {
	change := with
	if evict {
		change = without
	}
	t.told = change(t.told, chunk)
	if t.sure != nil {
		t.sure.chunks = change(t.sure.chunks, chunk)
	}
	if t.sync != nil && t.sync.account != nil {
		t.sync.account.chunks = change(t.sync.account.chunks, chunk)
	}
}

// follow is an account after one more operation; nil: one is missing.
func (a *account) follow(op *protocol.KVOperation) *account {
	if a == nil || op.Seq != a.next {
		return nil
	}
	if a.next++; op.Type == protocol.OpEvict {
		a.chunks = without(a.chunks, op.Key.Bits)
	} else {
		a.chunks = with(a.chunks, op.Key.Bits)
	}
	return a
}

// misses follows whether an operation is the next one. One that says 0 may be of a worker that began to count anew, and
// before one does none is believed.
func (t *entry) misses(now effects.Time, op *protocol.KVOperation) {
	if !t.begun {
		return
	}
	if t.counts && op.Seq != t.next && op.Seq != 0 {
		t.gaps = append(t.gaps, gap{at: now})
	}
	t.counts, t.next = true, op.Seq+1
	t.hears(now, op.Key.Bits)
}

// hears notes when a chunk is told of.
func (t *entry) hears(now effects.Time, chunk uint64) {
	if t.last == nil {
		t.last = map[uint64]effects.Time{}
	}
	t.last[chunk] = now
}

// fade forgets what was told before a gap. What goes on as a second one comes goes in the time after that, which begins
// with the directory's first step behind its own time: one that is frozen is late for it.
func (t *entry) fade(now effects.Time) {
	for i := range t.gaps {
		if g := &t.gaps[i]; g.half == 0 && now.Sub(g.at) >= fades {
			g.half = now
		}
	}
	for len(t.gaps) > 0 && t.gaps[0].half != 0 && now.Sub(t.gaps[0].half) >= fades {
		t.told = slices.DeleteFunc(t.told, func(chunk uint64) bool { return t.last[chunk] < t.gaps[0].at })
		t.gaps = t.gaps[1:]
	}
}

func (t *entry) syncs(id []byte) bool { return t.sync != nil && t.sync.id == string(id) }

func (t *entry) batch(now effects.Time, m *protocol.FullSyncBatchMsg) {
	for _, k := range m.Keys {
		t.told = with(t.told, k.Bits)
		t.hears(now, k.Bits)
	}
	if !t.syncs(m.SyncID) || int(m.BatchID) >= len(t.sync.seen) || t.sync.seen[m.BatchID] {
		return
	}
	if t.sync.seen[m.BatchID] = true; len(m.Keys) > 0 {
		t.sync.full++
	}
	t.sync.goesOn(now)
	if a := t.sync.account; a != nil {
		for _, k := range m.Keys {
			a.chunks = with(a.chunks, k.Bits)
		}
	}
	t.taken()
}

// perPatience is how many batches with chunks a sync has to tell within a directory's patience once that is over. One
// that tells fewer may be given up while batches still come: otherwise it would hold its place for as long as it likes.
const perPatience = 64

// goesOn notes that something of a sync came, from when on the directory's patience with it counts anew, unless the
// sync is too slow. The directory is then free to forget it, and what it would have told is nothing that the directory
// was told. A sync that keeps to the pace has no such excuse.
func (s *syncing) goesOn(now effects.Time) {
	if now.Sub(s.began) <= stuck+effects.Duration(s.full)*(stuck/perPatience) {
		s.went = now
	}
}

// taken ends a sync that is whole.
func (t *entry) taken() {
	if s := t.sync; s.ended && !slices.Contains(s.seen, false) {
		t.sure, t.sync, t.gaps = s.account, nil, nil
	}
}
