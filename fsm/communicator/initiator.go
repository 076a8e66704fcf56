package communicator

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Rules configure an Initiator.
type Rules struct {
	Window    int              // the largest number of batches in flight
	Tries     int              // consecutive epochs that may fail to be formed before the link is given up
	Transfers int              // the largest number of transfers that the machine may have open
	Answer    effects.Duration // longest time until the target answers an offer
	Patience  effects.Duration // longest time in which no batch in flight ends
	Grace     effects.Duration // longest time for which the end of a cancelled batch is awaited
}

// An Initiator decides for one link to an imported target: when to have a communicator, what to submit on it, when to
// fence it, and which completions the rank's machine is owed.
//
//	asking --accepted--> forming --formed--> up --fenced--> tearing down --proof--> asking ...
//	                                          or, if no epoch is to follow, --> over
//
// Invariant (M4): the next epoch is offered only when the last epoch is proven over, so no batch is in progress in two
// epochs.
type Initiator struct {
	rules Rules `snap:"share"`

	phase phase
	epoch uint64
	tries int // consecutive epochs that could not be formed

	transfers table.Slab[transfer]
	queue     table.List     // transfers not yet reported as ended, in order
	flight    []table.Handle // the transfer of each batch in flight in this epoch, in order
	timers    kernel.Timers  // for each transfer in the queue, the end of the time in which it may submit

	revoked []effects.GrantID // grants that the target revoked before this epoch; ascending
	before  effects.Time      // grants given before this instant of the local clock count as revoked too; 0: none

	blamed table.Handle // the transfer that broke the last epoch, unless the target fenced that epoch; 0: none
	blame  effects.Code // the code with which the blamed transfer ends
	byPeer bool         // the target fenced the last epoch
	early  bool         // the target fenced the epoch that is being formed

	askedBy    effects.Time // deadline for the target's answer to an offer; 0: no offer is outstanding
	progressBy effects.Time // deadline for the end of a batch; 0: none is in flight
	graceBy    effects.Time // deadline for batches in flight of transfers that were already reported as ended; 0: none

	imported bool
	dropped  bool
	unproven bool         // there will be no proof for the epoch that is being torn down
	final    bool         // no further epoch follows: the link was lost, dropped or closed
	ended    effects.Code // the reason: the code with which transfers end from then on
}

// A phase is the state of the newest epoch of an Initiator.
type phase uint8

const (
	asking  phase = iota // the epoch was offered and is not answered; or before Begin
	forming              // the driver forms the communicator
	up                   // batches may be submitted
	tearing              // the epoch is fenced, and its end is not proven
	over                 // there is no epoch, and none follows
)

// NewInitiator returns an initiator that waits for Begin.
func NewInitiator(r Rules) Initiator {
	// A transfer that was reported as ended no longer counts in the machine's limit, but it may still have batches in
	// flight.
	most := r.Transfers + r.Window
	return Initiator{
		rules: r, transfers: table.NewSlab[transfer](most), timers: kernel.NewTimers(most),
		flight: make([]table.Handle, 0, r.Window),
	}
}

// Step handles one event and appends to out what the driver must do.
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

// Epoch returns the number of the newest epoch.
func (l *Initiator) Epoch() uint64 { return l.epoch }

// Flying returns the number of batches in flight on an epoch that is in use.
func (l *Initiator) Flying() int {
	if l.phase != up {
		return 0
	}
	return len(l.flight)
}

// Over reports whether there is no epoch and none will follow. The channel may then be closed, and its end proves to
// the target that all epochs are over.
func (l *Initiator) Over() bool { return l.phase == over }

// Final reports whether no further epoch will follow.
func (l *Initiator) Final() bool { return l.final }

// Unproven reports whether there will be no proof for the last epoch. The memory of that epoch must then never be given
// back, and the channel must never be closed.
func (l *Initiator) Unproven() bool { return l.unproven }

// Finished reports whether the link will produce nothing more.
func (l *Initiator) Finished() bool {
	return (l.phase == over || l.unproven) && (l.dropped || !l.imported || l.ended == effects.Closed)
}
