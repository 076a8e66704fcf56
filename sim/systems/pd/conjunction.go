package pd

import (
	"slices"

	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/world"
)

// A Conjunction is a combination of rare events under which a state machine once had a defect, or could have one.
// Campaigns count conjunctions, because what happened in a campaign says more than how long it ran. The summary of a
// campaign lists the conjunctions that its profile requires and that never occurred (Summary.MissedConjunctions of
// package sim).
type Conjunction uint8

// The conjunctions. Add a new conjunction before the constant conjunctionCount, and add a row to ConjunctionInfo.
const (
	// ConjunctionInfo has the printed name and description of each of the following constants.
	OfferRetriedInDrain Conjunction = iota
	OfferRetriedAfterLease
	FrozenDuringRestart
	ReadOfFormerIncarnation
	FetchFailsWhileShared
	FetchExpiresOnArrival
	FullWithRequestOpen
	OfferRefusedWhileRead
	ReplyAfterClose
	EngineAtBypassLimit
	PeerAtBypassLimit
	DrainRepeated

	conjunctionCount
)

// ConjunctionInfo gives for each conjunction the name, a description, and the profiles in which the conjunction must
// occur within about ten thousand seeds.
var ConjunctionInfo = [conjunctionCount]struct {
	name, about string
	Profiles    []string
}{
	OfferRetriedInDrain: {"drained-offered-again",
		"an offer whose reply was lost is repeated to a receiver that drains and has not ended the offer",
		[]string{"pull", "delayed", "full"}},
	OfferRetriedAfterLease: {"offered-again-over", "an offer is repeated to its receiver after its lease has expired",
		[]string{"pull", "delayed", "full"}},
	FrozenDuringRestart: {"frozen-over-restart", "a receiver is frozen while a sender from which it reads restarts",
		[]string{"pull", "delayed", "full"}},
	ReadOfFormerIncarnation: {"read-of-former-incarnation",
		"a sender makes an offer while pages that its previous incarnation offered may still be read",
		[]string{"pull", "delayed", "full"}},
	FetchFailsWhileShared: {"fetch-fails-beside",
		"a fetch fails while chunks that another fetch also wants are being delivered",
		[]string{"delayed", "full"}},
	FetchExpiresOnArrival: {"fetch-over-as-it-comes", "a fetch times out in the step in which its last chunk arrives",
		[]string{"full"}},
	FullWithRequestOpen: {"full-under-way",
		"a receiver reports that it is full while another request of the same sender is in progress",
		[]string{"full"}},
	OfferRefusedWhileRead: {"refused-while-read",
		"a repeated offer is refused while a read of it may still be in progress",
		[]string{"pull", "delayed", "full"}},
	ReplyAfterClose: {"answered-after-close", "a reply is in the client's queue when the connection is closed",
		[]string{"swarm", "crash", "fenced", "leased", "starve", "upstream", "pull", "delayed", "full", "foreign"}},
	EngineAtBypassLimit: {"engine-kept-for",
		"requests have overtaken a node's own engine as often as the limit allows, while a peer also waits",
		[]string{"both"}},
	PeerAtBypassLimit: {"kept-from-engine",
		"requests have overtaken a peer as often as the limit allows, while the node's own engine also waits",
		[]string{"both"}},
	DrainRepeated: {"drained-again", "a drain has timed out, and the engine drains again",
		[]string{"swarm", "pull", "delayed", "full"}},
}

// String returns the name of the conjunction, as summaries print it.
func (c Conjunction) String() string { return ConjunctionInfo[c].name }

// About returns a sentence that describes the conjunction.
func (c Conjunction) About() string { return ConjunctionInfo[c].about }

// AllConjunctions returns all conjunctions in the order of their numbers.
func AllConjunctions() []Conjunction {
	all := make([]Conjunction, conjunctionCount)
	for c := range all {
		all[c] = Conjunction(c)
	}
	return all
}

// RequiredConjunctions returns the conjunctions (combinations of rare events) that must occur within about ten thousand
// seeds of a profile.
func RequiredConjunctions(profile string) []Conjunction {
	return slices.DeleteFunc(AllConjunctions(), func(c Conjunction) bool {
		return !slices.Contains(ConjunctionInfo[c].Profiles, profile)
	})
}

// CountConjunction counts an occurrence of the conjunction c.
func CountConjunction(r *world.Result, c Conjunction) {
	r.Coverage.Hit(pointConjunction + coverage.Point(c))
}

// CountFrozenReceivers counts receivers that are frozen while n restarts and that have a link to n's former
// incarnation. The caller calls it when n has just restarted, so any link to n leads to the former incarnation.
func (w *Cluster) CountFrozenReceivers(n *world.Node) {
	for _, o := range w.Nodes {
		linked := func(x *world.Link) bool { return x.To == n.ID && !x.Dropped }
		if o.IsReceiver() && o.Up && o.ResumeAt > w.Now && slices.ContainsFunc(o.Links, linked) {
			CountConjunction(&w.Result, FrozenDuringRestart)
		}
	}
}
