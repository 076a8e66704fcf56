package operator

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// transfersMax is the number of ended transfers of each kind that are kept: of puts, and of calls that fetch chunks.
const transfersMax = 100

// repeatTime is the time of failures that count as one with earlier ones of the same kind, and repeatsAmong is among how
// many records an earlier one is looked for. Example: while a circuit breaker is open, an engine tries a put a hundred times
// in a second. All of them end at once, and the put that opened the breaker shall still be seen.
const (
	repeatTime   = time.Millisecond
	repeatsAmong = 8
)

// A transferRecord is a transfer that has ended.
type transferRecord struct {
	number uint64 // counts the transfers of the node from 1; the last one of a record
	times  uint64 // more than 1 for failures that count as one
	kind   string
	code   effects.Code
	peer   effects.Incarnation
	chunks uint32
	bytes  uint64
	ended  time.Time
	took   time.Duration
	phases effects.PhaseTimes
	why    effects.Why // of a failure
}

// A transferRing keeps the last transfers that ended. Puts and calls have a ring each, so that an engine that polls for
// chunks leaves the puts to be seen. The memory is allocated once.
type transferRing struct {
	mu    sync.Mutex
	last  uint64
	rings [2][transfersMax]transferRecord
	count [2]uint64 // records in each ring, since the start
}

// The rings of a transferRing.
const (
	ringPuts = iota
	ringCalls
)

// add keeps a transfer that has just ended, in the place of the oldest one of its ring.
func (t *transferRing) add(ring int, x transferRecord) {
	x.ended = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	x.number, x.times = t.last, 1
	records, n := &t.rings[ring], t.count[ring]
	for i := range min(n, repeatsAmong) {
		if former := &records[(n-1-i)%transfersMax]; former.isRepeatedBy(&x) {
			x.times += former.times
			*former = x
			return
		}
	}
	records[n%transfersMax] = x
	t.count[ring]++
}

// isRepeatedBy reports whether a transfer failed at once, and as this one did.
func (x *transferRecord) isRepeatedBy(y *transferRecord) bool {
	return y.code != effects.OK && x.code == y.code && x.kind == y.kind && x.peer == y.peer && x.why.Addr == y.why.Addr &&
		max(x.took, y.took) < repeatTime
}

// newestFirst returns a copy of the transfers.
func (t *transferRing) newestFirst() (all []transferRecord, ended uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.rings {
		all = append(all, t.rings[i][:min(t.count[i], transfersMax)]...)
	}
	slices.SortFunc(all, func(a, b transferRecord) int { return cmp.Compare(b.number, a.number) })
	return all, t.last
}

// recordReport keeps a put or, of a traced request, a grant that has ended. Other reports are for traces only.
func (t *transferRing) recordReport(e *effects.Observe) {
	kind := ""
	//exhaustive:ignore
	switch e.Fact {
	case effects.FactPutEnded:
		kind = "put"
	case effects.FactGrantTraced:
		kind = "receive"
	default:
		return
	}
	x := transferRecord{kind: kind, code: e.Code, peer: e.Peer, chunks: e.Count, bytes: e.Report.Bytes, phases: e.Report.Phases,
		took: time.Duration(e.Report.Phases.Sum())}
	if e.Why != nil {
		x.why = *e.Why
	}
	t.add(ringPuts, x)
}

// recordCall keeps a call that fetches chunks. The machine does not say how its time was spent.
func (t *transferRing) recordCall(label string, code effects.Code, took time.Duration) {
	switch label {
	case "get", "fetch", "recall", "bring":
		t.add(ringCalls, transferRecord{kind: label, code: code, took: took})
	}
}

// A transfer is a transferRecord as operators see it.
type transfer struct {
	Number          uint64  `json:"number"` // counts the transfers of the process
	Kind            string  `json:"kind"`
	Outcome         string  `json:"outcome"`
	Error           string  `json:"error,omitempty"`
	Peer            string  `json:"peer,omitempty"`    // the incarnation of the peer, as in its log
	Address         string  `json:"address,omitempty"` // of the peer of a put that failed
	Times           uint64  `json:"times,omitempty"`   // absent: 1. More failures of this kind ended at once; this is the last one
	Chunks          int     `json:"chunks,omitempty"`
	Bytes           uint64  `json:"bytes,omitempty"`
	EndedSecondsAgo float64 `json:"ended_seconds_ago"`
	Seconds         float64 `json:"seconds"`
	Stages          []stage `json:"stages,omitempty"` // in their order, without those that took no time
}

// A stage is the time that a put spent in a stage.
type stage struct {
	Stage   string  `json:"stage"`
	Seconds float64 `json:"seconds"`
}

// transfersAnswer is the answer to a request for the transfers.
type transfersAnswer struct {
	Ended     uint64     `json:"ended"` // all transfers since the start
	Transfers []transfer `json:"transfers"`
}

// list returns the transfers with a peer, the newest first.
func (t *transferRing) list(at time.Time, want string) transfersAnswer {
	all, ended := t.newestFirst()
	answer := transfersAnswer{Ended: ended, Transfers: []transfer{}}
	for i := range all {
		x := &all[i]
		if !matchesPeer(want, peerName(x.peer), addrText(x.why.Addr.Host, x.why.Addr.Port)) {
			continue
		}
		y := transfer{Number: x.number, Kind: x.kind, Outcome: x.code.String(), Peer: peerName(x.peer), Chunks: int(x.chunks),
			Bytes: x.bytes, EndedSecondsAgo: at.Sub(x.ended).Seconds(), Seconds: x.took.Seconds()}
		if x.code != effects.OK {
			y.Error, y.Address = x.why.Text(x.code), addrText(x.why.Addr.Host, x.why.Addr.Port)
		}
		if x.times > 1 {
			y.Times = x.times
		}
		for p, took := range x.phases {
			if took > 0 {
				y.Stages = append(y.Stages, stage{effects.Phase(p).String(), time.Duration(took).Seconds()})
			}
		}
		answer.Transfers = append(answer.Transfers, y)
	}
	return answer
}

// serveTransfers answers with the transfers that have ended lately.
func (t *transferRing) serveTransfers(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, t.list(time.Now(), r.FormValue("peer")))
}
