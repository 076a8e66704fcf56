package operator

import (
	"net/http"
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
)

// A peer is a rank.Peer as operators see it.
type peer struct {
	// Direction is "to" if this node connects to the peer, and "from" if the peer connects to this node. A process with both
	// is listed twice.
	Direction string `json:"direction"`
	// Incarnation is as in the log and in /holds; it is empty for a peer that has not answered yet, or without extensions.
	Incarnation string `json:"incarnation,omitempty"`
	// Name is what the peer calls itself, which nothing proves.
	Name string `json:"name,omitempty"`
	// Identity is what the peer's certificate proved, or a hexadecimal number if the process has forgotten its text; it is
	// empty if nothing was proved.
	Identity string `json:"identity,omitempty"`
	Address  string `json:"address,omitempty"`       // of a peer to which this node connects: for handshakes
	Alloc    string `json:"alloc_address,omitempty"` // and for requests
	Plane    string `json:"plane,omitempty"`
	// Communicator is the communicator of the link, on planes that have one.
	Communicator *communicator `json:"communicator,omitempty"`
	State        string        `json:"state"`
	// StateSeconds is how long the peer has been in its state.
	StateSeconds *float64 `json:"state_seconds,omitempty"`
	HeardSeconds *float64 `json:"heard_seconds_ago,omitempty"`
	Failures     int      `json:"failures,omitempty"` // in a row
	Code         string   `json:"code,omitempty"`     // of the last failure
	Error        string   `json:"error,omitempty"`    // what is known of it
	RetrySeconds *float64 `json:"retry_in_seconds,omitempty"`
	Breaker      *breaker `json:"breaker,omitempty"`
	Operations   int      `json:"operations"`
	InFlight     int      `json:"requests_in_flight"`
	PagesGranted int      `json:"pages_granted"`
	PagesOfPeer  int      `json:"pages_of_peer"`
}

// A communicator is a plane.LinkState as operators see it.
type communicator struct {
	State         string   `json:"state"`
	Epoch         uint64   `json:"epoch"`
	StateSeconds  *float64 `json:"state_seconds"`
	EndsInSeconds *float64 `json:"ends_in_seconds,omitempty"` // when the plane gives up waiting in this state
	InFlight      int      `json:"batches_in_flight"`
}

// A breaker is a rank.PeerBreaker as operators see it.
type breaker struct {
	Code        string  `json:"code"`
	Reason      string  `json:"reason,omitempty"`
	ChunksMin   int     `json:"chunks_min,omitempty"`
	EndsSeconds float64 `json:"ends_in_seconds"` // below 0: the next put is sent as a trial
}

// peersAnswer is the answer to a request for the peers.
type peersAnswer struct {
	Count int    `json:"count"` // of all peers that match
	Peers []peer `json:"peers"` // the first of them, at most rowsMax
}

// A peerNames says of peers what the machine does not know: nameOf returns the text of an identity, and communicatorOf the
// communicator of a link, or nil.
type peerNames struct {
	nameOf         func(effects.Principal) string
	communicatorOf func(effects.Link, effects.Time) *communicator
}

// listPeers returns the peers that match the parameter peer.
func listPeers(all []rank.Peer, at effects.Time, want string, names peerNames) peersAnswer {
	answer := peersAnswer{Peers: []peer{}}
	for i := range all {
		p := &all[i]
		x := peer{Direction: "from", Incarnation: peerName(p.ID), Name: p.Name, Address: addrText(p.Host, p.InitPort), Plane: p.Plane,
			State: p.State, StateSeconds: secondsAgo(at, p.Since), HeardSeconds: secondsAgo(at, p.HeardAt), Failures: int(p.Failures),
			RetrySeconds: secondsLeft(at, p.RetryAt), Operations: p.Operations, InFlight: p.InFlight, PagesGranted: p.PagesGranted,
			PagesOfPeer: p.PagesFromPeer}
		if p.Outbound {
			x.Direction = "to"
		}
		if p.AllocPort != 0 {
			x.Alloc = addrText(p.Host, p.AllocPort)
		}
		if p.Principal != 0 {
			if x.Identity = names.nameOf(p.Principal); x.Identity == "" {
				x.Identity = strconv.FormatUint(uint64(p.Principal), 16)
			}
		}
		if !matchesPeer(want, x.Incarnation, x.Address, x.Name, x.Identity, x.Alloc) {
			continue
		}
		if answer.Count++; answer.Count > rowsMax {
			continue
		}
		if p.Link != 0 {
			x.Communicator = names.communicatorOf(p.Link, at)
		}
		if p.Cause != effects.OK {
			x.Code = p.Cause.String()
			if p.Why != nil {
				x.Error = p.Why.Text(p.Cause)
			}
		}
		if b := p.Breaker; b != nil && (b.Trial || b.Until > at) {
			x.Breaker = &breaker{b.Code.String(), b.Reason, int(b.MinChunks), *secondsLeft(at, b.Until)}
		}
		answer.Peers = append(answer.Peers, x)
	}
	return answer
}

// servePeers answers with the peers of a node.
func servePeers(w http.ResponseWriter, r *http.Request, n *runtime.Node) {
	all, at, answered := listRows(w, r, n.Peers)
	if !answered {
		return
	}
	links := n.LinkStates()
	communicatorOf := func(l effects.Link, at effects.Time) *communicator {
		x, ok := links[l]
		if !ok {
			return nil
		}
		return &communicator{x.State, x.Epoch, secondsAgo(at, x.Since), secondsLeft(at, x.Until), x.InFlight}
	}
	writeJSON(w, listPeers(all, at, r.FormValue("peer"), peerNames{n.Guard().IdentityName, communicatorOf}))
}
