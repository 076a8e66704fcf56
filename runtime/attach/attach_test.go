package attach

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("ATTACH_ENGINE"); path != "" {
		engineProcess(path)
		return
	}
	if path := os.Getenv("ATTACH_EXEC"); path != "" {
		execProcess(path)
		return
	}
	if os.Getenv("ATTACH_WAIT") != "" {
		fmt.Println(0)
		_, _ = io.ReadAll(os.Stdin)
		return
	}
	if path := os.Getenv("ATTACH_AGENT"); path != "" {
		agentProcess(path)
		return
	}
	goleak.VerifyTestMain(m)
}

const patience = uint64(30 * time.Second)

// A rig is a node that engines attach to.
type rig struct {
	t    testing.TB
	node *runtime.Node
	s    *Server
}

func newRig(t testing.TB, role string, more ...string) *rig {
	t.Helper()
	return newRigOf(t, role, "1MiB", "layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}", more...)
}

// newRigOf is a rig with a pool of such a size, and with such chunks.
func newRigOf(t testing.TB, role, pool, layout string, more ...string) *rig {
	t.Helper()
	return newRigFrom(t, strings.Join(more, "\n")+`
enable_pd: true
pd_role: `+role+`
pd_peer_host: 127.0.0.1
pd_peer_init_port: 7300
pd_peer_alloc_port: 7400
pd_skip_proxy_notification: true
chunk_size: 16
pd_buffer_size: `+pool+`
pd_buffer_device: cpu
extra_config:
  kvferry:
    `+layout+`
`)
}

// newRigFrom is a rig of a configuration, on ports where the system likes.
func newRigFrom(t testing.TB, text string, more ...runtime.Option) *rig {
	t.Helper()
	cfg, err := config.Parse("test", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, ports := range [][]uint16{cfg.InitPorts, cfg.AllocPorts, cfg.Pull.DonePorts, cfg.Share.LookupPorts,
		cfg.QueryPorts} {
		clear(ports)
	}
	n, err := runtime.Open(t.Context(), cfg, append(more, runtime.WithAttachable(), runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(shm.Name, shm.Open), runtime.WithPlane(tcp.Name, tcp.Open))...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve(Config{Node: n, Path: filepath.Join(t.TempDir(), "s"), Window: 16, CallBytes: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, node: n, s: s}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) attach() *client {
	c := attach(r.t, r.s.Path())
	r.t.Cleanup(func() { // Where it has not detached, it does: its process is this one, which goes on.
		bye := (&protocol.EngineCall{ID: c.last + 1, Op: []byte("detach")}).Append(nil)
		_, _ = c.conn.Write(protocol.AppendFrame(nil, bye))
		_, _ = io.Copy(io.Discard, c.conn)
		c.free(r.t)
	})
	return c
}

// peer is a call that names where the node listens.
func (r *rig) peer(call protocol.EngineCall) protocol.EngineCall {
	call.Host = []byte("127.0.0.1")
	for _, s := range r.node.Servers() {
		switch s.Channel {
		case effects.ChannelInit:
			call.InitPort = uint32(s.Addr.Port)
		case effects.ChannelAlloc:
			call.AllocPort = uint32(s.Addr.Port)
		case effects.ChannelQuery:
			if call.Op != nil {
				call.QueryPort = uint32(s.Addr.Port)
			}
		}
	}
	return call
}

// quiet waits until the node has every page again and no engine is attached.
func (r *rig) quiet() { r.left(0) }

// left waits until the node has every page again and so many engines are attached.
func (r *rig) left(engines int) {
	r.t.Helper()
	r.await(func() bool {
		s := r.node.Stats()
		return s.PagesFree+s.PagesEvictable >= s.PagesTotal && r.s.Counts().Engines == engines
	})
}

// await waits until the node and the server are as a test wants them.
func (r *rig) await(holds func() bool) {
	r.t.Helper()
	for !holds() {
		select {
		case <-r.t.Context().Done():
			r.t.Fatalf("%+v, attached %+v", r.node.Stats(), r.s.Counts())
		case <-time.After(time.Millisecond): // Nobody tells of it.
		}
	}
}

func keys(n int) (all [][]byte) {
	for i := range n {
		all = append(all, fmt.Appendf(nil, "model@1@0@%x@bfloat16", 0xc0ffee+i))
	}
	return all
}

// What one engine fills in place another reads in place, byte for byte.
func TestChunksGoFromEngineToEngine(t *testing.T) {
	from, to := newRig(t, "sender"), newRig(t, "receiver")
	a, b := from.attach(), to.attach()
	if string(bytes.Join(a.told.Sides, nil)) != "sender" || string(bytes.Join(b.told.Sides, nil)) != "receiver" {
		t.Errorf("sides are %q and %q", a.told.Sides, b.told.Sides)
	}
	const n = 3
	got := a.ok(protocol.CallReserve, protocol.EngineCall{Count: n})
	for i, page := range got.Pages {
		if got.Lengths[i] != a.told.PageBytes {
			t.Errorf("page %d has %d bytes", i, got.Lengths[i])
		}
		fill(a.page(page), byte(i+1))
	}
	put := a.ok(protocol.CallPut, from.withKeys(to.peer(protocol.EngineCall{Target: got.ID, Request: []byte("r"),
		Last: true}), n))
	if put.Sent != n {
		t.Errorf("%d sent", put.Sent)
	}
	if hits := b.ok(protocol.CallContains, protocol.EngineCall{Keys: keys(n)}).Hits; hits != n {
		t.Errorf("contains %d", hits)
	}
	here := b.ok(protocol.CallGet, protocol.EngineCall{Keys: keys(n), Request: []byte("r"), PatienceNS: patience})
	for i, page := range here.Pages {
		if !bytes.Equal(b.page(page), a.page(got.Pages[i])) {
			t.Errorf("chunk %d is another", i)
		}
	}
	a.ok(protocol.CallRelease, protocol.EngineCall{Target: got.ID})
	b.ok(protocol.CallRelease, protocol.EngineCall{Target: here.ID})
	if again := b.call(protocol.CallRelease, protocol.EngineCall{Target: here.ID}); effects.Code(again.Code) !=
		effects.NotFound || string(again.Field) != "target" {
		t.Errorf("released twice: %s", said(again))
	}
	a.ok(protocol.CallDetach, protocol.EngineCall{})
	b.ok(protocol.CallDetach, protocol.EngineCall{})
	from.quiet()
	to.quiet()
}

func (r *rig) withKeys(call protocol.EngineCall, n int) protocol.EngineCall {
	call.Keys = keys(n)
	return call
}

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i>>8) ^ byte(i)
	}
}

// A fetch of what is only offered shows its chunks where they lie.
func TestAFetchShowsChunksInPlace(t *testing.T) {
	from, to := newRig(t, "sender", "pd_pull_mode: true"), newRig(t, "receiver", "pd_pull_mode: true",
		"pd_delay_pull: true")
	a, b := from.attach(), to.attach()
	const n = 4
	got := a.ok(protocol.CallReserve, protocol.EngineCall{Count: n})
	for i, page := range got.Pages {
		fill(a.page(page), byte(i+1))
	}
	put := a.ok(protocol.CallPut, from.withKeys(to.peer(protocol.EngineCall{Target: got.ID, Request: []byte("r"),
		Last: true}), n))
	if !put.Held {
		t.Fatal("the pages of an offer came back with its answer")
	}
	fetch := b.begin(protocol.CallFetch, protocol.EngineCall{Keys: keys(n), Request: []byte("r"), PatienceNS: patience})
	for seen := 0; seen < n; {
		for len(b.shows) == 0 {
			b.hear()
		}
		show := b.shows[0]
		b.shows = b.shows[1:]
		for i, page := range show.Pages {
			if !bytes.Equal(b.page(page)[:show.Lengths[i]], a.page(got.Pages[int(show.First)+i])) {
				t.Errorf("chunk %d is another", int(show.First)+i)
			}
			seen++
		}
		b.write((&protocol.EngineShown{ID: fetch, First: show.First}).Append(nil))
	}
	if end := b.answer(fetch); end.Code != 0 || end.Hits != n {
		t.Errorf("the fetch took %d: %s", end.Hits, said(end))
	}
	a.returned(put.ID)
	a.ok(protocol.CallDetach, protocol.EngineCall{}) // It gives the pages back.
	b.ok(protocol.CallDetach, protocol.EngineCall{})
	from.quiet()
	to.quiet()
}

// Whatever connection is cut, a call is done once and its answer arrives.
func TestAnAnswerThatWasLostComesAgain(t *testing.T) {
	r := newRig(t, "sender")
	c := r.attach()
	c.last++
	reserve := protocol.EngineCall{ID: c.last, Op: []byte("reserve"), Count: 2}
	c.write(reserve.Append(nil))
	c.close()
	c.connect(protocol.AttachRequest{Version: 1, Session: c.told.Session, Incarnation: c.told.Incarnation, Open: []uint64{reserve.ID}})
	if !c.told.Resumed {
		t.Fatalf("not resumed: %s", c.told.Reason)
	}
	c.write(reserve.Append(nil)) // It may have been lost, too.
	got := c.answer(reserve.ID)
	if got.Code != 0 || len(got.Pages) != 2 {
		t.Fatalf("%d pages: %s", len(got.Pages), said(got))
	}
	if s := r.node.Stats(); s.PagesTotal-s.PagesFree != 2 {
		t.Errorf("%d pages are reserved", s.PagesTotal-s.PagesFree)
	}
	c.ok(protocol.CallRelease, protocol.EngineCall{Target: got.ID, Done: []uint64{reserve.ID}})
	c.ok(protocol.CallDetach, protocol.EngineCall{})
	r.quiet()
}

// engineProcess is an engine that holds pages until it is killed.
func engineProcess(path string) {
	var t proctest.TB
	c := attach(t, path)
	got := c.ok(protocol.CallReserve, protocol.EngineCall{Count: 3})
	fmt.Println(len(got.Pages))
	_, _ = io.ReadAll(os.Stdin)
	for _, page := range got.Pages { // It is frozen first, so nothing of this is done.
		clear(c.page(page))
	}
}

// What an engine holds stays its own while its process lives, frozen or cut off; and is given back when it is gone.
func TestADeadEngineLeavesNothing(t *testing.T) {
	r := newRig(t, "sender")
	p := proctest.Start(t, proctest.SelfCommand("ATTACH_ENGINE="+r.s.Path()))
	var n int
	p.ReceiveJSON(&n)
	p.Freeze()
	p.AwaitFrozen()
	if s := r.node.Stats(); s.PagesTotal-s.PagesFree != n || n != 3 {
		t.Fatalf("%d pages are reserved, and the engine has %d", s.PagesTotal-s.PagesFree, n)
	}
	if got := r.s.Counts(); got != (Counts{Engines: 1, Holdings: 1, Calls: 1}) {
		t.Fatalf("%+v", got)
	}
	p.Kill()
	<-p.Exited()
	r.quiet()
}

// Another process does not get a session by its number.
func TestASessionIsOfOneProcess(t *testing.T) {
	r := newRig(t, "sender")
	p := proctest.Start(t, proctest.SelfCommand("ATTACH_ENGINE="+r.s.Path()))
	var n int
	p.ReceiveJSON(&n)
	c := r.attach()
	c.close()
	c.connect(protocol.AttachRequest{Version: 1, Session: 1, Incarnation: c.told.Incarnation})
	if effects.Code(c.told.Code) != effects.Refused {
		t.Fatalf("%v: %s", effects.Code(c.told.Code), c.told.Reason)
	}
	if s := r.node.Stats(); s.PagesTotal-s.PagesFree != n {
		t.Errorf("%d pages are reserved, and the engine has %d", s.PagesTotal-s.PagesFree, n)
	}
	p.Kill()
	<-p.Exited()
	r.left(1) // Ours, which has no connection.
}

// Garbage ends its connection, and nothing else.
func TestGarbageEndsItsConnection(t *testing.T) {
	r := newRig(t, "sender")
	c := r.attach()
	got := c.ok(protocol.CallReserve, protocol.EngineCall{Count: 1})
	for _, garbage := range [][]byte{
		nil, {0}, {255, 255, 255, 255}, append([]byte{4, 0, 0, 0}, "GET "...), bytes.Repeat([]byte{0x81}, 300),
		append([]byte{1, 0, 0, 0}, 0xc1),
	} {
		for _, attached := range []bool{false, true} {
			conn, err := net.Dial("unix", r.s.Path())
			if err != nil {
				t.Fatal(err)
			}
			if attached {
				hello := (&protocol.AttachRequest{Version: 1}).Append(nil)
				hello = protocol.AppendFrame(nil, hello)
				if _, err := conn.Write(hello); err != nil {
					t.Fatal(err)
				}
			}
			_, _ = conn.Write(garbage)
			_ = conn.(*net.UnixConn).CloseWrite()
			_, _ = io.ReadAll(conn)
			_ = conn.Close()
		}
	}
	fill(c.page(got.Pages[0]), 1)
	c.ok(protocol.CallRelease, protocol.EngineCall{Target: got.ID})
}

func TestStatsSayWhatIsAttached(t *testing.T) {
	r := newRig(t, "sender")
	c := r.attach()
	var stats struct {
		Node     map[string]int
		Attached Counts
	}
	a := c.ok(protocol.CallStats, protocol.EngineCall{})
	if err := json.Unmarshal(a.Stats, &stats); err != nil {
		t.Fatal(err)
	}
	if stats.Node["pages_total"] != int(c.told.Pages) || stats.Attached != (Counts{Engines: 1, Calls: 1}) {
		t.Errorf("%s", a.Stats)
	}
}

// A trust domain that a call states goes to the node, which tells no domains apart here.
func TestDomainsOfCalls(t *testing.T) {
	c := newRig(t, "receiver").attach()
	for _, op := range []protocol.CallOp{protocol.CallGet, protocol.CallContains, protocol.CallFetch} {
		own := protocol.EngineCall{Keys: keys(1)}
		if op == protocol.CallFetch {
			own.PatienceNS = 1
		}
		if a := c.call(op, own); string(a.Field) == "Domain" {
			t.Errorf("%v of the own domain: %s", op, said(a))
		}
		a := c.call(op, protocol.EngineCall{Keys: keys(1), Domain: []byte("spiffe://other")})
		if effects.Code(a.Code) != effects.Invalid || string(a.Field) != "Domain" || len(a.Remedy) == 0 {
			t.Errorf("%v of another domain: %s", op, said(a))
		}
	}
}

// Every refusal names the field, what it is, what it may be and what helps.
func TestRefusalsName(t *testing.T) {
	r := newRig(t, "sender")
	c := r.attach()
	got := c.ok(protocol.CallReserve, protocol.EngineCall{Count: 1})
	for _, x := range []struct {
		op    protocol.CallOp
		call  protocol.EngineCall
		code  effects.Code
		field string
	}{
		{protocol.CallReserve, protocol.EngineCall{Count: 1 << 30}, effects.TooLarge, "count"},
		{protocol.CallReserve, protocol.EngineCall{Count: 1, Layer: 2}, effects.Invalid, "layer"},
		{protocol.CallRelease, protocol.EngineCall{Target: 77}, effects.NotFound, "target"},
		{protocol.CallPut, protocol.EngineCall{Target: 77}, effects.NotFound, "target"},
		{protocol.CallGet, protocol.EngineCall{Keys: keys(1)}, effects.Unsupported, "pd_role"},
		{protocol.CallStore, protocol.EngineCall{Target: got.ID, Keys: keys(1)}, effects.Unsupported, "enable_p2p"},
		{protocol.CallRegister, protocol.EngineCall{Request: []byte("r")}, effects.Unsupported, "register.engine_id"},
		{protocol.CallExpect, protocol.EngineCall{Producers: [][]byte{[]byte("nowhere")}}, effects.Invalid, "producers"},
		{protocol.CallAbort, protocol.EngineCall{Target: 1}, effects.NotFound, "target"},
		{protocol.CallSaveLayer, protocol.EngineCall{Prefill: got.ID, Tokens: 16}, effects.NotFound, "prefill"},
	} {
		a := c.call(x.op, x.call)
		if effects.Code(a.Code) != x.code || string(a.Field) != x.field || len(a.Ours) == 0 && len(a.Theirs) == 0 ||
			len(a.Remedy) == 0 {
			t.Errorf("%v: %s; want %v of %s", x.op, said(a), x.code, x.field)
		}
	}
	c.last++
	c.write((&protocol.EngineCall{ID: c.last, Op: []byte("dance")}).Append(nil))
	if a := c.answer(c.last); effects.Code(a.Code) != effects.Unsupported || string(a.Theirs) != "dance" {
		t.Errorf("an operation that nobody knows: %s", said(a))
	}
}

// Engines that come and go leave nothing.
func TestAThousandEnginesComeAndGo(t *testing.T) {
	r := newRig(t, "sender")
	for i := range 1000 {
		c := attach(t, r.s.Path())
		got := c.ok(protocol.CallReserve, protocol.EngineCall{Count: 1})
		c.page(got.Pages[0])[0] = byte(i)
		c.ok(protocol.CallDetach, protocol.EngineCall{})
		c.free(t)
	}
	r.quiet()
}

// A drained agent lets engines go that hold nothing, and waits for others.
func TestDrain(t *testing.T) {
	r := newRig(t, "sender")
	idle, busy := r.attach(), r.attach()
	got := busy.ok(protocol.CallReserve, protocol.EngineCall{Count: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.s.Drain(ctx); err == nil {
		t.Fatal("an engine holds pages, and the agent is drained")
	}
	if _, err := io.ReadAll(idle.conn); err != nil {
		t.Error(err)
	}
	late := &client{t: t, path: r.s.Path()}
	late.connect(protocol.AttachRequest{Version: 1})
	if effects.Code(late.told.Code) != effects.Draining || len(late.told.Reason) == 0 {
		t.Errorf("%v: %s", effects.Code(late.told.Code), late.told.Reason)
	}
	late.close()
	busy.ok(protocol.CallRelease, protocol.EngineCall{Target: got.ID})
	if err := r.s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestASocketHasOneServer(t *testing.T) {
	r := newRig(t, "sender")
	if _, err := Serve(Config{Node: r.node, Path: r.s.Path()}); err == nil || !strings.Contains(err.Error(), r.s.Path()) {
		t.Errorf("two agents serve one socket: %v", err)
	}
	left := filepath.Join(t.TempDir(), "left")
	l, err := net.Listen("unix", left)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	s, err := Serve(Config{Node: r.node, Path: left})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// agentProcess is an agent that begins when it is told to, and says what comes of it; it ends with its input.
func agentProcess(path string) {
	in := bufio.NewReader(os.Stdin)
	said := ""
	if _, err := in.ReadString('\n'); err != nil {
		said = err.Error()
	} else if _, err := listenUnix(path, 0); err != nil {
		said = err.Error()
	}
	fmt.Printf("%q\n", said)
	_, _ = io.ReadAll(in)
}

// Of agents that begin at once where one was killed one serves, and its socket stays.
func TestAgentsThatBeginAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 3 {
		var all []*proctest.Process
		for range 6 {
			all = append(all, proctest.Start(t, proctest.SelfCommand("ATTACH_AGENT="+path)))
		}
		for _, p := range all {
			p.WriteLine("go")
		}
		serves := 0
		for _, p := range all {
			var said string
			if p.ReceiveJSON(&said); said == "" {
				serves++
			} else if !strings.Contains(said, path) || !strings.Contains(said, "give another path") {
				t.Errorf("an agent says %q, and neither where nor what helps", said)
			}
		}
		c, err := net.Dial("unix", path)
		if err != nil || serves != 1 {
			t.Fatalf("%d agents serve the socket: %v", serves, err)
		}
		_ = c.Close()
		for _, p := range all {
			p.Kill() // It leaves its socket.
		}
	}
}

// A call that the agent cannot take has an answer, and those behind it go on.
func TestACallThatIsTooLongIsAnswered(t *testing.T) {
	r := newRig(t, "receiver")
	c := r.attach()
	long := c.call(protocol.CallAbandon, protocol.EngineCall{Request: bytes.Repeat([]byte("r"), 2000)})
	if effects.Code(long.Code) != effects.Malformed || string(long.Field) != "request" || len(long.Ours) == 0 {
		t.Errorf("%s", said(long))
	}
	c.ok(protocol.CallContains, protocol.EngineCall{Keys: keys(1)})
}

// What was given back is kept nowhere.
func TestNothingIsKeptOfWhatHasEnded(t *testing.T) {
	r := newRig(t, "sender")
	c := r.attach()
	for range 20 {
		got := c.ok(protocol.CallReserve, protocol.EngineCall{Count: 1, Done: c.done()})
		c.ok(protocol.CallRelease, protocol.EngineCall{Target: got.ID})
	}
	c.ok(protocol.CallStats, protocol.EngineCall{Done: c.done()})
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for _, e := range r.s.engines {
		if len(e.handles)+len(e.calls)+len(e.puts) > 0 {
			t.Errorf("%d holdings, %d calls and %d puts are kept", len(e.handles), len(e.calls), len(e.puts))
		}
	}
}
