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

// A hold is a rank.Hold as operators see it.
type hold struct {
	Kind string `json:"kind"`
	// Peer is the incarnation of the peer, as in its log, or empty for a peer without kvferry's extensions.
	Peer  string `json:"peer,omitempty"`
	Addr  string `json:"address,omitempty"` // of the peer of a put
	Pages int    `json:"pages"`
	// AgeSeconds is -1 if it is not recorded when the hold began.
	AgeSeconds float64 `json:"age_seconds"`
	// EndsInSeconds is how long the hold lasts at most, unless it is renewed. It is absent if the hold ends with its
	// command, and below 0 if the time is over and the machine has not handled that yet, or the end is not proven yet.
	EndsInSeconds *float64 `json:"ends_in_seconds,omitempty"`
	Revoked       bool     `json:"revoked,omitempty"`
}

// holdsAnswer is the answer to a request for the holds.
type holdsAnswer struct {
	Count int    `json:"count"` // of all holds that are old enough
	Holds []hold `json:"holds"` // the oldest of them, at most rowsMax
}

// listHolds returns the holds that are at least as old as asked for, oldest first. Holds of unknown age come last, and
// only if no age is asked for.
func listHolds(all []rank.Hold, at effects.Time, older time.Duration) holdsAnswer {
	kept := slices.DeleteFunc(all, func(h rank.Hold) bool {
		return older > 0 && (h.Since == 0 || time.Duration(at.Sub(h.Since)) < older)
	})
	slices.SortStableFunc(kept, func(a, b rank.Hold) int {
		if (a.Since == 0) != (b.Since == 0) {
			return cmp.Compare(b.Since, a.Since) // The one whose age is known comes first.
		}
		return cmp.Compare(a.Since, b.Since)
	})
	answer := holdsAnswer{Count: len(kept), Holds: []hold{}}
	for _, h := range kept[:min(len(kept), rowsMax)] {
		answer.Holds = append(answer.Holds, hold{Kind: string(h.Kind), Peer: peerName(h.Peer), Addr: addrText(h.Addr.Host, h.Addr.Port),
			Pages: h.Pages, AgeSeconds: ageSeconds(at, h.Since), EndsInSeconds: secondsLeft(at, h.Until), Revoked: h.Revoked})
	}
	return answer
}

// serveHolds answers with the holds of a node.
func serveHolds(w http.ResponseWriter, r *http.Request, n *runtime.Node) {
	older, ok := parseOlder(w, r)
	if !ok {
		return
	}
	if all, at, answered := listRows(w, r, n.Holds); answered {
		writeJSON(w, listHolds(all, at, older))
	}
}
