package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
)

// A rig is a machine, its clock, and what its last step wanted.
type rig struct {
	*Machine
	now     effects.Time
	out     effects.Effects
	request effects.Request
}

func newRig(t failer, change func(c *Config)) *rig {
	c := Default()
	c.Directory.Seed, c.Directory.Silence, c.Directory.SyncTimeout = 1, 30*effects.Second, 10*effects.Second
	c.Heartbeat = "10.0.0.9:8082"
	if change != nil {
		change(&c)
	}
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{Machine: m}
}

// hears steps the machine with a body: as a question, but for those of the feed.
func (r *rig) hears(ch effects.Channel, conn effects.Conn, body []byte) {
	x := effects.Received{Conn: conn, Channel: ch, Body: body}
	if ch.HasReplies() {
		r.request++
		x.Request = r.request
	}
	r.step(&x)
}

func (r *rig) step(ev effects.Event) {
	r.out.Reset()
	r.Step(r.now, ev, &r.out)
}

// pass lets time pass, with a tick at each deadline, and gives what was observed.
func (r *rig) pass(until effects.Time, see func()) {
	for at, ok := r.Deadline(); ok && at <= until; at, ok = r.Deadline() {
		if at <= r.now && !r.sweeps() {
			break
		}
		r.now = max(at, r.now)
		r.step(&effects.Tick{})
		see()
	}
	r.now = until
	r.step(&effects.Tick{})
	see()
}

// sweeps says whether there is work left of the same instant.
func (r *rig) sweeps() bool {
	at, ok := r.Deadline()
	return ok && at <= r.now
}

// answer is the reply of the last step, nil if there is none.
func (r *rig) answer(t failer) []byte {
	var body []byte
	for i := range r.out.Len() {
		if e, ok := r.out.At(i).(*effects.Reply); ok {
			if body != nil || e.Request != r.request {
				t.Fatalf("answers request %d, asked was %d, once", e.Request, r.request)
			}
			body = e.Body
		}
	}
	return body
}

// refused says what the last step refused; OK: nothing.
func (r *rig) refused() effects.Code {
	for i := range r.out.Len() {
		if e, ok := r.out.At(i).(*effects.Observe); ok && e.Fact == effects.FactMalformed {
			return e.Code
		}
	}
	return effects.OK
}

// told is what a directory's notes are called here.
var told = map[directory.NoteKind]string{
	directory.WorkerJoined: "registered", directory.WorkerRenewed: "registered anew", directory.WorkerMet: "was met by its heartbeat",
	directory.WorkerLeft: "left", directory.WorkerSilent: "went silent", directory.OperationsLost: "lost its order",
	directory.SyncBegan: "begins a sync", directory.SyncCompleted: "is synced", directory.SyncGivenUp: "has its sync given up",
	directory.ChunksLeftOut: "has chunks that are left out",
}

// channels are those that it serves.
var channels = []effects.Channel{effects.ChannelDirectory, effects.ChannelFeed, effects.ChannelHeartbeat}

func worker(name string, rank uint32) protocol.Worker {
	return protocol.Worker{InstanceID: []byte(name), WorkerID: rank}
}

func listener() protocol.Listener { return protocol.Listener{IP: []byte("10.0.0.1"), Port: 9000} }

// A failer is a test, or one that rapid makes.
type failer interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}
