package runtime_test

import (
	"fmt"
	"os"
	goruntime "runtime"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

// A strike hits a process at what a machine does: just before an effect of this type is carried out, or an event of it
// is
// taken, the first time after another one. Zero strikes never.
type strike struct {
	After, At string // such as "*effects.Post"; nothing need come before if After is empty
	Signal    syscall.Signal
	Before    bool // nothing was read by then
	There     bool // the machine is the other end's, and the process is hit from outside
}

// readerStrikes are where a receiver may be hit in a pull.
var readerStrikes = map[string]strike{
	"before it connects to the pages":  {At: "*effects.Import", Before: true},
	"before it reads":                  {At: "*effects.Transfer", Before: true},
	"behind its read":                  {At: "*effects.TransferDone"},
	"before it answers":                {After: "*effects.TransferDone", At: "*effects.Reply"},
	"before it says that it has read":  {At: "*effects.Post"},
	"behind its word that it has read": {At: "*effects.SendDone"},
}

// ownerStrikes are where a sender may be hit in a pull.
var ownerStrikes = map[string]strike{
	"before it lends":                          {At: "*effects.Grant"},
	"before its offer leaves":                  {After: "*effects.Grant", At: "*effects.Send"},
	"before it hears the answer":               {After: "*effects.Grant", At: "*effects.Replied"},
	"before it hears that its pages were read": {At: "*effects.Received"},
	"before its pages are read":                {At: "*effects.Transfer", There: true},
	"behind the read of its pages":             {At: "*effects.TransferDone", There: true},
	"before it is told that they were read":    {At: "*effects.Post", There: true},
}

// eachStrike runs a test for each strike and plane, several at a time: they mostly wait. If short, it leaves out tcp.
func eachStrike(t *testing.T, short bool, strikes map[string]strike, test func(*testing.T, string, strike)) {
	channels := []string{"shm", "tcp"}
	if short {
		channels = channels[:1] // Its pages can be read whatever their owner does.
	}
	for _, channel := range channels {
		for name, at := range strikes {
			t.Run(channel+" "+name, func(t *testing.T) {
				t.Parallel()
				test(t, channel, at)
			})
		}
	}
}

// arm returns what is told of each event and effect, on one goroutine; it calls hit once.
func (s strike) arm(hit func()) func(what any) {
	armed, struck := s.After == "", false
	return func(what any) {
		switch name := fmt.Sprintf("%T", what); {
		case struck || s.At == "":
		case armed && name == s.At:
			struck = true
			hit()
		case name == s.After:
			armed = true
		}
	}
}

// hitSelf signals this very thread, so that nothing goes on behind the call.
func hitSelf(with syscall.Signal) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	_ = syscall.Tgkill(os.Getpid(), syscall.Gettid(), with) // Of one's own process it cannot fail.
}

// briefly is how long offers stand that are to end by time. Whatever is slower than that on a busy machine fails as it
// does when a process is frozen, and is tried again.
const briefly = 300 * time.Millisecond

// offerChunks is the size of the puts here.
const offerChunks = 2

// briefSender is a sender in this process whose offers stand briefly.
func briefSender(t *testing.T, channel string) *runtime.Node {
	t.Helper()
	cfg := pullSenderConfig(t, channel, effects.Addr{})
	cfg.Machine.PullTTL, cfg.Machine.LeaseGuard = effects.Duration(briefly), effects.Duration(briefly/4)
	cfg.Machine.ReplyTimeout = effects.Second // Its last words to one who is dead are waited for when it closes.
	return open(t, cfg)
}

// An offering is what a test's sender has put until something happened to its receiver.
type offering struct {
	keys    []string
	pages   []*runtime.Pages
	results []runtime.PutResult
}

// offersUntil puts pages to a receiver again and again until over is closed. Once is the rule; more often
// where this machine was too slow for what was to happen, or the put was faster than the receiver's last words.
func offersUntil(t *testing.T, s *runtime.Node, peer runtime.Peer, over <-chan struct{}) (o offering) {
	t.Helper()
	ctx := within(t)
	for round := 0; ctx.Err() == nil; round++ {
		keys := keysOf(fmt.Sprintf("offer%d", round), offerChunks)
		pages := mustReserve(t, s, len(keys))
		fill(t, pages, keys)
		res, err := s.Sender().Put(ctx, runtime.Put{Peer: peer, Request: "r", Keys: keys, Pages: pages,
			Timeout: time.Second})
		o.keys, o.pages, o.results = append(o.keys, keys...), append(o.pages, pages), append(o.results, res)
		t.Logf("put %d ended as %v", round, runtime.CodeOf(err))
		select {
		case <-over:
			return o
		default:
			o.reclaims(t)
		}
	}
	t.Fatal("it never happened")
	return o
}

// reclaims waits until all pages are back, by time alone if need be, and uses them for something else.
func (o *offering) reclaims(t *testing.T) {
	t.Helper()
	for i := range o.results {
		wantReturned(t, o.results[i])
		overwrite(t, o.pages[i])
		mustRelease(t, o.pages[i])
	}
	o.results, o.pages = nil, nil
}

// putUntilAccepted puts until it works, and returns the keys.
func putUntilAccepted(t *testing.T, s *runtime.Node, peer runtime.Peer) []string {
	t.Helper()
	keys := keysOf("after", offerChunks)
	pages := mustReserve(t, s, len(keys))
	fill(t, pages, keys)
	ctx := within(t)
	for {
		res, err := s.Sender().Put(ctx, runtime.Put{Peer: peer, Request: "after", Keys: keys, Pages: pages})
		wantReturned(t, res)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	mustRelease(t, pages)
	return keys
}

// hitOwner has a sender in a process of its own put to a receiver here until it was hit. It returns the keys that were
// put, and how many answers the process still owes.
func hitOwner(t *testing.T, channel string, at strike) (r *runtime.Node, p *process, keys []string, answers int) {
	t.Helper()
	r = open(t, receiverConfig(t, channel, nil))
	o := order{Role: "sender", Channel: channel, TTL: briefly, Strike: at}
	if at.There {
		o.Strike = strike{}
	}
	p, _ = startNode(t, o)
	hit := p.FrozenOnce()
	if at.Signal == syscall.SIGKILL {
		hit = p.Exited()
	}
	if at.There {
		strikes := at.arm(func() {
			p.Signal(at.Signal)
			<-hit // Only then goes the machine here on.
		})
		r.Watch(func(ev effects.Event) { strikes(ev) }, func(e effects.Effect) { strikes(e) })
	}
	for ctx, round := within(t), 0; ctx.Err() == nil; round++ {
		batch := keysOf(fmt.Sprintf("offer%d", round), offerChunks)
		keys = append(keys, batch...)
		p.SendJSON(order{Op: "put", Peer: peerOf(r), Keys: batch})
		p.SendJSON(order{Op: "reclaim"})
		for answers = 2; answers > 0; answers-- {
			if _, ok := p.NextLine(hit); !ok {
				return r, p, keys, answers
			}
		}
	}
	t.Fatal("it was never hit")
	return r, p, keys, answers
}
