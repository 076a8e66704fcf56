package operator

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// rowsMax is the number of rows in an answer.
const rowsMax = 1000

// listRows calls list, which asks the loop of a node for rows, within machineTimeout. It reports false if the loop does not
// answer, and has then answered the request.
func listRows[T any](w http.ResponseWriter, r *http.Request, list func(context.Context) ([]T, effects.Time, bool)) (
	[]T, effects.Time, bool) {
	ctx, cancel := context.WithTimeout(r.Context(), machineTimeout)
	defer cancel()
	all, at, answered := list(ctx)
	if !answered {
		http.Error(w, errStuck.Error(), http.StatusServiceUnavailable)
	}
	return all, at, answered
}

// writeJSON answers a request. The answer may have text of peers, which no browser may take for a page.
func writeJSON(w http.ResponseWriter, answer any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(answer)
}

// parseOlder returns the age of a request's parameter older, which is 0 if the request has no such parameter. It reports
// false if the text is no age, and has then answered the request.
func parseOlder(w http.ResponseWriter, r *http.Request) (older time.Duration, ok bool) {
	text := r.FormValue("older")
	if text == "" {
		return 0, true
	}
	older, err := time.ParseDuration(text)
	if err != nil || older < 0 {
		http.Error(w, "older is "+strconv.Quote(text)+": give a time such as 60s", http.StatusBadRequest)
		return 0, false
	}
	return older, true
}

// peerName returns an incarnation as logs name it, or "" for none.
func peerName(id effects.Incarnation) string {
	if id == (effects.Incarnation{}) {
		return ""
	}
	return hex.EncodeToString(id[:4])
}

// addrText returns host:port, or "" if there is no host.
func addrText(host string, port uint16) string {
	if host == "" {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// secondsAgo returns how long a time is over, or nil if the time is not known.
func secondsAgo(at, t effects.Time) *float64 {
	if t == 0 {
		return nil
	}
	s := time.Duration(at.Sub(t)).Seconds()
	return &s
}

// ageSeconds returns how long a time is over, or -1 if the time is not known.
func ageSeconds(at, t effects.Time) float64 {
	if s := secondsAgo(at, t); s != nil {
		return *s
	}
	return -1
}

// secondsLeft returns how long it is until a time, or nil if the time is not known.
func secondsLeft(at, t effects.Time) *float64 {
	if t == 0 {
		return nil
	}
	s := time.Duration(t.Sub(at)).Seconds()
	return &s
}

// matchesPeer reports whether a parameter peer names something: by a name, by the first 8 digits of an incarnation (more
// digits are accepted), or by an address with or without the port. An empty parameter names everything.
func matchesPeer(want, incarnation, addr string, names ...string) bool {
	if want == "" || incarnation != "" && strings.HasPrefix(want, incarnation) || addr == want {
		return true
	}
	if host, _, err := net.SplitHostPort(addr); err == nil && host == want {
		return true
	}
	for _, name := range names {
		if name == want {
			return true
		}
	}
	return false
}
