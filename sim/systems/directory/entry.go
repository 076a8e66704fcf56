package directory

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// An entry is what a directory was told about one worker since the worker registered.
type entry struct {
	who     who
	is, was protocol.UUID
	url     string
	at      string       // as returned by addressOf
	heard   effects.Time // time of the last message, as time that the directory was awake
	told    []uint64     // chunks that the directory may state
	sure    *account     // chunks that the directory must state; nil if an operation is missing
	sync    *syncing
	begun   bool   // the directory applies the worker's operations
	counts  bool   // the number of the next operation is known
	next    uint64 // the number of the next operation
	gaps    []gap
	last    map[uint64]effects.Time // time of the last report, by chunk
}

// A gap is a place in the reports where operations are missing.
type gap struct {
	at   effects.Time
	half effects.Time // first step of the directory after a fade time; 0 if there was none yet
}

// account holds the chunks that result from a sequence of operations without a gap.
type account struct {
	chunks []uint64
	next   uint64 // the number of the next operation
}

// syncing is the state of a full sync in progress.
type syncing struct {
	id      string
	began   effects.Time
	went    effects.Time
	seen    []bool
	full    int // batches with chunks
	ended   bool
	account *account // nil if an operation or a batch is missing
}

// operates applies a report of operations.
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

// does applies an operation that has no sequence number.
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

// follow applies one more operation. The result is nil if an earlier operation is missing.
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

// misses checks whether an operation has the expected sequence number, and records a gap if not. Number 0 is always
// accepted, because the worker may have started to count again; the directory applies no operation before number 0.
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

// hears records the time of a report about a chunk.
func (t *entry) hears(now effects.Time, chunk uint64) {
	if t.last == nil {
		t.last = map[uint64]effects.Time{}
	}
	t.last[chunk] = now
}

// fade drops chunks that were last reported before a gap. The directory may keep such chunks for two fade times: if the
// gap falls into an earlier fade, the directory begins another fade when the earlier fade is over. The second fade time
// begins with the directory's first step after the first one, which is late if the directory was frozen.
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

// batch applies a batch of a full sync.
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

// perPatience is the number of batches with chunks that a sync must deliver per sync timeout, once the first timeout
// has passed. The directory may give up a slower sync although batches still arrive; otherwise the sync could occupy a
// slot for ever.
const perPatience = 64

// goesOn records that a part of a sync has arrived, so that the sync timeout starts again, unless the sync is too slow.
// The directory may then give up the sync, and need not state its chunks. A sync that is fast enough must not be given
// up.
func (s *syncing) goesOn(now effects.Time) {
	if now.Sub(s.began) <= stuck+effects.Duration(s.full)*(stuck/perPatience) {
		s.went = now
	}
}

// taken finishes a sync that is complete.
func (t *entry) taken() {
	if s := t.sync; s.ended && !slices.Contains(s.seen, false) {
		t.sure, t.sync, t.gaps = s.account, nil, nil
	}
}
