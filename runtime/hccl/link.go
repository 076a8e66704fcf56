package hccl

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// A link is what decides about one peer that we imported: when to have a communicator, what to submit on it, when to
// condemn it, and what is owed to the machine. It is pure: time comes with each event, and what it wants done it asks
// of its hands.
//
//	asking ──accepted──► forming ──formed──► up ──condemned──► burying ──settled──► asking ...
//	                                          └── or, when nothing is to follow, ──► over
//
// A life is one communicator. Its number only grows, and its name follows from it, so none is ever used after it was
// condemned. The next one is asked for only when the last one is settled: no batch is in the hands of two.
type link struct {
	hands hands
	rules rules
	id    effects.Link
	peer  effects.Incarnation
	corr  effects.Corr // of the Import

	phase phase
	life  uint64
	tries int // lives in a row that could not be formed

	queue  []*transfer // told nothing yet, in order
	flight []*transfer // whose batch was submitted in this life and has not ended, in order

	revoked map[effects.GrantID]struct{} // by the peer, before this life
	before  effects.Time                 // grants that were given before it, by our clock, count as taken back too; 0: none

	blamed *transfer // by which the last life ended, unless the peer condemned it
	blame  effects.Code
	byPeer bool // the peer condemned the last life
	early  bool // the peer condemned a life that is being formed

	askedBy    effects.Time // until when the peer may take to answer
	progressBy effects.Time // until when a batch must have ended
	graceBy    effects.Time // until when one must whose transfer was told that it ended; 0: none

	imported bool
	dropped  bool
	hopeless bool         // there will be no proof for the life that is being buried
	final    bool         // no further life: lost, dropped or closed
	ended    effects.Code // why: what transfers end with from then on
}

// A hands carries out what a link decides. None of it blocks, and none of it calls the link back before it returns.
type hands interface {
	post(ev effects.Event)
	// tell says something to the peer about a life: offer, condemned or gone.
	tell(kind kind, life uint64)
	// form makes the communicator of a life and prepares it; formed answers. What failed is gone by then.
	form(life uint64)
	// bury ends every access of a life to any memory and takes its communicator away; settled answers when there is proof
	// that none can follow, stuck before it where that takes long, and despair instead where there will be none. Quiet:
	// nothing is in flight on it.
	bury(life uint64, quiet bool)
}

// rules are what a link is bound by.
type rules struct {
	window   int              // batches in flight
	tries    int              // lives in a row that may fail to be formed
	answer   effects.Duration // longest time until the peer answers an offer
	patience effects.Duration // longest time in which no batch ends
	grace    effects.Duration // longest time that a cancelled batch is waited for
}

type phase uint8

const (
	asking phase = iota
	forming
	up
	burying
	over
)

// ask begins the next life.
func (l *link) ask(now effects.Time) {
	l.life++
	l.phase, l.askedBy = asking, now.Add(l.rules.answer)
	l.hands.tell(kindOffer, l.life)
}

// accepted is the peer's answer to the offer of a life: whether it makes its end, and which grants of ours it has taken
// back so far. It takes none back after it without condemning this life, so whatever is submitted on it is under a
// grant that stands, or is proven gone before the owner uses the pages.
func (l *link) accepted(a accept, now effects.Time) {
	if l.phase != asking || a.life != l.life {
		return
	}
	if a.code != effects.OK {
		l.lose(a.code, now)
		return
	}
	l.verdict(now)
	l.byPeer, l.early = false, false
	l.revoked, l.before = make(map[effects.GrantID]struct{}, len(a.revoked)), 0
	if a.more {
		l.before = now
	}
	for _, grant := range a.revoked {
		l.revoked[grant] = struct{}{}
	}
	for _, t := range slices.Clone(l.queue) {
		if l.withdrawn(t) {
			l.tell(t, effects.Withdrawn, now)
		}
	}
	l.phase = forming
	l.hands.form(l.life)
}

// verdict ends the transfer that broke the last life, unless it was the peer that ended that: then whose batch
// noticed it first is no fault of its transfer.
func (l *link) verdict(now effects.Time) {
	if l.blamed != nil && !l.byPeer {
		l.tell(l.blamed, l.blame, now)
	}
	l.blamed = nil
}

// formed says how the forming of a life ended.
func (l *link) formed(life uint64, code effects.Code, now effects.Time) {
	switch {
	case l.phase != forming || life != l.life:
	case code == effects.OK:
		l.phase, l.tries = up, 0
		if !l.imported && !l.final {
			l.imported = true
			l.hands.post(&effects.Imported{Corr: l.corr, Code: effects.OK, Link: l.id})
		}
		if l.final || l.early {
			l.condemn()
		}
	case l.final:
		l.phase = over
	default:
		l.hands.tell(kindGone, life)
		if l.tries++; l.tries < l.rules.tries {
			l.ask(now)
			return
		}
		l.phase = over
		l.lose(code, now)
	}
}

// next is the transfer whose next batch is to be submitted now, or nil.
func (l *link) next() *transfer {
	if l.phase != up || len(l.flight) >= l.rules.window {
		return nil
	}
	for _, t := range l.queue {
		if t.sent < len(t.batches) {
			return t
		}
	}
	return nil
}

// outcome is what came of submitting a batch.
type outcome uint8

const (
	submitted outcome = iota
	expired           // not submitted: its time was over by the clock that was read just before
	broken            // the call failed: part of it may be under way
)

// submit takes the outcome for the transfer that next gave.
func (l *link) submit(t *transfer, how outcome, now effects.Time) {
	if how == expired {
		l.tell(t, effects.Expired, now)
		return
	}
	if len(l.flight) == 0 {
		l.progressBy = now.Add(l.rules.patience)
	}
	l.flight = append(l.flight, t)
	t.sent++
	t.flying++
	if how == broken {
		l.accuse(t, effects.Faulted)
		l.condemn()
	}
}

// landed says that the oldest batch in flight has ended: well, or not. What ends well while the life is being buried
// counts, too.
func (l *link) landed(life uint64, well bool, now effects.Time) {
	if life != l.life || len(l.flight) == 0 {
		return
	}
	if !well {
		if l.phase == up {
			l.accuse(l.flight[0], effects.Faulted)
			l.condemn()
		}
		return
	}
	t := l.flight[0]
	l.flight = l.flight[1:]
	l.progressBy = now.Add(l.rules.patience)
	l.land(t, true, now)
	if !slices.ContainsFunc(l.flight, func(t *transfer) bool { return t.told }) {
		l.graceBy = 0
	}
}

// accuse names the transfer that broke the life; the first counts.
func (l *link) accuse(t *transfer, code effects.Code) {
	if l.blamed == nil {
		l.blamed, l.blame = t, code
	}
}

// condemn ends the life: nothing is submitted on it any more.
func (l *link) condemn() {
	l.phase, l.graceBy = burying, 0
	l.hands.tell(kindCondemned, l.life)
	l.hands.bury(l.life, len(l.flight) == 0)
}

// condemned says that the peer has condemned a life: its own end of it goes away.
func (l *link) condemned(life uint64) {
	switch {
	case life == l.life && l.phase == up:
		l.byPeer = true
		l.condemn()
	case life == l.life && l.phase == forming:
		l.early = true
	case life == l.life && l.phase == burying, life+1 == l.life && l.phase == asking:
		l.byPeer = true
	}
}

// stuck says that the proof for a condemned life takes long: its outcomes do not wait for it.
func (l *link) stuck(life uint64, now effects.Time) {
	if life == l.life && l.phase == burying {
		l.verdict(now)
	}
}

// despair says that there will be no proof for a condemned life. What it touched stays unsettled, and the link of no
// use.
func (l *link) despair(life uint64, now effects.Time) {
	if life != l.life || l.phase != burying {
		return
	}
	l.verdict(now)
	l.hopeless = true
	l.lose(effects.PeerLost, now)
}

// settled says that nothing of a condemned life touches any memory any more.
func (l *link) settled(life uint64, now effects.Time) {
	if life != l.life || l.phase != burying {
		return
	}
	flight := l.flight
	l.flight = nil
	for _, t := range flight {
		l.land(t, false, now)
		t.sent = t.done
	}
	l.hands.tell(kindGone, life)
	if l.final {
		l.phase = over
		return
	}
	l.ask(now)
}
