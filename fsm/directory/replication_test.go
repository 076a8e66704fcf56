package directory

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"pgregory.net/rapid"
)

// A town is a directory, and worker a of it, of which others may tell.
type town struct {
	*testing.T
	d   Directory
	now effects.Time
}

const heard, one, other = 0, 1, 2 // by whom

func newTown(t *testing.T) *town {
	c := Default()
	c.Silence, c.Disconnected, c.Yield, c.SyncTimeout = 100*effects.Second, 0, 30*effects.Second, 10*effects.Second
	return &town{T: t, d: New(c)}
}

func sender(by, gaps uint64) Sender {
	return Sender{Instance: []byte("a"), Incarnation: effects.Incarnation{1}, Directory: by, Gaps: gaps}
}

func home() Address { return Address{IP: []byte("h"), Port: 1, URL: []byte("h:2")} }

func (w *town) wants(what string, got, want any) {
	w.Helper()
	if got != want {
		w.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (w *town) operates(s Sender, evict bool, hash, sequence uint64) effects.Code {
	return w.d.ApplyReport(w.now, &Report{Sender: s, Location: []byte("cpu"),
		Operations: []Operation{{evict, hash, sequence}}})
}

func (w *town) beats(s Sender) SyncReason {
	why, _ := w.d.Heartbeat(w.now, s, home())
	return why
}

// syncs tells of one chunk: its begin before, and the rest behind that gap.
func (w *town) syncs(s Sender, hash, next, gaps uint64) {
	w.Helper()
	id, at := []byte("id"), []byte("cpu")
	w.wants("begin", w.d.BeginSync(w.now, &SyncBegin{Sender: s, Location: at, ID: id, Batches: 1, NextSequence: next,
		Numbered: true}), effects.OK)
	s.Gaps = gaps
	w.wants("batch", w.d.AddSyncBatch(w.now, &SyncBatch{Sender: s, Location: at, ID: id, Hashes: []uint64{hash}}), effects.OK)
	w.wants("end", w.d.EndSync(w.now, &SyncEnd{Sender: s, Location: at, ID: id, Chunks: 1}), effects.OK)
}

// has is how many of these chunks are known in a row.
func (w *town) has(hashes ...uint64) int {
	peers, _ := w.d.Lookup(w.now, Sender{Instance: []byte("b")}, hashes, nil)
	if len(peers) == 0 {
		return 0
	}
	return peers[0].Chunks
}

func (w *town) wanted() int {
	return len(w.d.Replication().CollectWanted(w.now, WantBackoff{effects.Second, 4 * effects.Second}, nil))
}

// What others tell of a worker that is heard here is not believed, until it was not heard for a while.
func TestHeardBeatsTold(t *testing.T) {
	w := newTown(t)
	w.wants("register", w.d.Register(w.now, sender(heard, 0), home()), effects.OK)
	w.wants("an operation", w.operates(sender(heard, 0), false, 7, 0), effects.OK)
	w.wants("another's", w.operates(sender(one, 1), true, 7, 1), effects.Stale)
	w.wants("it left another", w.d.Deregister(w.now, sender(one, 1), home()), effects.Stale)
	w.wants("it is at another", w.d.Register(w.now, sender(one, 1), home()), effects.Stale)
	w.wants("chunks", w.has(7), 1)
	w.now += effects.Time(30 * effects.Second)
	w.wants("another's, much later", w.operates(sender(one, 1), true, 7, 1), effects.OK)
	w.wants("chunks", w.has(7), 0)
	w.wants("wanted", w.wanted(), 1)
	w.wants("wanted at once again", w.wanted(), 0)
}

// What is told late of a worker's life before is not taken for its next one: a directory that began anew reads what it
// told in a life of its own before, when it may hear the worker's present life already.
func TestLifeBeforeIsToldLate(t *testing.T) {
	w := newTown(t)
	before := sender(one, 1)
	before.Incarnation = effects.Incarnation{9}
	w.wants("a heartbeat", w.beats(sender(heard, 0)), UnknownWorker)
	w.wants("its life before is told", w.d.Register(w.now, before, home()), effects.Stale)
	w.beats(before)
	w.syncs(sender(heard, 0), 7, 0, 0)
	w.wants("chunks", w.has(7), 1)
	w.wants("told", w.d.Replication().CountRemoteWorkers(), 0)
	w.now += effects.Time(30 * effects.Second)
	w.wants("a life that is told much later", w.d.Register(w.now, before, home()), effects.OK)
	w.wants("chunks", w.has(7), 0)
}

// A directory that is late with its reports of a restarted worker tells of both incarnations in their order. Its reports
// of the new one are believed, although another directory has told of the new one before.
func TestBothIncarnationsAreToldLate(t *testing.T) {
	w := newTown(t)
	before := sender(one, 1)
	before.Incarnation = effects.Incarnation{9}
	w.wants("register", w.d.Register(w.now, sender(other, 2), home()), effects.OK)
	w.wants("the incarnation before", w.d.Register(w.now, before, home()), effects.OK)
	w.wants("the present one by the first directory", w.operates(sender(other, 2), false, 7, 0), effects.Stale)
	w.wants("it registers at the first directory", w.d.Register(w.now, sender(other, 2), home()), effects.Stale)
	w.wants("and at the late one", w.d.Register(w.now, sender(one, 1), home()), effects.OK)
	w.wants("an operation", w.operates(sender(one, 1), false, 7, 0), effects.OK)
	w.wants("chunks", w.has(7), 1)

	w = newTown(t)
	w.beats(sender(other, 2))
	w.beats(before)
	w.beats(sender(one, 1))
	w.syncs(sender(one, 1), 7, 0, 1)
	w.wants("chunks after heartbeats", w.has(7), 1)
	w.wants("wanted", w.wanted(), 0)
}

// A worker that is heard is asked for all where others told of it until then; and they hear who has it now.
func TestHeardFromNowOn(t *testing.T) {
	w := newTown(t)
	w.wants("register", w.d.Register(w.now, sender(one, 1), home()), effects.OK)
	w.wants("an operation", w.operates(sender(one, 1), false, 7, 0), effects.OK)
	w.wants("of a third", w.operates(sender(other, 2), true, 7, 1), effects.Stale)
	w.d.Replication().ReassignWorker(w.now, sender(other, 2))
	w.wants("of a third that hears it now", w.operates(sender(other, 2), false, 7, 1), effects.OK)
	w.wants("told", w.d.Replication().CountRemoteWorkers(), 1)
	w.wants("a lookup of it", w.has(7), 1)

	w.wants("a heartbeat asks", w.beats(sender(heard, 0)), UnknownWorker)
	taken := w.d.Replication().DrainTaken()
	if len(taken) != 1 || taken[0] != (WorkerRef{Instance: "a"}) || len(w.d.Replication().DrainTaken()) != 0 {
		t.Errorf("taken: %+v", taken)
	}
	w.wants("what was told stays", w.has(7), 1)
	w.wants("told", w.d.Replication().CountRemoteWorkers(), 0)
	w.syncs(sender(heard, 0), 8, 5, 0)
	w.wants("what was told", w.has(7), 0)
	w.wants("what it told itself", w.has(8), 1)

	w.wants("another one misses it", w.d.Replication().RequestSync(sender(heard, 0)), effects.OK)
	w.wants("the next heartbeat", w.beats(sender(heard, 0)), ReplicaGap)
}

// A directory that begins anew may hear a worker before it has read what it told of it in the life before: the others
// are to hear of that worker by this life from now on, and not after a while.
func TestHeardBeforeItIsRead(t *testing.T) {
	taken := func(w *town) int { return len(w.d.Replication().DrainTaken()) }
	w := newTown(t)
	w.wants("a heartbeat of one that nobody knows", w.beats(sender(heard, 0)), UnknownWorker)
	w.wants("taken", taken(w), 1)
	w.beats(sender(heard, 0))
	w.wants("taken again", taken(w), 0)
	w.d.Replication().ReassignWorker(w.now, sender(other, 2))
	w.wants("told, of one that is heard here", w.d.Replication().CountRemoteWorkers(), 0)

	w = newTown(t)
	w.wants("registers", w.d.Register(w.now, sender(heard, 0), home()), effects.OK)
	w.wants("taken before all was read", taken(w), 1)

	w = newTown(t)
	w.now++
	w.d.Replication().RecordCaughtUp(w.now)
	w.wants("registers", w.d.Register(w.now, sender(heard, 0), home()), effects.OK)
	w.wants("taken, and nobody told of it", taken(w), 0)
}

// Words of two lives come on connections of their own. Where the last one of the former comes last, the present one is
// believed again when the other was not heard for a while.
func TestFormerLifeComesLast(t *testing.T) {
	w := newTown(t)
	former, present := sender(heard, 0), sender(heard, 0)
	former.Incarnation = effects.Incarnation{9}
	w.wants("the present life", w.d.Register(w.now, present, home()), effects.OK)
	w.wants("the former one", w.d.Register(w.now, former, home()), effects.OK)
	w.wants("the present one", w.d.Register(w.now, present, home()), effects.Stale)
	w.now += effects.Time(29 * effects.Second)
	w.wants("and its heartbeat", w.beats(present), NoSync)
	w.now += effects.Time(effects.Second)
	w.wants("a heartbeat after a while", w.beats(present), UnknownWorker)
	w.wants("the former one then", w.d.Register(w.now, former, home()), effects.Stale)
}

// What was told before a gap fades, unless all is told again: of a worker that is heard here, and of one of which
// others tell.
func TestFade(t *testing.T) {
	for by, gap := range map[uint64]func(w *town) effects.Code{
		heard: func(w *town) effects.Code { return w.operates(sender(heard, 0), false, 8, 5) },
		one:   func(w *town) effects.Code { return w.operates(sender(one, 2), false, 8, 1) },
	} {
		w := newTown(t)
		w.d.config.Silence = 0
		w.wants("register", w.d.Register(w.now, sender(by, by), home()), effects.OK)
		w.wants("an operation", w.operates(sender(by, by), false, 7, 0), effects.OK)
		gap(w)
		w.now += effects.Time(w.d.config.Fade - 1)
		w.d.Advance(w.now)
		w.wants("chunks before", w.has(7, 8), 2)
		w.now++
		w.d.Advance(w.now)
		w.wants("what was told before", w.has(7), 0)
		w.wants("what was told since", w.has(8), 1)
		w.now += 2 * effects.Time(w.d.config.Fade)
		w.d.Advance(w.now)
		w.wants("what was told since, later", w.has(8), 1)
		next := map[uint64]uint64{heard: 6, one: 2}[by]
		w.wants("another operation", w.operates(sender(by, 2*by), false, 9, next), effects.OK)
		w.wants("all that was told since", w.has(8, 9), 2)
	}
	w := newTown(t)
	w.wants("register", w.d.Register(w.now, sender(heard, 0), home()), effects.OK)
	w.operates(sender(heard, 0), false, 7, 3)
	w.syncs(sender(heard, 0), 7, 4, 0)
	if at, ok := w.d.Deadline(); !ok || at != w.now.Add(w.d.config.Silence) {
		t.Errorf("after a full sync it waits for %v", at)
	}
}

// What was lost while a full sync went on is not made up for by it.
func TestGapInASync(t *testing.T) {
	w := newTown(t)
	w.wants("register", w.d.Register(w.now, sender(one, 1), home()), effects.OK)
	w.syncs(sender(one, 1), 7, 0, 2)
	w.wants("chunks", w.has(7), 1)
	w.wants("wanted", w.wanted(), 1)
	w.now += effects.Time(effects.Second)
	w.syncs(sender(one, 2), 7, 0, 2)
	w.wants("wanted after one more", w.wanted(), 0)
	w.wants("asked of who does not hear it", w.d.Replication().RequestSync(sender(heard, 0)), effects.NotFound)

	w.d.Replication().ForgetWorker(sender(other, 1))
	w.wants("a third does not hear it", w.has(7), 1)
	w.wants("it left", w.d.Deregister(w.now, sender(one, 2), home()), effects.OK)
	w.wants("chunks of one that left", w.has(7), 0)
}

// Nobody is silent whom nobody can be heard to tell of.
func TestSilenceOfOthers(t *testing.T) {
	w := newTown(t)
	w.wants("register", w.d.Register(w.now, sender(one, 1), home()), effects.OK)
	w.wants("an operation", w.operates(sender(one, 1), false, 7, 0), effects.OK)
	w.d.Replication().RecordCaughtUp(w.now)
	w.now += effects.Time(1000 * effects.Second)
	w.d.Advance(w.now)
	w.wants("chunks while nothing is heard", w.has(7), 1)
	w.d.Replication().RecordCaughtUp(w.now)
	w.d.Advance(w.now)
	w.wants("chunks", w.has(7), 0)
}

// Who is late for what others tell, and is late again by what comes of it, asks ever more seldom, and is whole soon
// after that ends.
func TestLateAgain(t *testing.T) {
	w := newTown(t)
	w.wants("register", w.d.Register(w.now, sender(one, 1), home()), effects.OK)
	gaps, at := uint64(1), []int{}
	until := func(tenths int) {
		for ; w.now < effects.Time(tenths)*effects.Time(effects.Second)/10; w.now += effects.Time(effects.Second / 10) {
			gaps++
			w.operates(sender(one, gaps), false, 7, gaps)
			if w.wanted() > 0 { // It has all told, and the next gap is there.
				at = append(at, int(w.now*10/effects.Time(effects.Second)))
				w.syncs(sender(one, gaps), 8, gaps+1, gaps)
			}
		}
	}
	until(160)
	if want := []int{0, 10, 30, 70, 110, 150}; !slices.Equal(at, want) {
		t.Errorf("it is wanted at %v tenths of a second, want %v", at, want)
	}
	w.syncs(sender(one, gaps), 9, gaps+1, gaps)
	w.wants("what is missing of one that is whole", w.wanted(), 0)
	w.now += effects.Time(8 * effects.Second)
	w.wants("wanted when nothing is missing", w.wanted(), 0)
	at = at[:0]
	until(270)
	if want := []int{240, 250}; !slices.Equal(at, want) {
		t.Errorf("long after that it is wanted at %v, want %v", at, want)
	}
}

// Whenever something is lost: in any span of twice the longest wait a worker is wanted as often as a Pace says, and
// that wait after its last gap at the latest.
func TestPaceHolds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newTown(t)
		w.wants("register", w.d.Register(w.now, sender(one, 1), home()), effects.OK)
		var at []effects.Time
		missing := true
		for n, end := 0, rapid.IntRange(1, 400).Draw(r, "steps"); n < end+45; n++ {
			switch w.now += effects.Time(effects.Second / 10); {
			case n < end:
				missing = rapid.IntRange(0, 2).Draw(r, "whole") > 0
			case n == end:
				missing = true
			}
			if h := w.d.roster.workers.At(0); h != 0 {
				w.d.roster.workers.Get(h).syncReason = NoSync
				if missing {
					w.d.roster.workers.Get(h).syncReason = OperationGap
				}
			}
			if w.wanted() > 0 {
				at = append(at, w.now)
			}
		}
		for i := range at {
			if i >= 4 && at[i].Sub(at[i-4]) < 8*effects.Second {
				r.Fatalf("it is wanted at %v", at)
			}
		}
		if len(at) == 0 || w.now.Sub(at[len(at)-1]) > 4*effects.Second {
			r.Fatalf("at %v it was wanted at %v", w.now, at)
		}
	})
}
