package communicator

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Rules configure an Initiator.
type Rules struct {
	Window          int              // the largest number of batches in flight
	Tries           int              // consecutive epochs that may fail to be formed before the link is given up
	Transfers       int              // the largest number of transfers that the machine may have open
	AnswerTimeout   effects.Duration // longest time until the target answers an offer
	ProgressTimeout effects.Duration // longest time in which no batch in flight ends
	Grace           effects.Duration // longest time for which the end of a cancelled batch is awaited
}

// An Initiator decides for one link to an imported target: when to have a communicator, what to submit on it, when to
// fence it, and which completions the rank's machine is owed.
//
//	offered --accepted--> forming --formed--> up --fenced--> tearing down --proof--> offered ...
//	                                           or, if no epoch is to follow, --> over
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
	inFlight  []table.Handle // the transfer of each batch in flight in this epoch, in order
	timers    kernel.Timers  // for each transfer in the queue, the end of the time in which it may submit

	revokedGrants []effects.GrantID // grants that the target revoked before this epoch; ascending
	revokedBefore effects.Time      // grants given before this instant of the local clock count as revoked too; 0: none

	blamedTransfer table.Handle // the transfer that broke the last epoch, unless the target fenced that epoch; 0: none
	blameCode      effects.Code // the code with which the blamed transfer ends
	fencedByPeer   bool         // the target fenced the last epoch
	fencedEarly    bool         // the target fenced the epoch that is being formed

	answerDeadline   effects.Time // deadline for the target's answer to an offer; 0: no offer is outstanding
	progressDeadline effects.Time // deadline for the end of a batch; 0: none is in flight
	graceDeadline    effects.Time // deadline for batches in flight of transfers that were already reported as ended; 0: none

	imported bool
	dropped  bool
	unproven bool         // there will be no proof for the epoch that is being torn down
	final    bool         // no further epoch follows: the link was lost, dropped or closed
	endCode  effects.Code // the reason: the code with which transfers end from then on
}

// A phase is the state of the newest epoch of an Initiator.
type phase uint8

const (
	phaseOffered     phase = iota // the epoch was offered and is not answered; or before Begin
	phaseForming                  // the driver forms the communicator
	phaseUp                       // batches may be submitted
	phaseTearingDown              // the epoch is fenced, and its end is not proven
	phaseOver                     // there is no epoch, and none follows
)

// phaseNames are the names of the phases for operators. They are stable.
//
//kvferry:table
var phaseNames = [...]string{phaseOffered: "offered", phaseForming: "forming", phaseUp: "up", phaseTearingDown: "tearing down",
	phaseOver: "over"}

// State returns the name of the state of the newest epoch, and when the machine gives up waiting in that state; zero if it
// does not, or waits for nothing. State is for operators; no decision depends on it.
func (l *Initiator) State() (name string, until effects.Time) {
	switch {
	case l.unproven:
		return "unproven", 0
	case l.phase == phaseOffered:
		until = l.answerDeadline
	case l.phase == phaseUp && len(l.inFlight) > 0:
		until = l.progressDeadline
	}
	return phaseNames[l.phase], until
}

// NewInitiator returns an initiator that waits for Begin.
func NewInitiator(r Rules) Initiator {
	// A transfer that was reported as ended no longer counts in the machine's limit, but it may still have batches in
	// flight.
	limit := r.Transfers + r.Window
	return Initiator{
		rules: r, transfers: table.NewSlab[transfer](limit), timers: kernel.NewTimers(limit),
		inFlight: make([]table.Handle, 0, r.Window),
	}
}

// Step handles one event and appends to out what the driver must do.
func (l *Initiator) Step(now effects.Time, ev *Event, out *Effects) {
	switch ev.Kind {
	case Begin:
		l.offerEpoch(now, out)
	case Transfer:
		l.startTransfer(now, ev, out)
	case Cancel:
		l.cancelTransfer(now, ev.Corr, out)
	case Accepted:
		l.handleAccepted(now, ev, out)
	case Formed:
		l.onFormed(now, ev, out)
	case Submitted:
		l.onSubmitted(now, ev.Outcome, out)
	case BatchEnded:
		l.onBatchEnded(now, ev, out)
	case TargetFenced:
		l.handleTargetFenced(ev.Epoch, out)
	case Stuck:
		if l.isTearingDown(ev.Epoch) {
			l.failBlamed(now, out)
		}
	case NoProof:
		l.onNoProof(now, ev.Epoch, out)
	case TornDown:
		l.onTornDown(now, ev.Epoch, out)
	case ChannelLost:
		l.loseLink(now, effects.PeerLost, out)
	case Drop:
		l.dropLink(now, out)
	case Close:
		l.closeLink(now, out)
	case Tick:
		l.onTick(now, out)
	default:
		panic("BUG: an initiator was given an event without a kind")
	}
}

// Epoch returns the number of the newest epoch.
func (l *Initiator) Epoch() uint64 { return l.epoch }

// CountInFlight returns the number of batches in flight on an epoch that is in use.
func (l *Initiator) CountInFlight() int {
	if l.phase != phaseUp {
		return 0
	}
	return len(l.inFlight)
}

// IsOver reports whether there is no epoch and none will follow. The channel may then be closed, and its end proves to
// the target that all epochs are over.
func (l *Initiator) IsOver() bool { return l.phase == phaseOver }

// IsFinal reports whether no further epoch will follow.
func (l *Initiator) IsFinal() bool { return l.final }

// IsUnproven reports whether there will be no proof for the last epoch. The memory of that epoch must then never be
// given back, and the channel must never be closed.
func (l *Initiator) IsUnproven() bool { return l.unproven }

// IsFinished reports whether the link will produce nothing more.
func (l *Initiator) IsFinished() bool {
	return (l.phase == phaseOver || l.unproven) && (l.dropped || !l.imported || l.endCode == effects.Closed)
}
