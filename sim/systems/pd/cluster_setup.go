package pd

import (
	"cmp"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// ClusterSetup holds the settings of prefill and decode that are derived from a plan.
type ClusterSetup struct {
	Senders, Receivers int
	SenderPages        uint32
	ReceiverPages      uint32
	Mismatch           bool

	Rank rank.Config // the configuration that both roles have in common

	nextRequest    uint32 // greater than every request number of the plan
	nextKey        uint32 // greater than every key number of the plan, including the keys of layers
	firstLayerKey  uint32 // first key number of layers; the layers' keys range from here up to keys
	layersPerChunk uint32 // number of layers of a chunk; 0 if layers have no keys
}

// tokensPerChunk is the number of tokens of a full chunk: each token is one part of a page.
const tokensPerChunk = world.Parts

// WireLimits are the limits with which the simulator itself decodes messages. The limits are never changed.
var WireLimits = protocol.DefaultLimits()

// simLayout returns the layout of the simulated KV cache with the given hidden size.
func simLayout(hidden uint32) protocol.Layout {
	return protocol.Layout{
		Format: protocol.FormatKV2LTD,
		Shape:  protocol.Shape{Dims: [protocol.ShapeRank]uint32{2, 1, tokensPerChunk, hidden}, N: 4},
		Dtype:  protocol.DtypeBFloat16,
	}
}

// mismatchedLayout returns a layout that differs from the common layout in the size of a page, or only in the meaning
// of the bytes.
func mismatchedLayout(d draw.Value) protocol.Layout {
	if d.ChancePermille(500) {
		return simLayout(4)
	}
	l := simLayout(2)
	l.Dtype = protocol.DtypeHalf
	return l
}

// NewClusterSetup derives the setting from a plan, for ranks with the given flows.
func NewClusterSetup(p *plan.Plan, flows Flows) ClusterSetup {
	o, t, b := &p.Topology, &p.Timeouts, &p.Bounds
	s := ClusterSetup{
		Senders: o.Senders, Receivers: o.Receivers, Mismatch: o.Mismatch,
		SenderPages: o.SenderPages, ReceiverPages: o.ReceiverPages,
		Rank: rank.Config{
			Common: rank.Common{
				Layout: simLayout(2), Leased: o.Leased, Verifies: o.Sums, Bearer: o.Leased && !o.Communicators,
				AllocTimeout: effects.Duration(t.Alloc), ReplyTimeout: effects.Duration(t.Reply),
				Lease: effects.Duration(t.Lease), LeaseGuard: effects.Duration(t.LeaseGuard),
				BackoffMin: effects.Duration(t.BackoffMin), BackoffMax: effects.Duration(t.BackoffMax),
				Window: uint16(b.Window), Carries: b.Carries,
			},
			Memory: rank.Memory{
				GrantsMax: b.Grants, PeerSharePct: b.PeerSharePct, EngineSharePct: b.EngineSharePct,
				OriginSharePct: cmp.Or(b.OriginSharePct, 100), TenantSharePct: b.TenantSharePct,
			},
			Store: rank.Store{ClaimTTL: effects.Duration(t.ClaimTTL)},
			Peers: rank.Peers{PeersMax: b.Peers},
			Engine: rank.Engine{
				PutTimeout: effects.Duration(t.Put), ReserveTimeout: effects.Duration(t.Reserve),
				GetWaitMax: effects.Duration(t.GetWaitMax), PutsMax: b.Puts, ReservesMax: b.Reserves,
				GetsMax: b.Gets, RequestsMax: b.Requests,
			},
			Pending:  rank.Pending{WaitersMax: b.Waiters, WaitingBytes: uint64(b.WaitingBytes), BypassMax: b.Overtakes},
			Granting: rank.Granting{ReplyForm: protocol.FormAscend, Residual: effects.Duration(t.Residual)},
		},
	}
	s.Rank.BreakerTTL = -1
	s.Rank.PullTTL, s.Rank.ReadTimeout, s.Rank.DriftPPM = effects.Duration(t.PullTTL), effects.Duration(t.Read),
		world.DriftApart(o.DriftPPM)
	s.Rank.FetchTimeout, s.Rank.LeadMin = effects.Duration(t.Fetch), effects.Duration(t.Lead)
	s.Rank.ReadLeaseMax = effects.Duration(t.Loan)
	s.Rank.OffersMax, s.Rank.LocationsMax, s.Rank.FetchesMax = b.Offers, b.Places, b.Fetches
	if s.Rank.ReservePPM = b.ReservePPM; b.ReservePPM == 0 {
		s.Rank.ReservePPM = rank.ReserveNone
	}
	if t.Breaker > 0 {
		s.Rank.BreakerTTL = effects.Duration(t.Breaker)
	}
	s.Rank.RequestTTL, s.Rank.AbandonTTL = effects.Duration(t.RequestTTL), effects.Duration(t.AbandonTTL)
	s.Rank.UnfitBackoff = effects.Duration(t.Unfit)
	s.Rank.BatchMax, s.Rank.ClaimsMax = b.Batch, b.Claims
	s.Rank.Tuning = tuningOf(&p.Tuning)
	s.Rank.Tuning.SweepRows = b.Rows
	s.Rank.ReplyForm, _ = protocol.ParseReplyForm(o.Reply)
	s.Rank.TrustUncommitted = o.Trust && o.Leased
	for _, f := range flows {
		if f.ConfigureRanks != nil {
			f.ConfigureRanks(p, &s.Rank)
		}
	}
	for i := range p.Jobs {
		s.nextRequest = max(s.nextRequest, p.Jobs[i].Request+1)
		for _, k := range p.Jobs[i].Keys {
			s.nextKey = max(s.nextKey, k+1)
		}
	}
	s.firstLayerKey, s.layersPerChunk = s.nextKey, uint32(flows.LayersPerChunk(p))
	s.nextKey += s.nextKey * s.layersPerChunk
	return s
}

// ChunkOf returns the first key of the chunk that a layer's key belongs to, and the number of the chunk's layers. For a
// key that is not a layer's, the result is the key and 0.
func (s *ClusterSetup) ChunkOf(key uint32) (first, n uint32) {
	if s.layersPerChunk == 0 || key < s.firstLayerKey || key >= s.nextKey {
		return key, 0
	}
	return key - (key-s.firstLayerKey)%s.layersPerChunk, s.layersPerChunk
}

// tuningOf returns the internal bounds of ranks.
func tuningOf(t *plan.Tuning) rank.Tuning {
	return rank.Tuning{
		SettleMax: t.Settle, AttemptsMax: t.Attempts, TellsMax: t.Tells, NotifyMax: t.Notifies,
		RenewsMax: t.Renews, LeftoversMax: t.Leftovers, PlainsMax: t.Plains, BreakersPerPeer: t.Breakers,
		ProvenPeerBonus: effects.Duration(t.ProvenPeerBonus),
	}
}
