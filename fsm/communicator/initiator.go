package communicator

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Rules are what an Initiator is bound by.
type Rules struct {
	Window    int              // batches in flight
	Tries     int              // epochs in a row that may fail to be formed
	Transfers int              // that the machine may have open
	Answer    effects.Duration // longest time until the target answers an offer
	Patience  effects.Duration // longest time in which no batch ends
	Grace     effects.Duration // longest time that a cancelled batch is waited for
}

// An Initiator decides about one target that we imported: when to have a communicator, what to submit on it, when to
// fence it, and what is owed to the machine.
//
//	asking --accepted--> forming --formed--> up --fenced--> tearing down --proof--> asking ...
//	                                          or, when nothing is to follow, --> over
//
// The next epoch is asked for only when the last one is proven over: no batch is in the hands of two.
type Initiator struct {
	rules Rules `snap:"share"`

	phase phase
	epoch uint64
	tries int // epochs in a row that could not be formed

	transfers table.Slab[transfer]
	queue     table.List     // told nothing yet, in order
	flight    []table.Handle // whose batch was submitted in this epoch and has not ended, in order
	timers    kernel.Timers  // when the time to submit is over, of each in the queue

	revoked []effects.GrantID // by the target, before this epoch; ascending
	before  effects.Time      // grants that were given before it, by our clock, count as taken back too; 0: none

	blamed table.Handle // by which the last epoch ended, unless the target fenced it
	blame  effects.Code
	byPeer bool // the target fenced the last epoch
	early  bool // the target fenced an epoch that is being formed

	askedBy    effects.Time // until when the target may take to answer; 0: it is not asked
	progressBy effects.Time // until when a batch must have ended; 0: none is in flight
	graceBy    effects.Time // until when one must whose transfer was told that it ended; 0: none

	imported bool
	dropped  bool
	unproven bool         // there will be no proof for the epoch that is being torn down
	final    bool         // no further epoch: lost, dropped or closed
	ended    effects.Code // why: what transfers end with from then on
}

type phase uint8

const (
	asking phase = iota
	forming
	up
	tearing
	over
)

// NewInitiator returns one that waits for Begin.
func NewInitiator(r Rules) Initiator {
	// A transfer that was told its end counts no more for who wants others, and may have batches in flight.
	most := r.Transfers + r.Window
	return Initiator{
		rules: r, transfers: table.NewSlab[transfer](most), timers: kernel.NewTimers(most),
		flight: make([]table.Handle, 0, r.Window),
	}
}

// Step takes one event. What it wants done is appended to out.
func (l *Initiator) Step(now effects.Time, ev *Event, out *Out) {
	switch ev.Kind {
	case Begin:
		l.ask(now, out)
	case Transfer:
		l.transfer(now, ev, out)
	case Cancel:
		l.cancel(now, ev.Corr, out)
	case Accepted:
		l.accepted(now, ev, out)
	case Formed:
		l.formed(now, ev, out)
	case Submitted:
		l.submitted(now, ev.How, out)
	case BatchEnded:
		l.batchEnded(now, ev, out)
	case PeerFenced:
		l.peerFenced(ev.Epoch, out)
	case Stuck:
		if l.tears(ev.Epoch) {
			l.verdict(now, out)
		}
	case NoProof:
		l.noProof(now, ev.Epoch, out)
	case TornDown:
		l.tornDown(now, ev.Epoch, out)
	case ChannelLost:
		l.lose(now, effects.PeerLost, out)
	case Drop:
		l.drop(now, out)
	case Close:
		l.close(now, out)
	case Tick:
		l.tick(now, out)
	default:
		panic("BUG: an initiator was told what has no kind")
	}
}

// Epoch is the number of the newest one.
func (l *Initiator) Epoch() uint64 { return l.epoch }

// Flying is how many batches are in flight on an epoch that is used.
func (l *Initiator) Flying() int {
	if l.phase != up {
		return 0
	}
	return len(l.flight)
}

// Over says that no epoch is there and none will be: the channel may be closed, which proves so much to the target.
func (l *Initiator) Over() bool { return l.phase == over }

// Final says that no further epoch will be.
func (l *Initiator) Final() bool { return l.final }

// Unproven says that there will be no proof for the last epoch: its memory is never to be given back, and the channel
// never to be closed.
func (l *Initiator) Unproven() bool { return l.unproven }

// Finished says that nothing more will come of the link.
func (l *Initiator) Finished() bool {
	return (l.phase == over || l.unproven) && (l.dropped || !l.imported || l.ended == effects.Closed)
}
