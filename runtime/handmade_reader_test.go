//go:build cgo

package runtime_test

import (
	"bytes"
	"slices"
	"testing"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// A handmadeReader is a receiver as LMCache-Ascend has them, two REP sockets and a PUSH, of which not one control byte
// comes from our codecs or sockets. Of our fields it says as many in its handshake as a sender on a fenced plane asks
// for.
type handmadeReader struct {
	t           *testing.T
	node        *runtime.Node // the sender it meets
	init, alloc *zmq4.Socket
	done        *zmq4.Socket // once it was told where
	plane       *planetest.Node
	peer        runtime.Peer

	sender effects.Incarnation // as we know it
	blob   []byte              // of its plane
	offer  []byte
	pull   string
	grant  uint64
}

func newHandmadeReader(t *testing.T, node *runtime.Node, opener plane.Opener) *handmadeReader {
	r := &handmadeReader{t: t, node: node, init: plainSocket(t, zmq4.REP), alloc: plainSocket(t, zmq4.REP),
		plane: planetest.OpenNode(t, opener, 7, 2, pageBytes)}
	init, alloc := addrOf(t, bindPlainly(t, r.init)), addrOf(t, bindPlainly(t, r.alloc))
	r.peer = runtime.Peer{Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port}
	return r
}

// serves answers one request.
func (r *handmadeReader) serves(s *zmq4.Socket, want string, answer []byte) (request []byte) {
	r.t.Helper()
	request = r.hears(s, want)
	r.says(s, answer)
	return request
}

func (r *handmadeReader) says(s *zmq4.Socket, answer []byte) {
	r.t.Helper()
	if _, err := s.SendBytes(answer, 0); err != nil {
		r.t.Fatal(err)
	}
}

func (r *handmadeReader) hears(s *zmq4.Socket, want string) (request []byte) {
	r.t.Helper()
	request, err := s.RecvBytes(0)
	if err != nil || !bytes.Contains(request, []byte(fixstr(want))) {
		r.t.Fatalf("heard %q (%v), want %s", request, err, want)
	}
	return request
}

// welcomes shakes hands and takes the offer.
func (r *handmadeReader) welcomes(plainly bool) {
	r.t.Helper()
	if plainly {
		r.serves(r.init, "HixlInitRequest", msgmap("type", fixstr("HixlInitResponse"), "engine_id", fixstr("plain")))
		return
	}
	hello := r.hears(r.init, "HixlInitRequest")
	r.sender = nameIn(r.t, hello)
	name := r.plane.Plane.Name()
	r.says(r.init, msgmap("type", fixstr("HixlInitResponse"), "engine_id", fixstr("handmade"),
		"kvf_proto", "\x92\x03\x03", "kvf_inc", str8(uuidText(r.plane.Inc)), "kvf_page_bytes", "\xcd\x40\x00", "kvf_fmt",
		"\x01",
		"kvf_shape", handmadeShape, "kvf_dtype", fixstr("bfloat16"), "kvf_planes", arrayOf(fixstr(name)),
		"kvf_blobs", arrayOf(bin8(planetest.NewInvitation(name, r.plane.Plane.Blob(), r.sender, r.plane.Inc)))))
	list := r.serves(r.init, "HixlMemInfoRequest", msgmap("type", fixstr("HixlMemInfoResponse"), "buffers", arrayOf()))
	r.blob = blobIn(r.t, list)
	r.offer = r.hears(r.alloc, "PullReadyNotif")
	r.pull, r.grant = readString(r.t, valueAfter(r.t, r.offer, "pull_id")), readUint(r.t, valueAfter(r.t, r.offer, "kvf_grant"))
	r.done = plainSocket(r.t, zmq4.PUSH)
	if err := r.done.Connect("tcp://" + readString(r.t, valueAfter(r.t, r.offer, "sender_done_url"))); err != nil {
		r.t.Fatal(err)
	}
}

// reads moves the chunks' bytes, and compares them with the sender's.
func (r *handmadeReader) reads(want [][]byte) {
	r.t.Helper()
	gens, indexes := readUints(r.t, valueAfter(r.t, r.offer, "kvf_gens")), readUints(r.t, valueAfter(r.t, r.offer, "sender_mem_indexes"))
	of := r.sender
	if life := r.node.Incarnation(); !identity.SameIncarnation(of, life) || of == life {
		r.t.Fatalf("the handshake came from %x", r.sender)
	}
	linked := r.plane.ImportAs(r.t, r.plane.Inc, of, r.blob)
	if linked.Code != effects.OK {
		r.t.Fatalf("the import ended as %s", linked.Code)
	}
	var from []effects.Page
	for i := range gens {
		from = append(from, effects.Page{Index: uint32(indexes[i]), Generation: effects.Generation(gens[i])})
	}
	into := r.plane.PublishPages(0, len(from), pageBytes)
	buffer := readString(r.t, valueAfter(r.t, r.offer, "sender_buffer_uuids")[1:])
	done := r.plane.AwaitDone(r.t, r.plane.StartRead(planetest.Pull{Of: of, Link: linked.Link, Grant: effects.GrantID(r.grant),
		From: from, Into: into, Buffer: bufferOf(r.t, buffer)}))
	if done.Code != effects.OK {
		r.t.Fatalf("the read ended as %s", done.Code)
	}
	for i, page := range into {
		if !bytes.Equal(r.plane.Pool.Bytes(page), want[i]) {
			r.t.Errorf("chunk %d differs from what was offered", i)
		}
	}
}

// acks answers the offer; the receiver's name goes with it unless it answers plainly.
func (r *handmadeReader) acks(already, failed string, more ...string) {
	r.t.Helper()
	r.answers(msgmap(append([]string{"type", fixstr("PullReadyDoneAck"), "already_sent_indexes", already, "alloc_failed",
		failed}, more...)...))
}

func (r *handmadeReader) named() []string {
	return []string{"kvf_v", "\x02", "kvf_inc", str8(uuidText(r.plane.Inc))}
}

func (r *handmadeReader) answers(b []byte) {
	r.t.Helper()
	r.says(r.alloc, b)
}

// tells sends one word to where the sender takes them.
func (r *handmadeReader) tells(pull string, more ...string) {
	r.t.Helper()
	r.pushes(msgmap(append([]string{"type", fixstr("PullDoneSignal"), "pull_id", str8(pull)}, more...)...))
}

func (r *handmadeReader) pushes(b []byte) {
	r.t.Helper()
	r.says(r.done, b)
}

// tellsDone says that the offer was read.
func (r *handmadeReader) tellsDone() {
	r.t.Helper()
	r.tells(r.pull, append(r.named(), "kvf_to", str8(uuidText(r.sender)), "kvf_grant", uint64Of(r.grant))...)
}

func (r *handmadeReader) waitsUntilNothingIsLent() {
	r.t.Helper()
	waitFor(r.t, r.node, "the end of the loan", func(s rank.Stats) bool { return s.PagesLeased == 0 })
}

const (
	none  = "\x90"
	no    = "\xc2"
	yes   = "\xc3"
	other = "fedcba9876543210fedcba9876543210" // an offer that nobody made
)

// readings are what receivers do with an offer of two chunks, and how that ends. Offers stand for a minute and
// more unless they are to end by time: then what is not said is not waited for.
var readings = []struct {
	name    string
	play    func(r *handmadeReader, want [][]byte)
	code    []effects.Code
	skipped int
	briefly bool // the offer ends by time
}{
	{name: "reads, answers, and says so", code: []effects.Code{effects.OK}, play: func(r *handmadeReader, want [][]byte) {
		r.reads(want)
		r.acks(none, no, r.named()...)
		r.tellsDone()
	}},
	{name: "answers at once and reads later", code: []effects.Code{effects.OK},
		play: func(r *handmadeReader, want [][]byte) {
			r.acks(none, no, append(r.named(), "kvf_delayed", yes)...)
			r.reads(want)
			r.tellsDone()
		}},
	{name: "says so before it answers", code: []effects.Code{effects.OK}, play: func(r *handmadeReader, want [][]byte) {
		r.reads(want)
		r.tellsDone()
		r.waitsUntilNothingIsLent()
		r.acks(none, no, r.named()...)
	}},
	{name: "says so twice, and of offers that nobody made", code: []effects.Code{effects.OK},
		play: func(r *handmadeReader, _ [][]byte) {
			r.tells(other, r.named()...)
			r.tells(other)
			r.acks(none, no, r.named()...)
			r.tellsDone()
			r.tellsDone()
		}},
	{name: "never says so", briefly: true, code: []effects.Code{effects.OK, effects.Expired},
		play: func(r *handmadeReader, _ [][]byte) {
			r.acks(none, no, r.named()...)
		}},
	{name: "says so without a name, which anybody could", code: []effects.Code{effects.OK},
		play: func(r *handmadeReader, _ [][]byte) {
			r.acks(none, no, r.named()...)
			r.tells(r.pull)
			before := malformed(r.node)
			r.pushes([]byte("nonsense")) // Comes behind it, and is counted.
			waitFor(r.t, r.node, "the nonsense", func(rank.Stats) bool { return malformed(r.node) > before })
			if s := r.node.Stats(); s.PagesLeased != 2 {
				r.t.Errorf("%d pages are still lent, want 2", s.PagesLeased)
			}
			r.tellsDone()
		}},
	{name: "never answers", briefly: true, code: []effects.Code{effects.Expired},
		play: func(*handmadeReader, [][]byte) {}},
	{name: "has them already", skipped: 2, code: []effects.Code{effects.OK}, play: func(r *handmadeReader, _ [][]byte) {
		r.acks("\x92\x00\x01", no, r.named()...)
	}},
	{name: "has no memory", code: []effects.Code{effects.NoMemory}, play: func(r *handmadeReader, _ [][]byte) {
		r.acks(none, yes, r.named()...)
	}},
	{name: "answers without the name it gave", code: []effects.Code{effects.Malformed},
		play: func(r *handmadeReader, _ [][]byte) {
			r.acks(none, no)
		}},
	{name: "answers with the empty frame of LMCache-Ascend's errors", code: []effects.Code{effects.Malformed},
		play: func(r *handmadeReader, _ [][]byte) {
			r.answers(nil)
		}},
	{name: "has what was not offered", code: []effects.Code{effects.Malformed}, play: func(r *handmadeReader, _ [][]byte) {
		r.acks("\x91\x07", no, r.named()...)
	}},
}

func malformed(n *runtime.Node) (times uint64) {
	for _, c := range n.FactCounts() {
		if c.Fact == effects.FactMalformed {
			times += c.Times
		}
	}
	return times
}

// Whatever a receiver does or leaves out, the put has one outcome, and the memory comes back.
func TestHandmadeReaders(t *testing.T) {
	for name, opener := range map[string]plane.Opener{shm.Name: shm.Open, tcp.Name: tcp.Open} {
		for _, c := range readings {
			t.Run(name+" "+c.name, func(t *testing.T) {
				cfg := pullSenderConfig(t, name, effects.Addr{})
				cfg.Machine.ReplyTimeout = effects.Duration(limit)
				if c.briefly {
					m := &cfg.Machine
					m.PullTTL, m.LeaseGuard = effects.Duration(briefly), effects.Duration(briefly/4)
					m.ReplyTimeout = effects.Second
				}
				node := open(t, cfg)
				defer mustClose(t, node)
				r := newHandmadeReader(t, node, opener)
				res, err := r.meets(false, c.play)
				if code := runtime.CodeOf(err); !slices.Contains(c.code, code) || res.Skipped != c.skipped {
					t.Errorf("it ended as %v (%v) with %d skipped; want %v and %d", code, err, res.Skipped, c.code, c.skipped)
				}
			})
		}
	}
}

// meets puts two chunks to the reader, lets it play, and returns how the put ended, once its memory is back.
func (r *handmadeReader) meets(plainly bool, play func(*handmadeReader, [][]byte)) (runtime.PutResult, error) {
	r.t.Helper()
	keys := keysOf("handmade", 2)
	pages := mustReserve(r.t, r.node, 2)
	fill(r.t, pages, keys)
	var want [][]byte
	for i := range keys {
		b, err := pages.Bytes(i)
		if err != nil {
			r.t.Fatal(err)
		}
		want = append(want, bytes.Clone(b))
	}
	type outcome struct {
		res runtime.PutResult
		err error
	}
	ended, ctx := make(chan outcome, 1), within(r.t)
	go func() {
		res, err := r.node.Sender().Put(ctx, runtime.Put{Peer: r.peer, Request: "r", Keys: keys, Pages: pages})
		ended <- outcome{res, err}
	}()
	if r.welcomes(plainly); play != nil {
		play(r, want)
	}
	out := <-ended
	wantReturned(r.t, out.res)
	mustRelease(r.t, pages)
	// It may still wait for an answer.
	waitFor(r.t, r.node, "the end of the put", func(s rank.Stats) bool { return s.Puts == 0 })
	wantNothingHeld(r.t, r.node)
	return out.res, out.err
}

// On a fenced plane nobody can read without a name. A receiver that gives none is offered nothing.
func TestPlainReaderIsOfferedNothing(t *testing.T) {
	node := open(t, pullSenderConfig(t, shm.Name, effects.Addr{}))
	defer mustClose(t, node)
	r := newHandmadeReader(t, node, shm.Open)
	_, err := r.meets(true, nil)
	wantCode(t, err, effects.Unsupported)
}

// The engine takes back what it has lent to a receiver that keeps silent: its pages are its own at once, though the
// offer would stand for long.
func TestTakeBackOfWhatIsLent(t *testing.T) {
	for name, opener := range map[string]plane.Opener{shm.Name: shm.Open, tcp.Name: tcp.Open} {
		t.Run(name, func(t *testing.T) {
			cfg := pullSenderConfig(t, name, effects.Addr{})
			node := open(t, cfg)
			defer mustClose(t, node)
			r := newHandmadeReader(t, node, opener)
			keys, pages := keysOf("silent", 2), mustReserve(t, node, 2)
			defer mustRelease(t, pages)
			fill(t, pages, keys)
			ended, ctx := make(chan runtime.PutResult, 1), within(t)
			go func() {
				res, err := node.Sender().Put(ctx, runtime.Put{Peer: r.peer, Request: "r", Keys: keys, Pages: pages})
				if err != nil {
					t.Error(err)
				}
				ended <- res
			}()
			r.welcomes(false)
			r.acks(none, no, r.named()...)
			res := <-ended
			if isReturned(res) {
				t.Error("the pages are back although nobody has said that they were read")
			}
			if err := node.Sender().WithdrawPut(res); err != nil {
				t.Error(err)
			}
			wantReturned(t, res)
			if err := node.Sender().WithdrawPut(res); err != nil {
				t.Errorf("a second time: %v", err)
			}
		})
	}
}
