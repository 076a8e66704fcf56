package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
)

// A Peer is a peer of the rank, for operators. A process to which this node connects, and which also connects to this
// node, is two peers.
type Peer struct {
	Outbound bool                // this node connects to the peer; otherwise the peer has shaken hands with this node
	ID       effects.Incarnation // of the last hello; zero: there was none, or the peer speaks no extensions
	// Name is what an inbound peer calls itself. It is a claim, which nothing proves.
	Name      string
	Host      string // of an outbound peer, as are the ports; AllocPort is zero for a peer that shares chunks
	InitPort  uint16
	AllocPort uint16
	Principal effects.Principal // the identity that the peer proved; 0: none
	Link      effects.Link      // to the peer's pages; zero: there is none
	Plane     string            // of the link
	// State is "idle", "opening", "greeting", "importing", "listing", "ready" or "backoff" for an outbound peer, "no link" if
	// only a circuit breaker knows its address, and "present", "silent", "link lost" or "plain" for an inbound peer.
	State    string
	Since    effects.Time // when an outbound peer entered its state; zero: not recorded
	HeardAt  effects.Time // when a message of the peer was accepted last; zero: none was
	Failures uint32       // failures in a row of an outbound peer, of which Cause and Why are the last one
	Cause    effects.Code
	Why      *effects.Why // nil if nothing is known; valid for good
	RetryAt  effects.Time // in backoff: when the next attempt is due; otherwise zero
	InFlight int          // requests to an outbound peer without a reply
	Breaker  *PeerBreaker // nil: no circuit breaker is open for the peer
	// Operations counts the operations in progress with the peer (AppendOperations).
	Operations int
	// PagesGranted counts pages of this node that the peer may write or read, or that are in quarantine because of it, and
	// PagesFromPeer counts the chunks for which this node may write or read pages of the peer.
	PagesGranted, PagesFromPeer int
}

// A PeerBreaker is the circuit breaker of an outbound peer's address.
type PeerBreaker struct {
	Code      effects.Code // of the refusal that opened the breaker
	Reason    string       // that the peer stated; sanitized
	MinChunks uint32       // smaller puts are sent; 0: none
	Until     effects.Time
	Trial     bool // afterwards one request at a time is sent until one is granted; otherwise all are
}

// AppendPeers appends the peers: the outbound peers, the addresses of which only a circuit breaker is left, and the inbound
// peers, each in the order of the tables. Their number is bounded by the tables.
func (r *Rank) AppendPeers(to []Peer) []Peer {
	var byOutbound, byClass peerTallies
	r.eachOperation(func(x *kernel.Operation) {
		if x.Outbound != 0 {
			byOutbound.at(int(x.Outbound.Slot())).addOperation(x)
		} else if x.Class != 0 {
			byClass.at(x.Class).addOperation(x)
		}
	})
	r.pullSource.EachLease(func(x *put.Row) {
		if x.Peer != 0 {
			byOutbound.at(int(x.Peer.Slot())).pagesLent += len(x.Pages)
		}
	})
	for _, loans := range []*loan.Loans{r.recallTarget.Loans(), r.p2pOwner.Loans()} {
		loans.EachLoan(func(x *loan.Loan) { byClass.at(x.Class).pagesLent += len(x.Pages()) })
	}
	breakers := map[link.PeerAddr]*PeerBreaker{}
	addBreaker := func(x *link.BreakerInfo) {
		if x.Until > r.now || x.Trial {
			breakers[x.Addr] = &PeerBreaker{Code: x.Code, Reason: x.Reason, MinChunks: x.MinChunks, Until: x.Until, Trial: x.Trial}
		}
	}
	r.breakers.EachBreaker(addBreaker)
	r.p2pRequester.EachBreaker(addBreaker)
	var inbound []Peer
	r.links.EachPeer(&r.timers, func(x *link.PeerInfo) {
		p := Peer{Outbound: x.Outbound != 0, ID: x.ID, Name: x.Name, Host: x.Addr.Host, InitPort: x.Addr.InitPort, AllocPort: x.Addr.AllocPort,
			Principal: x.Principal, Link: x.Link, Plane: x.Plane, State: x.State, Since: x.Since, HeardAt: x.HeardAt,
			Failures: x.Failures, Cause: x.Cause, Why: x.Why, RetryAt: x.RetryAt, InFlight: x.InFlight,
			PagesGranted: int(r.pools.ClassUse(x.Class))}
		if !p.Outbound {
			p.addTally(byClass.at(x.Class))
			inbound = append(inbound, p)
			return
		}
		p.Breaker = breakers[x.Addr]
		delete(breakers, x.Addr)
		p.addTally(byOutbound.at(int(x.Outbound.Slot())))
		to = append(to, p)
	})
	addLeft := func(x *link.BreakerInfo) {
		if b := breakers[x.Addr]; b != nil {
			delete(breakers, x.Addr)
			to = append(to, Peer{Outbound: true, Host: x.Addr.Host, InitPort: x.Addr.InitPort, AllocPort: x.Addr.AllocPort, State: "no link",
				Breaker: b})
		}
	}
	r.breakers.EachBreaker(addLeft)
	r.p2pRequester.EachBreaker(addLeft)
	return append(to, inbound...)
}

// addTally adds what is in progress with the peer.
func (p *Peer) addTally(t *peerTally) {
	p.Operations += t.operations
	p.PagesGranted += t.pagesLent
	p.PagesFromPeer += t.pagesFromPeer
}

// A peerTally sums up what is in progress with a peer.
type peerTally struct{ operations, pagesLent, pagesFromPeer int }

func (t *peerTally) addOperation(x *kernel.Operation) {
	t.operations++
	t.pagesFromPeer += x.FromPeer
}

// peerTallies holds tallies by a small number.
type peerTallies []peerTally

// at returns the tally of a number. The result is valid until the next call.
func (all *peerTallies) at(i int) *peerTally {
	for len(*all) <= i {
		*all = append(*all, peerTally{})
	}
	return &(*all)[i]
}
