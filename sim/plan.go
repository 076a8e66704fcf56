package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
)

// A Plan is what was drawn for a seed before anything ran. Rates are per thousand.
type Plan struct {
	Senders, Receivers int
	Leased             bool
	SenderPages        uint32
	ReceiverPages      uint32
	Jobs               int // requests of all senders together
	BatchMax           int // chunks in one put
	Groups             int // groups of requests that share their first chunks

	Rank rank.Config // what both roles have in common

	Window effects.Duration // in which jobs start
	Faulty effects.Duration // in which faults start; then everything heals

	Net      effects.Duration // mean delay of a message
	Device   effects.Duration // mean time to move half a page
	EarlyGet int              // jobs whose reader asks before it is told

	// Rates are how often each fault strikes; of scheduled ones, how many there are.
	Rates    [faultKinds]int
	Mismatch bool // one sender is configured for another layout
}

// Profiles are the names [Options.Profile] takes.
func Profiles() []string { return []string{"swarm", "calm", "crash", "fenced", "leased", "starve"} }

// DefaultProfile draws everything.
const DefaultProfile = "swarm"

const tokensPerChunk = 4

func simLayout(hidden uint32) protocol.Layout {
	return protocol.Layout{
		Format: protocol.FormatKV2LTD,
		Shape:  protocol.Shape{Dims: [protocol.ShapeRank]uint32{2, 1, tokensPerChunk, hidden}, N: 4},
		Dtype:  protocol.DtypeBFloat16,
	}
}

// newPlan draws the plan of a seed. Every line has an ordinal of its own, so that a
// new line changes no other.
func newPlan(seed uint64, profile string) (Plan, error) {
	if profile == "" {
		profile = DefaultProfile
	}
	if !slices.Contains(Profiles(), profile) {
		return Plan{}, fmt.Errorf("sim: profile %q is unknown: use one of %s", profile, strings.Join(Profiles(), ", "))
	}
	at := func(n uint64) draw { return hash(seed, drawPlan, 0, n) }
	ms := effects.Millisecond
	p := Plan{
		Senders: at(1).between(1, 3), Receivers: at(2).between(1, 2), Leased: at(3).permille(400),
		SenderPages: uint32(at(4).between(4, 32)), ReceiverPages: uint32(at(5).between(4, 32)),
		Jobs: at(6).between(4, 60), BatchMax: at(7).between(1, 4), Groups: at(8).between(1, 5),
		Window: at(9).span(200*ms, 8*effects.Second),
		Net:    at(10).span(effects.Millisecond/10, 5*ms), Device: at(11).span(effects.Millisecond/50, 4*ms),
	}
	alloc := at(20).span(50*ms, 1500*ms)
	lease := at(21).span(400*ms, 4*effects.Second)
	p.Rank = rank.Config{
		Layout: simLayout(2), Leased: p.Leased, ReplyForm: protocol.FormAscend,
		Residual: at(22).span(50*ms, effects.Second), AllocTimeout: alloc, ReplyTimeout: alloc + at(23).span(50*ms, 500*ms),
		PutTimeout: at(24).span(300*ms, 6*effects.Second), ReserveTimeout: at(25).span(100*ms, 3*effects.Second),
		Lease: lease, LeaseGuard: lease / 8, ClaimTTL: at(26).span(500*ms, 10*effects.Second),
		BackoffMin: at(27).span(5*ms, 50*ms), BackoffMax: at(28).span(50*ms, 800*ms), GetWaitMax: at(29).span(200*ms, 4*effects.Second),
		OvertakesMax: uint32(at(30).between(1, 16)), PeerSharePct: uint32(at(31).between(60, 140)),
	}
	p.Rank.PeerSharePct = min(p.Rank.PeerSharePct, 100)
	// Ample for these clusters, and small enough to be made anew for every life.
	p.Rank.PutsMax, p.Rank.ReservesMax, p.Rank.GetsMax, p.Rank.WaitersMax = 64, 64, 64, 64
	p.Rank.RequestsMax, p.Rank.GrantsMax, p.Rank.PeersMax = 128, 64, 8
	if at(32).permille(250) { // Bounds so small that being full is an ordinary event.
		p.Rank.PutsMax, p.Rank.ReservesMax = uint32(at(33).between(1, 4)), uint32(at(34).between(1, 6))
		p.Rank.GetsMax, p.Rank.WaitersMax = uint32(at(35).between(1, 4)), uint32(at(36).between(1, 3))
		p.Rank.RequestsMax, p.Rank.GrantsMax = uint32(at(37).between(4, 16)), uint32(at(38).between(1, 4))
		p.Rank.PeersMax = uint32(at(39).between(2, 4))
	}
	// Swarm: most faults are off in most seeds.
	some := func(n uint64, lo, hi int) int {
		if !at(n).permille(330) {
			return 0
		}
		return at(n).again().between(lo, hi)
	}
	p.EarlyGet = some(50, 100, 1000)
	rates := &p.Rates
	rates[FaultAbort], rates[FaultAgain], rates[FaultAbandon] = some(51, 20, 400), some(52, 100, 900), some(53, 50, 500)
	rates[FaultCrash], rates[FaultPause] = some(54, 1, 4), some(55, 1, 4)
	rates[FaultCutConn], rates[FaultCutLink], rates[FaultNoise] = some(56, 1, 8), some(57, 1, 6), some(58, 1, 12)
	rates[FaultRequestLost], rates[FaultReplyLost] = some(59, 5, 150), some(65, 5, 150)
	rates[FaultUnnoticed] = at(60).between(0, 1000)
	rates[FaultDMA], rates[FaultPushRefused], rates[FaultImport] = some(61, 10, 300), some(66, 5, 100), some(67, 5, 100)
	rates[FaultLateStore], rates[FaultRevokeHeldUp] = some(62, 10, 300), some(63, 50, 500)
	p.Mismatch = at(64).permille(80)

	switch profile {
	case "calm":
		for f := range rates {
			switch Fault(f) {
			case FaultAgain, FaultAbandon, FaultUnnoticed: // An engine may do these, or they need another fault.
			default:
				rates[f] = 0
			}
		}
		p.Mismatch = false
	case "crash":
		rates[FaultCrash] = at(70).between(1, 6)
	case "fenced":
		p.Leased = false
	case "leased":
		p.Leased, rates[FaultLateStore] = true, at(71).between(50, 400)
	case "starve":
		p.Senders, p.SenderPages, p.ReceiverPages = 3, uint32(at(72).between(3, 5)), uint32(at(73).between(2, 5))
		p.Rank.OvertakesMax = uint32(at(74).between(1, 4))
	}
	p.Rank.Leased = p.Leased
	p.BatchMax = min(p.BatchMax, int(p.SenderPages), int(p.ReceiverPages))
	p.Faulty = p.Window + effects.Second
	return p, nil
}
