package rank

import (
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/pd/recall"
)

// recalls are the two ends of recalls: that of a rank that puts, and that of one that lets puts in.
type recalls struct {
	source recall.Source
	target recall.Target
}

func newRecalls(cfg *Config, classes int) recalls {
	if !cfg.Recalls {
		return recalls{}
	}
	own := recall.Config{
		RecallsMax: cfg.RecallsMax, LeasesMax: cfg.RecallsMax, PagesMax: cfg.Pages, Timeout: cfg.RecallTimeout,
		TTL: cfg.Lease, RequestIDMax: cfg.RequestIDMax,
	}
	return recalls{source: recall.NewSource(own, cfg.asksPeers()), target: recall.NewTarget(own, classes)}
}

// asks says whether the rank recalls, answers whether it is recalled from.
func (c *Config) asks() bool    { return c.Recalls && c.Role.Sends() }
func (c *Config) answers() bool { return c.Recalls && c.Role.Receives() }

// asksPeers is the most peers that it recalls from at a time.
func (c *Config) asksPeers() uint32 {
	if !c.asks() {
		return 0
	}
	return c.PeersMax
}

// asksMax is the most recalls that it has in progress.
func (c *Config) asksMax() int {
	if !c.asks() {
		return 0
	}
	return int(c.RecallsMax)
}

// answersMax is the most leases that it has out for recalls.
func (c *Config) answersMax() int {
	if !c.answers() {
		return 0
	}
	return int(c.RecallsMax)
}

// recallSituation is where the end of a recall stands that a Ref is of.
func (r *Rank) recallSituation(ref kernel.Ref) Situation {
	if ref.Owner == kernel.OwnerRecallTarget {
		return situationLeased + Situation(r.recalls.target.State(ref))
	}
	return situationRecall + Situation(r.recalls.source.State(ref))
}

// busy counts what is kept for each class beside its pages, as receivers do, and what is leased to it.
func (r *Rank) busy() []uint32 {
	all := r.receiver.Busy()
	if r.cfg.answers() {
		r.recalls.target.Busy(all)
	}
	return all
}

func recalled(ref kernel.Ref) bool {
	return ref.Owner == kernel.OwnerRecallSource || ref.Owner == kernel.OwnerRecallTarget
}
