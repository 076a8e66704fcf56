package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/end"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/pull"
	"github.com/kvferry/kvferry/fsm/rank/flows/push"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/bundle"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/memory/staging"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
	"github.com/kvferry/kvferry/fsm/rank/peers/notice"
	"github.com/kvferry/kvferry/fsm/rank/peers/outcomes"
)

// A flowSet holds the flows of a rank. This file has the whole list of flows: a new flow has a field in flowSet, its
// construction in recycleFlows, its owner in flowOf, the condition under which a rank has it in registerFlows, the
// resources that it may have outstanding in flowNeed, the names of its states in stateSets, and its marks in MarkNames.
type flowSet struct {
	pushSource   push.Source // absent if Config.Pull
	pullSource   pull.Source // absent unless Config.Pull
	pushTarget   push.Target // unused unless the rank receives; so are pullTarget and endTarget
	pullTarget   pull.Target
	recallSource recall.Source     // absent without Config.Recalls
	recallTarget recall.Target     // absent without Config.Recalls
	p2pOwner     p2p.Owner         // absent without Config.Shares
	p2pRequester p2p.Requester     // absent without Config.Shares
	layers       layerwise.Source  // absent unless the rank pushes layers (pushesLayers)
	consumer     register.Consumer // without peers unless the rank registers blocks; so is producer
	producer     register.Producer
	endSource    end.Source // absent unless the rank reports the ends of requests (reportsRequestEnds)
	endTarget    end.Target
}

// flowSeeds holds the random numbers from which the flows derive their own.
type flowSeeds struct{ flow, secret uint64 }

// recycleFlows makes the flows that the configuration asks for, in the memory of the flows of a rank that has ended.
func (r *Rank) recycleFlows(former *flowSet, seeds flowSeeds, directory registrar.Config) {
	cfg, classes := &r.cfg, r.links.CountClasses()
	if cfg.Pull {
		doneAddr, renewAddr := wireAddr(cfg.DoneAddr), []byte(nil)
		if cfg.RenewAddr.Host != "" {
			renewAddr = wireAddr(cfg.RenewAddr)
		}
		r.pullSource = former.pullSource.Recycle(pull.SourceConfig{
			OfferSettings: cfg.Offering, PutsMax: cfg.PutsMax, PagesMax: cfg.highWater(),
			// LMCache's receivers identify a sender by its done address.
			SenderID: doneAddr, DoneURL: doneAddr, RenewURL: renewAddr,
		}, cfg.PeersMax, seeds.flow)
		r.pushSource = former.pushSource.Recycle(0, 0, 0, 0) // absent here; keeps its memory for a later Recycle
	} else {
		r.pushSource = former.pushSource.Recycle(cfg.PutsMax, cfg.carriedPutsMax(), cfg.PeersMax, seeds.flow)
		r.pullSource = former.pullSource.Recycle(pull.SourceConfig{}, 0, 0)
	}
	r.pushTarget = former.pushTarget.Recycle(push.TargetConfig{
		GrantSettings: cfg.Granting, WholeChunks: cfg.WholeChunks,
	})
	r.pullTarget = former.pullTarget.Recycle(pull.TargetConfig{
		ReadSettings: cfg.Reading, LeadMin: cfg.LeadMin, OffersMax: cfg.OffersMax, GrantsMax: cfg.GrantsMax,
		RenewsMax: cfg.Tuning.RenewsMax, NotifyMax: cfg.Tuning.NotifyMax,
	}, &r.flowConfig, classes, seeds.secret)
	if cfg.Recalls {
		recallConfig := recall.Config{Settings: cfg.Recalling, RequestIDMax: cfg.RequestIDMax}
		r.recallSource = former.recallSource.Recycle(recallConfig, cfg.recallPeersMax())
		r.recallTarget = former.recallTarget.Recycle(loan.Config{
			LoansMax: cfg.RecallsMax, PagesMax: cfg.Pages, TTL: cfg.Lease, Leased: cfg.Leased,
		}, classes)
	}
	if cfg.pushesLayers() {
		r.layers = former.layers.Recycle(layerwise.Config{
			Settings: cfg.Layerwise, Layers: cfg.Layers, ItemsMax: cfg.Pages, Seed: seeds.secret,
		})
	}
	if cfg.reportsRequestEnds() {
		r.endSource = former.endSource.Recycle(end.Config{
			EndsMax: cfg.RequestsMax, PeersMax: cfg.PeersMax, Timeout: cfg.PutTimeout,
		})
	}
	r.consumer = former.consumer.Recycle(&r.cfg.Registering, cfg.registerPeersMax())
	r.producer = former.producer.Recycle(&r.cfg.Registering, classes)
	if cfg.Shares {
		r.p2pRequester = former.p2pRequester.Recycle(p2p.RequesterConfig{
			Settings: cfg.Sharing, ReceiverID: cfg.LocalID, RequestIDMax: cfg.RequestIDMax, Directory: directory,
			LeadMin: cfg.LeadMin, Seed: seeds.secret,
		}, cfg.PeersMax)
		r.p2pOwner = former.p2pOwner.Recycle(p2p.OwnerConfig{
			Settings: cfg.Sharing, DoneURL: wireAddr(cfg.PeerDoneAddr),
			Loans: loan.Config{
				LoansMax: cfg.LoansMax, PagesMax: cfg.Share(cfg.LoanSharePct), TTL: cfg.ShareTTL, Leased: cfg.Leased,
				WholePageBytes: uint32(r.flowConfig.PageBytes), ArenaPages: cfg.ArenaPages,
			},
		}, classes)
	}
}

// registerFlows registers the flows that the configuration asks for, in the order in which they are called.
func (r *Rank) registerFlows() {
	cfg := &r.cfg
	if !cfg.servesRecalls() {
		// The leases of recalls are swept first. OwnerNone takes their place in a rank without recalls: a pass visits
		// one slot for it, because the number of visited slots decides where passes are cut, and the simulator's stored
		// plans depend on that.
		r.flows.lossSweeps = append(r.flows.lossSweeps, kernel.OwnerNone)
	}
	// With registered blocks (register.engine_id) the pool is the engine's own, so only these two flows exist.
	if cfg.registersBlocks() {
		r.registerFlow(kernel.OwnerConsumer, true)
		r.registerFlow(kernel.OwnerProducer, false)
		return
	}
	for _, x := range [...]struct {
		present         bool
		owner           kernel.Owner
		signaledByPeers bool
	}{
		{cfg.Role.Sends() && cfg.Pull, kernel.OwnerPullSource, true},
		{cfg.Role.Sends() && !cfg.Pull, kernel.OwnerPushSource, true},
		{cfg.Role.Receives(), kernel.OwnerPushTarget, false},
		{cfg.Role.Receives(), kernel.OwnerPullTarget, false},
		{cfg.recallsChunks(), kernel.OwnerRecallSource, true},
		{cfg.servesRecalls(), kernel.OwnerRecallTarget, false},
		{cfg.pushesLayers(), kernel.OwnerLayers, true},
		{cfg.reportsRequestEnds(), kernel.OwnerEndSource, false},
		{cfg.Role.Receives(), kernel.OwnerEndTarget, false},
		{cfg.Shares, kernel.OwnerP2POwner, false},
		{cfg.Shares, kernel.OwnerP2PRequester, true},
	} {
		if x.present {
			r.registerFlow(x.owner, x.signaledByPeers)
		}
	}
}

// flowOf returns the room or the flow that an owner id stands for.
//
// The result is called through an interface, so the step's Env must be a field of the rank: on the stack it would
// escape.
func (r *Rank) flowOf(owner kernel.Owner) flow.Flow {
	switch owner {
	case kernel.OwnerRank:
		return drainFlow{r}
	case kernel.OwnerLink:
		return linkFlow{&r.links}
	case kernel.OwnerEngine:
		return commandFlow{&r.commands}
	case kernel.OwnerGets, kernel.OwnerStore, kernel.OwnerAllocQueue, kernel.OwnerBundles:
		return waitFlow{r}
	case kernel.OwnerPushSource:
		return &r.pushSource
	case kernel.OwnerPushTarget:
		return &r.pushTarget
	case kernel.OwnerPullSource:
		return &r.pullSource
	case kernel.OwnerPullTarget, kernel.OwnerPipeline, kernel.OwnerNotices, kernel.OwnerLease, kernel.OwnerDeferred:
		return &r.pullTarget // No other flow has rows in those rooms.
	case kernel.OwnerRecallSource:
		return &r.recallSource
	case kernel.OwnerRecallTarget:
		return &r.recallTarget
	case kernel.OwnerP2POwner:
		return &r.p2pOwner
	case kernel.OwnerP2PRequester:
		return &r.p2pRequester
	case kernel.OwnerP2PTarget:
		return r.p2pRequester.GrantFlow()
	case kernel.OwnerRegistrar:
		return registrarFlow{&r.registrar}
	case kernel.OwnerLookups:
		return lookupFlow{r.p2pRequester.Searches.Lookups()}
	case kernel.OwnerLayers:
		return &r.layers
	case kernel.OwnerConsumer:
		return &r.consumer
	case kernel.OwnerProducer:
		return &r.producer
	case kernel.OwnerEndSource:
		return &r.endSource
	case kernel.OwnerEndTarget:
		return &r.endTarget
	case kernel.OwnerNone, kernel.OwnerCount:
	}
	panic("BUG: a completion, a deadline or a grant has no owner")
}

// flowNeed returns the resources that the flows may have outstanding at a time, except those that the parts of the
// configuration count for pushes and pulls (totalNeed).
func (c *Config) flowNeed() (n kernel.Need) {
	if c.reportsRequestEnds() {
		n = n.Add(end.Need(c.RequestsMax, c.PeersMax))
	}
	if c.recallsChunks() {
		n = n.Add(c.Asking(c.PeersMax))
	}
	if c.servesRecalls() {
		n = n.Add(c.Answering())
	}
	if c.Shares {
		n = n.Add(c.Lending()).Add(c.Bringing())
	}
	if c.pushesLayers() {
		n = n.Add(c.Layerwise.Need())
	}
	return n.Add(c.Registering.Need(c.PeersMax))
}

// stateSets lists the states of all rows, in the order of their situations, with the owners whose rows have them.
//
//kvferry:table
var stateSets = [...]struct {
	side   string
	states []string
	owners []kernel.Owner
}{
	{"", []string{"running", "draining"}, []kernel.Owner{kernel.OwnerRank}},
	{"", []string{"link idle", "link opening", "link greeting", "link importing", "link listing", "link ready",
		"link backoff", "no link"}, []kernel.Owner{kernel.OwnerLink}},
	{"sender's ", put.StateNames(), []kernel.Owner{kernel.OwnerPushSource, kernel.OwnerPullSource}},
	{"sender's ", engine.StateNames()[1:], []kernel.Owner{kernel.OwnerEngine}}, // without gone, which a put has, too
	{"receiver's ", []string{"gone", "get waiting", "get pinned", "pending request", "claimed", "bundle gathering"},
		[]kernel.Owner{kernel.OwnerGets, kernel.OwnerStore, kernel.OwnerAllocQueue, kernel.OwnerBundles}},
	{"receiver's ", push.TargetStateNames(), []kernel.Owner{kernel.OwnerPushTarget, kernel.OwnerP2PTarget}},
	{"receiver's ", pull.TargetStateNames(),
		[]kernel.Owner{kernel.OwnerPullTarget, kernel.OwnerNotices, kernel.OwnerLease, kernel.OwnerDeferred}},
	{"pipeline's ", staging.SituationNames(), []kernel.Owner{kernel.OwnerPipeline}},
	{"sender's ", recall.SourceStateNames(), []kernel.Owner{kernel.OwnerRecallSource}},
	{"receiver's ", recall.TargetStateNames(), []kernel.Owner{kernel.OwnerRecallTarget}},
	{"owner's ", p2p.OwnerStateNames(), []kernel.Owner{kernel.OwnerP2POwner}},
	{"requester's ", p2p.RequesterStateNames(), []kernel.Owner{kernel.OwnerP2PRequester}},
	{"sender's ", layerwise.StateNames(), []kernel.Owner{kernel.OwnerLayers}},
	{"consumer's ", register.ConsumerStateNames(), []kernel.Owner{kernel.OwnerConsumer}},
	{"producer's ", register.ProducerStateNames(), []kernel.Owner{kernel.OwnerProducer}},
	{"sender's ", end.StateNames(), []kernel.Owner{kernel.OwnerEndSource}},
}

// MarkNames returns every coverage mark of a rank, with its name.
func MarkNames() (all []effects.NamedMark) {
	all = effects.NameMarks(all, "link", link.Marks)
	all = effects.NameMarks(all, "put", put.Marks)
	all = effects.NameMarks(all, "push", push.Marks)
	all = effects.NameMarks(all, "pull", pull.Marks)
	all = effects.NameMarks(all, "engine", engine.Marks)
	all = effects.NameMarks(all, "lease", lease.Marks)
	all = effects.NameMarks(all, "pipeline", staging.Marks)
	all = effects.NameMarks(all, "store", store.Marks)
	all = effects.NameMarks(all, "pending", allocqueue.Marks)
	all = effects.NameMarks(all, "land", landing.Marks)
	all = effects.NameMarks(all, "notice", notice.Marks)
	all = effects.NameMarks(all, "deferred", deferred.Marks)
	all = effects.NameMarks(all, "flow", flow.Marks)
	all = effects.NameMarks(all, "recall", recall.Marks)
	all = effects.NameMarks(all, "loan", loan.Marks)
	all = effects.NameMarks(all, "p2p", p2p.Marks)
	all = effects.NameMarks(all, "bundle", bundle.Marks)
	all = effects.NameMarks(all, "layerwise", layerwise.Marks)
	all = effects.NameMarks(all, "register", register.Marks)
	all = effects.NameMarks(all, "ended", outcomes.Marks)
	all = effects.NameMarks(all, "end", end.Marks)
	return all
}
