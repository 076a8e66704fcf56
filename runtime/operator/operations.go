package operator

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
)

// An operation is a rank.Operation as operators see it.
type operation struct {
	Kind    string `json:"kind"`
	Stage   string `json:"stage"`
	Peer    string `json:"peer,omitempty"` // the incarnation of the peer, as in its log
	Address string `json:"address,omitempty"`
	Chunks  int    `json:"chunks,omitempty"`
	Pages   int    `json:"pages,omitempty"`
	// AgeSeconds is -1 if it is not recorded when the operation began.
	AgeSeconds    float64  `json:"age_seconds"`
	EndsInSeconds *float64 `json:"ends_in_seconds,omitempty"` // at the latest
	// Delivered says that the engine has the outcome.
	Delivered bool `json:"delivered,omitempty"`
}

// operationsAnswer is the answer to a request for the operations.
type operationsAnswer struct {
	Count      int         `json:"count"`      // of all operations that match
	Operations []operation `json:"operations"` // the oldest of them, at most rowsMax
}

// listOperations returns the operations that are at least as old as asked for and match the parameter peer, oldest first.
func listOperations(all []rank.Operation, at effects.Time, older time.Duration, want string) operationsAnswer {
	kept := slices.DeleteFunc(all, func(x rank.Operation) bool {
		return older > 0 && (x.Since == 0 || time.Duration(at.Sub(x.Since)) < older) ||
			!matchesPeer(want, peerName(x.Peer), addrText(x.Addr.Host, x.Addr.Port))
	})
	slices.SortStableFunc(kept, func(a, b rank.Operation) int { return cmp.Compare(a.Since, b.Since) })
	answer := operationsAnswer{Count: len(kept), Operations: []operation{}}
	for _, x := range kept[:min(len(kept), rowsMax)] {
		answer.Operations = append(answer.Operations, operation{Kind: x.Kind, Stage: x.Stage, Peer: peerName(x.Peer),
			Address: addrText(x.Addr.Host, x.Addr.Port), Chunks: x.Chunks, Pages: x.Pages, AgeSeconds: ageSeconds(at, x.Since),
			EndsInSeconds: secondsLeft(at, x.Until), Delivered: x.Delivered})
	}
	return answer
}

// serveOperations answers with what is in progress at a node.
func serveOperations(w http.ResponseWriter, r *http.Request, n *runtime.Node) {
	older, ok := parseOlder(w, r)
	if !ok {
		return
	}
	if all, at, answered := listRows(w, r, n.Operations); answered {
		writeJSON(w, listOperations(all, at, older, r.FormValue("peer")))
	}
}
