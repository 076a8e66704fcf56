package recording

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSeed = 7

// testConfig is the configuration of a small receiver.
func testConfig() rank.Config {
	layout := protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeHalf,
		Shape: protocol.Shape{Dims: [4]uint32{2, 1, 4, 2}, N: 4}}
	return rank.Config{Role: rank.RoleBoth, Key: identity.KeyFromSeed(testSeed),
		Planes: []rank.Plane{{Name: "shm", Blob: []byte{1, 2, 3}}}, Common: rank.Common{Layout: layout},
		Memory: rank.Memory{Pages: 16}, Peers: rank.Peers{LocalID: "me"}}
}

// A rig is a machine with a recorder.
type rig struct {
	t        *testing.T
	machine  *rank.Rank
	recorder *Recorder
	log      *lockedBuffer
	now      effects.Time
	out      effects.Effects
	tickets  effects.Ticket
}

// A lockedBuffer is a buffer that several goroutines may use.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	g := &rig{t: t, now: 1_000_000_000, log: &lockedBuffer{}}
	cfg := testConfig()
	var err error
	if g.machine, err = rank.New(cfg, testSeed, g.now); err != nil {
		t.Fatal(err)
	}
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "a", "b")
	}
	o.Log = slog.New(slog.NewTextHandler(g.log, nil))
	if g.recorder, err = Start(g.machine, &cfg, testSeed, g.now, []string{"init here:1"}, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.recorder.Close(time.Minute) })
	return g
}

func (g *rig) step(ev effects.Event) {
	g.now += 1000
	g.out.Reset()
	g.recorder.RecordEvent(g.now, ev)
	g.machine.Step(g.now, ev, &g.out)
	g.recorder.RecordEffects(&g.out)
}

// serve makes the machine do n rounds of work of its engine and of a peer that is not known.
func (g *rig) serve(n int) {
	for range n {
		g.tickets++
		g.step(&effects.Command{Ticket: g.tickets, Body: &engine.Reserve{Count: 2}})
		g.step(&effects.Received{Conn: 1, Channel: effects.ChannelAlloc, Request: effects.Request(g.tickets), Body: []byte("nonsense")})
		g.step(&effects.Command{Ticket: 1 << 20, Body: &engine.Release{Reserved: g.tickets}})
		g.step(&effects.Tick{})
	}
}

func (g *rig) file() string { return g.recorder.Status().File }

func mustReplay(t *testing.T, name string) *Result {
	t.Helper()
	r, err := Replay(name, ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReplay(t *testing.T) {
	g := newRig(t, Options{})
	g.serve(100)
	g.recorder.Close(time.Minute)
	r := mustReplay(t, g.file())
	if r.Diverged != nil || r.Steps != 400 || r.Effects == 0 || r.End != EndClosed || r.Role != "both" || len(r.Trace) != 64 ||
		r.Seconds < 398e-6 || r.Seconds > 400e-6 || r.Servers[0] != "init here:1" {
		t.Errorf("%+v, %+v", r, r.Diverged)
	}
	if s := g.recorder.Status(); s.Steps != 400 || s.Bytes == 0 || s.Ended != EndClosed {
		t.Errorf("%+v", s)
	}
	if info, err := os.Stat(g.file()); err != nil || info.Mode() != 0o600 || uint64(info.Size()) != g.recorder.Status().Bytes {
		t.Errorf("%v, %v", info, err)
	}
	if g.log.String() != "" {
		t.Errorf("the log has %q", g.log)
	}
}

// The file of a process that was killed is replayed as far as it goes, wherever the kill has cut it.
func TestCutFiles(t *testing.T) {
	g := newRig(t, Options{Interval: time.Hour})
	for range 5 {
		g.serve(10)
		g.recorder.Flush(time.Minute)
	}
	g.recorder.RecordEvent(g.now, &effects.Tick{}) // The process dies within this step.
	g.recorder.Flush(time.Minute)
	whole, err := os.ReadFile(g.file())
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut")
	last := uint64(0)
	for n := 0; n <= len(whole); n += max(1, min(97, len(whole)-n)) {
		if err := os.WriteFile(cut, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Replay(cut, ReplayOptions{})
		if err != nil {
			if last > 0 || !strings.Contains(err.Error(), "ends before its first step") && !strings.Contains(err.Error(), "not a recording") {
				t.Fatalf("%d bytes: %v", n, err)
			}
			continue
		}
		if r.Diverged != nil || r.Steps < last || r.Steps%40 != 0 || !strings.Contains(r.End, "killed") {
			t.Fatalf("%d bytes: %+v", n, r)
		}
		last = r.Steps
	}
	if last != 200 {
		t.Errorf("%d steps of the whole file", last)
	}
}

// A change of any byte is found.
func TestDamagedFiles(t *testing.T) {
	g := newRig(t, Options{})
	g.serve(20)
	g.recorder.Close(time.Minute)
	whole, err := os.ReadFile(g.file())
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged")
	for at := 0; at < len(whole); at += 13 {
		b := bytes.Clone(whole)
		b[at] ^= 0x10
		if err := os.WriteFile(damaged, b, 0o600); err != nil {
			t.Fatal(err)
		}
		// A length that is too large looks like a file that was cut.
		if r, err := Replay(damaged, ReplayOptions{}); err == nil && r.End == EndClosed {
			t.Fatalf("byte %d of %d was changed, and nothing is found: %+v", at, len(whole), r)
		}
	}
}

// rewrite writes the recording again with another beginning or other records.
func rewrite(t *testing.T, name string, begin func(p *preamble), records func(b []byte) []byte) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := openReader(f, false)
	if err != nil {
		t.Fatal(err)
	}
	begin(&r.preamble)
	var out bytes.Buffer
	w := newFrameWriter()
	frames := [][]byte{fmt.Appendf(nil, `{"format":%d,"schema":"%d","state":"%d","build":{"version":%q,"commit":%q}}`, r.preamble.Format,
		r.preamble.Schema, r.preamble.State, r.preamble.Build.Version, r.preamble.Build.Commit),
		appendOrigin([]byte{recordOrigin}, r.origin)}
	for {
		b, err := r.readFrame()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, b)
	}
	out.WriteString(magic)
	for i, b := range frames {
		if i > 0 {
			b = records(b)
		}
		b, err := w.frame(b)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return other
}

func same(b []byte) []byte { return b }

// A recording of another build is refused, unless the caller insists and this build can read the types.
func TestOtherBuilds(t *testing.T) {
	g := newRig(t, Options{})
	g.serve(5)
	g.recorder.Close(time.Minute)
	for _, c := range []struct {
		name     string
		begin    func(p *preamble)
		said     string
		anyBuild bool
	}{
		{"the same", func(*preamble) {}, "", false},
		{"commit", func(p *preamble) { p.Build.Commit = "abc" }, "another build", false},
		{"commit, any", func(p *preamble) { p.Build.Commit = "abc" }, "", true},
		{"format, any", func(p *preamble) { p.Format++ }, "has the format 3", true},
		{"types, any", func(p *preamble) { p.Schema++ }, "other events or another configuration", true},
	} {
		r, err := Replay(rewrite(t, g.file(), c.begin, same), ReplayOptions{AnyBuild: c.anyBuild})
		if said := fmt.Sprint(err); c.said == "" && (err != nil || r.Steps != 20) || !strings.Contains(said, c.said) {
			t.Errorf("%s: %v, %v", c.name, r, err)
		}
	}
}

// A machine that does something else is found at the first step at which it does.
func TestDivergence(t *testing.T) {
	g := newRig(t, Options{})
	g.serve(3)
	for range 9 { // The pool has 16 pages, so the last of these cannot be had.
		g.tickets++
		g.step(&effects.Command{Ticket: g.tickets, Body: &engine.Reserve{Count: 2}})
	}
	g.recorder.Close(time.Minute)
	if r := mustReplay(t, g.file()); r.Diverged != nil || r.Steps != 21 {
		t.Fatalf("%+v", r)
	}
	for _, c := range []struct {
		name   string
		change func(o *origin)
		step   uint64
	}{
		{"a smaller pool", func(o *origin) { o.Config.Pages = 8 }, 15},
		{"a smaller share", func(o *origin) { o.Config.EngineSharePct = 25 }, 15},
	} {
		other := rewrite(t, g.file(), func(*preamble) {}, func(b []byte) []byte {
			if b[0] != recordOrigin {
				return b
			}
			o := (&decoder{b: b[1:]}).origin()
			c.change(o)
			return appendOrigin([]byte{recordOrigin}, o)
		})
		d := mustReplay(t, other).Diverged
		if d == nil || d.Step != c.step || fmt.Sprint(d.Recorded) != "[Publish Deliver]" || len(d.Replayed) != 0 ||
			!strings.Contains(d.Event, "engine.Reserve") || d.Panicked != "" {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

// A recording never holds up the machine: if the file system hangs, the recording ends, with all that it had.
func TestSlowFile(t *testing.T) {
	gate := make(chan struct{})
	g := newRig(t, Options{QueueBytes: 4 << 10, Interval: time.Millisecond, open: func(name string) (file, error) {
		f, err := os.Create(name)
		return &gatedFile{file: f, gate: gate}, err
	}})
	begin := time.Now()
	for g.recorder.Status().Ended == "" && time.Since(begin) < time.Minute {
		g.serve(1)
	}
	steps := g.recorder.Status().Steps
	g.serve(10)
	if s := g.recorder.Status(); !strings.Contains(s.Ended, "waited to be written") || s.Steps != steps {
		t.Errorf("%+v after %d steps", s, steps)
	}
	close(gate)
	g.recorder.Close(time.Minute)
	if r := mustReplay(t, g.file()); r.Diverged != nil || r.Steps != steps || !strings.Contains(r.End, "waited to be written") {
		t.Errorf("%+v, want %d steps", r, steps)
	}
	if n := strings.Count(g.log.String(), "the recording has ended"); n != 1 {
		t.Errorf("%d lines in the log: %s", n, g.log)
	}
}

// A gatedFile writes its third and later pieces when the gate is open.
type gatedFile struct {
	file
	gate   chan struct{}
	writes int
}

func (f *gatedFile) Write(b []byte) (int, error) {
	if f.writes++; f.writes > 3 {
		<-f.gate
	}
	return f.file.Write(b)
}

// A recording ends when the state of the machine has no place in the ring, and when the file cannot be written.
func TestEnds(t *testing.T) {
	full := func(name string) (file, error) {
		f, err := os.Create(name)
		return &fullFile{f, 4 << 10}, err
	}
	for _, c := range []struct {
		name    string
		options Options
		said    string
		marked  bool // the end record is in the file
	}{
		{"a state that is too large", Options{BytesMax: 2 << 10}, "more than half of recorder.bytes, 2048", true},
		{"disk full", Options{open: full}, "no space", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.options.Interval = time.Millisecond
			g := newRig(t, c.options)
			for begin := time.Now(); g.recorder.Status().Ended == "" && time.Since(begin) < time.Minute; {
				g.serve(1)
				g.recorder.Flush(time.Minute)
			}
			g.recorder.Close(time.Minute)
			r := mustReplay(t, g.file())
			if r.Diverged != nil || r.Before+r.Steps == 0 || strings.Contains(r.End, c.said) != c.marked ||
				!strings.Contains(g.recorder.Status().Ended, c.said) || strings.Count(g.log.String(), c.said) == 0 {
				t.Errorf("%+v\n%+v\n%s", r, g.recorder.Status(), g.log)
			}
		})
	}
}

// A fullFile has room for so many bytes.
type fullFile struct {
	file
	room int
}

func (f *fullFile) Write(b []byte) (int, error) {
	if len(b) > f.room {
		n, _ := f.file.Write(b[:f.room])
		f.room = 0
		return n, fmt.Errorf("no space left on device")
	}
	f.room -= len(b)
	return f.file.Write(b)
}

type unknownCommand struct{}

func (*unknownCommand) IsCommand() {}

// A command that a recording cannot have ends it, because a replay without the command would be of another run.
func TestUnknownCommand(t *testing.T) {
	g := newRig(t, Options{})
	g.serve(1)
	g.recorder.RecordEvent(g.now, &effects.Command{Ticket: 99, Body: &unknownCommand{}})
	g.recorder.RecordEffects(&g.out)
	g.recorder.Close(time.Minute)
	if r := mustReplay(t, g.file()); r.Steps != 4 || !strings.Contains(r.End, "unknown kind") {
		t.Errorf("%+v", r)
	}
}

// Chunks that a message carries are in no recording; all else of the message is.
func TestChunksAreLeftOut(t *testing.T) {
	chunk := bytes.Repeat([]byte("kvf_bytes secret"), 16)
	m := protocol.AllocRequest{Keys: [][]byte{[]byte("kvf_bytes@key")}, Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeHalf,
		Shape: protocol.Shape{Dims: [4]uint32{2, 1, 4, 2}, N: 4}, HasExt: true}
	m.Ext.Carried = chunk
	ev := &effects.Received{Conn: 3, Channel: effects.ChannelAlloc, Request: 4, Body: m.Append(nil)}
	before := bytes.Clone(ev.Body)
	c := blanker{limits: protocol.DefaultLimits()}
	b, ok := c.appendBlanked([]byte{1, 2}, ev)
	if !ok || !bytes.Equal(ev.Body, before) {
		t.Fatalf("%v, or the event was changed", ok)
	}
	if bytes.Contains(b, []byte("secret")) {
		t.Error("the record has bytes of a chunk")
	}
	r := decoder{b: b[2:]}
	got := r.event().(*effects.Received)
	clear(chunk)
	want := *ev
	want.Body = m.Append(nil)
	if r.err != nil || !reflect.DeepEqual(got, &want) {
		t.Errorf("%+v, %v", got, r.err)
	}
	// Where the message states checksums, each chunk keeps its own.
	for i := range chunk {
		chunk[i] = byte(i * i)
	}
	m.Ext.Carried, m.Ext.Sums = chunk, []uint64{1, 2, 3}
	m.Keys = append(m.Keys, []byte("second"), []byte("third"))
	ev.Body, c.pageBytes = m.Append(nil), 100 // of 256 bytes
	b, _ = c.appendBlanked(nil, ev)
	r = decoder{b: b}
	lim, blanked := protocol.DefaultLimits(), protocol.AllocRequest{}
	if err := blanked.Decode(r.event().(*effects.Received).Body, &lim); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(chunk); at += 100 {
		had, has := chunk[at:min(at+100, len(chunk))], blanked.Ext.Carried[at:min(at+100, len(chunk))]
		if effects.SumOf(had) != effects.SumOf(has) || bytes.ContainsFunc(has[:len(has)-4], func(c rune) bool { return c != 0 }) {
			t.Errorf("the chunk at %d is %x, with checksum %d; it had %d", at, has, effects.SumOf(has), effects.SumOf(had))
		}
	}
	// What is no message stays as it is.
	ev.Body = []byte("kvf_bytes, but no message")
	if b, ok = c.appendBlanked(nil, ev); !ok || !bytes.Contains(b, ev.Body) {
		t.Errorf("%q", b)
	}
}

// Every type that is recorded has the values back that it had: nil and empty slices are different things.
func TestValuesComeBack(t *testing.T) {
	for i, typ := range eventTypes {
		for seed := range 3 {
			v := reflect.New(typ)
			n := 0
			fillValue(v.Elem(), seed, &n)
			b, ok := appendEvent(nil, v.Interface().(effects.Event))
			r := decoder{b: b}
			if got := r.event(); !ok || r.err != nil || len(r.b) > 0 || !reflect.DeepEqual(got, v.Interface()) {
				t.Errorf("event %d: %+v became %+v, %v", i, v.Interface(), got, r.err)
			}
			for n := range b { // A record that was cut is refused.
				if r := (decoder{b: b[:n:n]}); r.event() != nil && r.err == nil {
					t.Errorf("event %d: %d of %d bytes are taken for all", i, n, len(b))
				}
			}
		}
	}
	for _, typ := range commandTypes {
		for seed := range 3 {
			v := reflect.New(typ)
			n := 0
			fillValue(v.Elem(), seed, &n)
			ev := &effects.Command{Ticket: 5, Body: v.Interface().(effects.CommandBody)}
			b, ok := appendEvent(nil, ev)
			r := decoder{b: b}
			if got := r.event(); !ok || r.err != nil || !reflect.DeepEqual(got, effects.Event(ev)) {
				t.Errorf("%v: %+v became %+v, %v", typ, ev, got, r.err)
			}
		}
	}
	cfg := testConfig()
	o := &origin{Config: cfg, Seed: 1 << 63, Now: -5, Servers: []string{"a", ""}}
	o.Config.Tenants = effects.NewTenants(3, 4)
	r := decoder{b: appendOrigin(nil, o)}
	if got := r.origin(); r.err != nil || !reflect.DeepEqual(got, o) {
		t.Errorf("%+v, %v", got, r.err)
	}
}

// fillValue fills exported fields with numbers that follow from n; with seed 0 it leaves slices nil, with seed 1 empty.
func fillValue(v reflect.Value, seed int, n *int) {
	*n++
	//exhaustive:ignore
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fillValue(v.Field(i), seed, n)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			fillValue(v.Index(i), seed, n)
		}
	case reflect.Slice:
		if seed > 0 {
			v.Set(reflect.MakeSlice(v.Type(), (seed-1)*3, (seed-1)*3))
			for i := range v.Len() {
				fillValue(v.Index(i), seed, n)
			}
		}
	case reflect.Pointer:
		if v.Type() == reflect.TypeFor[*effects.Tenants]() && seed > 0 {
			v.Set(reflect.ValueOf(effects.NewTenants(effects.Tenant(*n), 8)))
		}
	case reflect.Interface:
		if v.Type() == reflect.TypeFor[effects.CommandBody]() {
			v.Set(reflect.ValueOf(&engine.Reserve{Count: uint32(*n)}))
		}
	case reflect.String:
		v.SetString(strings.Repeat("x", *n%5))
	case reflect.Bool:
		v.SetBool(*n%2 == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n) * int64(1-*n%2*2) % 100)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n) * 0x9E3779B97F4A7C15 >> (64 - v.Type().Bits()))
	}
}

// Every field of every effect counts in the hash, except for bytes of pages.
func TestHashCoversEffects(t *testing.T) {
	h := newEffectHasher()
	for _, e := range []effects.Effect{&effects.Open{}, &effects.Close{}, &effects.Send{}, &effects.Post{}, &effects.Reply{},
		&effects.Import{}, &effects.Drop{}, &effects.Publish{}, &effects.Grant{}, &effects.Revoke{}, &effects.Transfer{}, &effects.Copy{},
		&effects.Store{}, &effects.Cancel{}, &effects.Confirm{}, &effects.Scatter{}, &effects.Deliver{}, &effects.Return{},
		&effects.Observe{}} {
		n := 0
		v := reflect.ValueOf(e).Elem()
		fillValue(v, 2, &n)
		if s, ok := e.(*effects.Send); ok {
			s.Carries = []effects.Page{{Length: 2}}
		}
		before := h.hashEffect(e)
		eachLeaf(v, v.Type().String(), func(path string, leaf reflect.Value) {
			old := reflect.New(leaf.Type()).Elem()
			old.Set(leaf)
			//exhaustive:ignore
			switch leaf.Kind() {
			case reflect.String:
				leaf.SetString(leaf.String() + "y")
			case reflect.Bool:
				leaf.SetBool(!leaf.Bool())
			case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
				leaf.SetInt(leaf.Int() ^ 1)
			case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
				leaf.SetUint(leaf.Uint() ^ 1)
			case reflect.Slice:
				leaf.Set(reflect.AppendSlice(leaf, reflect.MakeSlice(leaf.Type(), 1, 1)))
			}
			ofPage := strings.HasPrefix(path, "effects.Store.Bytes[") || path == "effects.Send.Body[1]" || path == "effects.Send.Body[2]"
			if same := h.hashEffect(e) == before; same != ofPage {
				t.Errorf("with another %s the hash is the same: %v", path, same)
			}
			leaf.Set(old)
		})
	}
}

// eachLeaf calls f with each number, text and slice below v.
func eachLeaf(v reflect.Value, path string, f func(path string, leaf reflect.Value)) {
	//exhaustive:ignore
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				eachLeaf(v.Field(i), path+"."+v.Type().Field(i).Name, f)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			eachLeaf(v.Index(i), fmt.Sprintf("%s[%d]", path, i), f)
		}
	case reflect.Slice:
		f(path, v)
		for i := range v.Len() {
			eachLeaf(v.Index(i), fmt.Sprintf("%s[%d]", path, i), f)
		}
	case reflect.Pointer:
	default:
		f(path, v)
	}
}

// BenchmarkRecord is the work of a recorder on the machine's goroutine for one step: the encoding of its event and the hash of
// its effects. The work of the writer's goroutine is not in it. A step is the allocation request of a peer with so many keys that is
// answered with a grant, or, with 0 keys, a Tick without effects.
func BenchmarkRecord(b *testing.B) {
	for _, keys := range []int{0, 1, 64} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			cfg := testConfig()
			m, err := rank.New(cfg, testSeed, 1)
			if err != nil {
				b.Fatal(err)
			}
			r, err := Start(m, &cfg, testSeed, 1, nil, Options{Dir: b.TempDir(), Interval: time.Hour,
				Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			var out effects.Effects
			var ev effects.Event = &effects.Tick{}
			if keys > 0 {
				m := protocol.AllocRequest{Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeHalf, HasExt: true,
					Shape: protocol.Shape{Dims: [4]uint32{2, 1, 4, 2}, N: 4}}
				pages := make([]effects.Page, keys)
				for i := range keys {
					m.Keys = append(m.Keys, fmt.Appendf(nil, "meta-llama/Llama-3.1-8B-Instruct@1@0@%016x@bfloat16", i*i*7919))
					pages[i] = effects.Page{Index: uint32(i), Generation: 7, Length: 1 << 20}
				}
				body := m.Append(nil)
				ev = &effects.Received{Conn: 7, Origin: 3, Channel: effects.ChannelAlloc, Request: 1, Body: body}
				out.Publish(pages)
				out.Grant(effects.Grant{ID: 9, Pages: pages})
				out.Observe(effects.Observe{Fact: effects.FactGranted, Count: uint32(keys)})
				out.Reply(effects.Reply{Request: 1, Body: out.Cut(append(out.Arena(), body...))})
			}
			b.ReportAllocs()
			now, taken := effects.Time(1), 0
			for b.Loop() {
				now += 1000
				r.RecordEvent(now, ev)
				r.RecordEffects(&out)
				if len(r.pending) > frameBytes/2 { // As if the writer had taken all.
					taken += len(r.pending)
					r.pending = r.pending[:0]
				}
			}
			b.ReportMetric(float64(taken+len(r.pending))/float64(b.N), "raw-B/op")
			b.StopTimer()
			r.Close(time.Minute)
			if s := r.Status(); s.Ended != EndClosed {
				b.Fatalf("%+v", s)
			}
		})
	}
}
