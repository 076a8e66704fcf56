package operator

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
)

// holdsMax is the number of holds in an answer: the oldest ones.
const holdsMax = 1000

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
	Holds []hold `json:"holds"` // the oldest of them, at most holdsMax
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
	for _, h := range kept[:min(len(kept), holdsMax)] {
		x := hold{Kind: string(h.Kind), Pages: h.Pages, AgeSeconds: -1, Revoked: h.Revoked}
		if h.Peer != (effects.Incarnation{}) {
			x.Peer = hex.EncodeToString(h.Peer[:4])
		}
		if h.Addr.Host != "" {
			x.Addr = net.JoinHostPort(h.Addr.Host, strconv.Itoa(int(h.Addr.Port)))
		}
		if h.Since != 0 {
			x.AgeSeconds = time.Duration(at.Sub(h.Since)).Seconds()
		}
		if h.Until != 0 {
			left := time.Duration(h.Until.Sub(at)).Seconds()
			x.EndsInSeconds = &left
		}
		answer.Holds = append(answer.Holds, x)
	}
	return answer
}

// serveHolds answers with the holds of a node.
func serveHolds(w http.ResponseWriter, r *http.Request, n *runtime.Node) {
	var older time.Duration
	if text := r.FormValue("older"); text != "" {
		var err error
		if older, err = time.ParseDuration(text); err != nil || older < 0 {
			http.Error(w, "older is "+strconv.Quote(text)+": give a time such as 60s", http.StatusBadRequest)
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), machineTimeout)
	defer cancel()
	all, at, answered := n.Holds(ctx)
	if !answered {
		http.Error(w, errStuck.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(listHolds(all, at, older))
}
